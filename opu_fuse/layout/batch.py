"""A batch: the maps of its images below each other, image n from row n * rows on.

Where no window sees rows of two images, that is a layer with more rows and nothing else. Elsewhere
tiles, windows and padding are those of the single images (`Shape.images`).
"""

from msgspec.structs import replace

from opu_fuse.hw.isa.table import REGISTER, Engine
from opu_fuse.layout.shape import Shape, Window

MOST_IMAGES = 128
"""Of a batch: what no network of a useful size has the memory for, and every register can count."""
_TALLEST = min(REGISTER[engine, "stride_y"].highest for engine in (Engine.COMPUTE, Engine.POST))


def batched(shape: Shape, images: int) -> Shape:
    """Of a layer for so many images."""
    if images == 1:
        return shape
    window = _stacked(shape.window, shape.in_rows, shape.pre_pool_rows)
    pool = _stacked(shape.pool_window, shape.pre_pool_rows, shape.out_rows)
    gated = shape.gated or any(side.broadcast for side in shape.sides)  # one pixel for an image
    if window is None or pool is None or gated or shape.phased:
        return replace(shape, images=images)
    return replace(
        shape,
        in_rows=images * shape.in_rows,
        pre_pool_rows=images * shape.pre_pool_rows,
        out_rows=images * shape.out_rows,
        window=window,
        pool=None if shape.pool is None else pool,
    )


def apart(shape: Shape, images: int) -> Shape:
    """The same layer, whose rows may be those of all images, with tiles that end with an image."""
    if shape.images == images:
        return shape
    return replace(
        shape,
        in_rows=shape.in_rows // images,
        pre_pool_rows=shape.pre_pool_rows // images,
        out_rows=shape.out_rows // images,
        images=images,
    )


def _stacked(window: Window, rows: int, made: int) -> Window | None:
    """For images of so many rows, and results, below each other; None where it would see two."""
    reach = (window.kernel[0] - 1) * window.dilations[0] + 1
    stride = rows if made == 1 else window.strides[0]
    if window.pads[0] or window.pads[2] or rows != made * stride:
        return None
    if reach > stride or stride > _TALLEST:
        return None
    return replace(window, strides=(stride, window.strides[1]))
