"""Batches: the maps of a batch's images are stacked along the rows. Image n begins at row n * rows.

If no window overlaps two images, the batched layer is simply a layer with more rows. Otherwise
tiles, windows and padding are per image (`Shape.images`). The rows of a product by rows are such
images too, and those of a norm by rows.
"""

from msgspec.structs import replace

from opu_fuse.hw.isa.table import REGISTER, Engine
from opu_fuse.layout.shape import Shape, Window

MOST_IMAGES = 128
"""Most images of a batch. No useful network has DRAM for more; every register holds this count."""
_TALLEST = min(REGISTER[engine, "stride_y"].highest for engine in (Engine.COMPUTE, Engine.POST))


def batched(shape: Shape, images: int) -> Shape:
    """The shape of a layer for a batch of `images`."""
    if images == 1:
        return shape
    if shape.computed:  # each image has its own weights, or each row of one
        return replace(shape, images=images * shape.images)
    window = _stacked(shape.window, shape.in_rows, shape.pre_pool_rows)
    pool = _stacked(shape.pool_window, shape.pre_pool_rows, shape.out_rows)
    gated = shape.gated or any(side.broadcast for side in shape.sides)  # one pixel for an image
    if window is None or pool is None or gated or shape.phased or shape.whole_map:
        return replace(shape, images=images * shape.images)
    return replace(
        shape,
        in_rows=images * shape.in_rows,
        pre_pool_rows=images * shape.pre_pool_rows,
        out_rows=images * shape.out_rows,
        window=window,
        pool=None if shape.pool is None else pool,
        pools_with_halo=False,  # no window overlaps two images, nor two rows
    )


def split_images(shape: Shape, images: int) -> Shape:
    """The shape with rows per image, so that no tile crosses the end of an image.

    shape: its rows are those of one image, or of all `images` stacked.
    """
    if shape.images == images:
        return shape
    return replace(
        shape,
        in_rows=shape.in_rows // images,
        pre_pool_rows=shape.pre_pool_rows // images,
        out_rows=shape.out_rows // images,
        images=images,
    )


def _stacked(window: Window, in_rows: int, out_rows: int) -> Window | None:
    """A window for stacked images, None if some window would overlap two images.

    in_rows, out_rows: input and output rows of an image.
    """
    reach = (window.kernel[0] - 1) * window.dilations[0] + 1
    stride = in_rows if out_rows == 1 else window.strides[0]
    if window.pads[0] or window.pads[2] or in_rows != out_rows * stride:
        return None
    if reach > stride or stride > _TALLEST:
        return None
    return replace(window, strides=(stride, window.strides[1]))
