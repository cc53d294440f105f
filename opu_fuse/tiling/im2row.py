"""im2row on load for first layers (`hw/im2row_window.py`).

To tiling, fused stacks and schedule such a layer reads a map of im2row rows, one per input row, by
windows of a single row. It differs only in how these rows are loaded into the feature buffer, and
in that its windows are byte runs.
"""

import dataclasses
from collections.abc import Iterator
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.hw import unit_rates
from opu_fuse.hw.im2row_window import COLUMN_BYTES, IMAGE_CHANNELS, IMAGE_SLOT
from opu_fuse.hw.isa.table import REGISTER, Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import Storage
from opu_fuse.layout.pixel_packing import can_fetch
from opu_fuse.layout.shape import Im2row, Shape, Window
from opu_fuse.tiling.tile import (
    ceil_div,
    input_blocks,
    input_segments,
    kernel_iterations,
    output_blocks,
    output_groups,
)

_WIDEST = REGISTER[Engine.COMPUTE, "in_cols"].highest
_STRIDE = REGISTER[Engine.COMPUTE, "stride_x"].highest


def im2row(plain: Shape, hw: HwSpec) -> Shape | None:
    """Return the layer with im2row on load; None if unsupported or no faster."""
    transformed = _im2row_reader(plain, hw)
    if transformed is None or transformed.im2row is None:
        return None
    words = transformed.im2row.row_words(transformed.im2row.words)
    load = transformed.im2row.kernel_rows * words
    now, then = array_cycles(plain, hw), array_cycles(transformed, hw)
    if then is None or now is None:
        return None
    # Resident output is written only after the whole input is loaded, if a bank holds that.
    waits = load if transformed.in_rows * words <= hw.buffers.feature.bank_words else 0
    return transformed if max(then, load) + waits < now else None


def _im2row_reader(shape: Shape, hw: HwSpec) -> Shape | None:
    """Return the layer as a reader of im2row rows; None if unsupported."""
    window, buffer = shape.window, hw.buffers.image
    rows, column = window.kernel[0], COLUMN_BYTES.get(window.kernel[0])
    words = ceil_div(shape.in_cols * IMAGE_SLOT, hw.word_bytes)
    plain = shape.array and not (shape.depthwise or shape.pre or shape.phased)
    image = shape.slot == IMAGE_SLOT and shape.in_channels <= IMAGE_CHANNELS and shape.groups == 1
    if buffer is None or column is None or not (plain and image) or window.dilations != (1, 1):
        return None
    if rows * words > buffer.bank_words:
        return None
    if shape.in_cols * column > _WIDEST or window.strides[1] * column > _STRIDE:
        return None
    return replace(
        shape,
        slot=column,
        in_rows=shape.pre_pool_rows,
        window=replace(
            window,
            kernel=(1, window.kernel[1]),
            strides=(1, window.strides[1]),
            pads=(0, window.pads[1], 0, window.pads[3]),
        ),
        im2row=Im2row(
            kernel_rows=rows,
            stride=window.strides[0],
            pad=window.pads[0],
            in_rows=shape.in_rows,
            rows=shape.pre_pool_rows,
            words=words,
        ),
    )


def array_cycles(shape: Shape, hw: HwSpec) -> int | None:
    """Array cycles of a convolution for a row of pixels in its fastest mode; None if none fits."""
    blocks = output_blocks(shape, hw)
    inputs = input_blocks(shape, hw.word_channels, 0, blocks)
    steps = ceil_div(shape.pre_pool_cols, shape.px)
    results = []
    for mode in hw.array.modes:
        if can_fetch(shape, mode, hw):
            each = prod(kernel_iterations(shape, mode, hw)) * shape.sweeps(mode)
            each *= input_segments(shape, mode, hw, *inputs)
            results.append(each * output_groups(shape, mode, hw, 0, blocks) * steps)
    return min(results, default=None)


def im2row_storage(storage: Storage, shape: Shape) -> Storage:
    """The storage of a layer's input as the layer reads it: an im2row map has its own layout."""
    im2row, layout = shape.im2row, storage.layout
    if im2row is None:
        return storage
    images = layout.rows // im2row.in_rows
    cols = im2row.words * layout.word // IMAGE_SLOT
    layout = dataclasses.replace(layout, rows=images * im2row.rows, cols=cols, slot=shape.slot)
    return replace(storage, layout=layout)


class Piece(Struct, frozen=True, kw_only=True):
    """Consecutive im2row rows that one `load.unfold` computes.

    done: im2row rows before them;
    rows: im2row rows;
    first, count: the rows of the image map that they need;
    origin: row at which the window of the first one begins, relative to `first` (negative in the
    padding).
    """

    done: int
    rows: int
    first: int
    count: int
    origin: int


def pieces(im2row: Im2row, first: int, rows: int, words: int, hw: HwSpec) -> Iterator[Piece]:
    """Cut rows of an im2row map into the pieces that the image buffer can hold.

    first, rows: the im2row rows, counted over all images; words: image words of each row.
    """
    assert hw.buffers.image is not None, "only machines with an image buffer have im2row maps"
    window = Window(
        kernel=(im2row.kernel_rows, 1), strides=(im2row.stride, 1), pads=(im2row.pad, 0, 0, 0)
    )
    held = hw.buffers.image.bank_words // words
    most = (held - im2row.kernel_rows) // im2row.stride + 1
    done = 0
    while done < rows:
        image, row = divmod(first + done, im2row.rows)
        count = min(most, rows - done, im2row.rows - row)
        y0, y1, origin = window.span(0, row, count, im2row.in_rows)
        above = image * im2row.in_rows
        yield Piece(done=done, rows=count, first=above + y0, count=y1 - y0, origin=origin)
        done += count


def load_of_rows(im2row: Im2row, rows: int, hw: HwSpec) -> tuple[int, int]:
    """Bytes of the image that are loaded for `rows` im2row rows at once, and cycles of the load
    engine that im2row itself takes.
    """
    loads = pieces(im2row, 0, min(rows, im2row.rows), im2row.words, hw)
    size = sum(piece.count for piece in loads) * im2row.words * hw.word_bytes
    return size, unit_rates.im2row_cycles(im2row.words, rows, im2row.kernel_rows)
