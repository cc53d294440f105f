"""Tiles: their size, what they read, and how a layer is cut into them.

A tile is a rectangle of final pixels times a number of output channel blocks. Its input channels
may be fed in several feature chunks, a chunk's weights in several weight chunks (one
`compute.conv` each).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec import Struct

from opu_fuse.hw.im2row_window import IMAGE_SLOT
from opu_fuse.hw.spec.hw_spec import HwSpec, Mode
from opu_fuse.hw.unit_rates import row_cycles
from opu_fuse.layout.shape import Shape

Span = tuple[int, int]
"""First, count."""


class Rect(NamedTuple):
    """A tile in final pixels, rows through all images of a batch."""

    row: int
    rows: int
    col: int
    cols: int


class PrePoolRect(NamedTuple):
    """The pre-pool pixels of a tile: rows row .. row_end - 1, counted over all images, and columns.

    row_origin, col_origin: start of its first window relative to them (negative in the padding).
    """

    row: int
    row_end: int
    row_origin: int
    col: int
    col_end: int
    col_origin: int

    @property
    def rows(self) -> int:
        return self.row_end - self.row

    @property
    def cols(self) -> int:
        return self.col_end - self.col


class Tile(Struct, frozen=True, kw_only=True):
    """The size of the tiles of a layer and their loop order.

    rows, cols: final pixels;
    blocks: output channel blocks;
    mode: index of the array mode;
    in_blocks: input channel blocks per feature chunk;
    kernel: kernel rows and columns per feature chunk;
    weights_outer: all tiles for one range of output channels before the next range
    (weight-stationary), instead of all channels for one tile (input-stationary);
    images: images of the batch per tile, several only with all their rows;
    undivided: buffers are one bank each (`undivided`);
    whole_post: those of second operands and results alone are one bank each (`POST_BUFFERS`);
    weight_rows: most weight rows of a chunk, where other weights remain in the buffer; 0: those
    that a bank holds.
    """

    rows: int
    cols: int
    blocks: int
    mode: int
    in_blocks: int
    kernel: tuple[int, int]
    weights_outer: bool
    images: int = 1
    undivided: bool = False
    whole_post: bool = False
    weight_rows: int = 0

    @property
    def whole_buffers(self) -> tuple[str, ...]:
        """Names of the buffers that are one bank each."""
        return UNDIVIDED if self.undivided else POST_BUFFERS if self.whole_post else ()

    def sees(self, hw: HwSpec) -> HwSpec:
        """The machine with the banks that its instructions may use."""
        return undivided(hw, self.whole_buffers) if self.whole_buffers else hw

    def count(self, shape: Shape) -> int:
        """Tiles of a layer, of all images, for each range of output channels."""
        rows, cols = ceil_div(shape.out_rows, self.rows), ceil_div(shape.out_cols, self.cols)
        return ceil_div(shape.images, self.images) * rows * cols

    def pieces(self, shape: Shape, hw: HwSpec) -> int:
        """Tiles of a layer in all ranges of output channels."""
        return self.count(shape) * ceil_div(output_blocks(shape, hw), self.blocks)


UNDIVIDED = ("feature", "weight", "residual", "psum", "output")
"""Buffers of which an undivided tile uses all words."""

POST_BUFFERS = ("residual", "output")
"""Buffers of which a tile with a norm of a sum may use all words: all passes of the norm read the
second operands of all channels. The array computes the next tile while these are loaded and
results are stored.
"""


def undivided(hw: HwSpec, names: Sequence[str] = UNDIVIDED) -> HwSpec:
    """The machine with single-bank buffers: larger tiles, but loads wait for the instruction."""
    whole = {name: replace(getattr(hw.buffers, name), banks=1) for name in names}
    return replace(hw, buffers=replace(hw.buffers, **whole))


def ceil_div(a: int, b: int) -> int:
    """Smallest integer >= a / b."""
    return -(-a // b)


def spans(total: int, step: int) -> Iterator[tuple[int, int]]:
    """(start, count) of consecutive pieces of at most `step`."""
    for start in range(0, total, step):
        yield start, min(step, total - start)


def output_blocks(shape: Shape, hw: HwSpec) -> int:
    """Output channel blocks of a layer."""
    return ceil_div(shape.pre_pool_channels, hw.word_channels)


def input_blocks(shape: Shape, lanes: int, first: int, count: int) -> Span:
    """Input channel blocks, at least one, that output blocks first .. first + count - 1 read
    (grouped convolutions skip some).
    """
    if not shape.array:
        return first, count
    if shape.slot < lanes:
        return 0, 1
    per_group_out = shape.pre_pool_channels // shape.groups
    per_group_in = shape.in_channels // shape.groups
    last = min((first + count) * lanes, shape.pre_pool_channels)
    g0, g1 = first * lanes // per_group_out, (last - 1) // per_group_out
    start = g0 * per_group_in // lanes
    return start, ceil_div((g1 + 1) * per_group_in, lanes) - start


def weight_chunks(
    segments: int,
    unit: int,
    kernel: tuple[int, int],
    groups: int,
    capacity: int,
    load: float | None = 0.0,
) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Split segments × kernel × output groups into pieces of at most `capacity` weight rows.

    A piece begins at a multiple of `unit` segments (a feature word), since an instruction starts
    at lane 0. Yields (first segment, segments, first kernel row, rows, first kernel column,
    columns); `groups` rows per position, of which a word's segments fit (`group_pieces`). load:
    cycles in which a row is loaded for each cycle in which one is used; None: as few pieces as
    possible.
    """
    rows, cols = kernel
    unit = min(unit, segments)
    position = groups * unit
    if rows * cols * position <= capacity:
        words = _piece(ceil_div(segments, unit), capacity // (rows * cols * position), load or 0.0)
        for s, n in spans(segments, words * unit):
            yield s, n, 0, rows, 0, cols
        return
    for s, m in spans(segments, unit):
        if load is None:
            down, across = _rectangle(rows, cols, capacity // position)
            for y, n in spans(rows, down):
                for x, count in spans(cols, across):
                    yield s, m, y, n, x, count
        elif cols * position <= capacity:
            for y, n in spans(rows, _piece(rows, capacity // (cols * position), load)):
                yield s, m, y, n, 0, cols
        else:
            most = _piece(cols, capacity // position, load)
            for y in range(rows):
                for x, n in spans(cols, most):
                    yield s, m, y, 1, x, n


def group_pieces(groups: int, segments: int, unit: int, capacity: int) -> Iterator[tuple[int, int]]:
    """(first, count) of even pieces of output groups, as few as possible: the weight rows of the
    segments of a feature word fit for each piece.
    """
    pieces = ceil_div(groups, capacity // min(unit, segments))
    yield from spans(groups, ceil_div(groups, pieces))


def _rectangle(rows: int, cols: int, most: int) -> tuple[int, int]:
    """Rows and columns of the pieces of an even cut into the fewest, of `most` positions each."""

    def pieces(down: int) -> int:
        return ceil_div(rows, down) * ceil_div(cols, most // down)

    down = min(range(1, min(rows, most) + 1), key=pieces)
    across = most // down
    return ceil_div(rows, ceil_div(rows, down)), ceil_div(cols, ceil_div(cols, across))


def _piece(total: int, most: int, load: float) -> int:
    """The largest size of the pieces of a total for which the array does not wait.

    A whole piece is loaded while the remainder is used. If the array waits anyway, the size is
    `most`.
    """
    sizes = range(min(most, total), 0, -1)
    return next((n for n in sizes if load * n <= (total % n or n)), most)


def cols_per_iteration(shape: Shape, mode: Mode, hw: HwSpec) -> int:
    """Kernel columns that one column iteration covers.

    Neighbouring pixels of a packed word fill the lanes that the channels leave unused. For im2row
    maps it is the whole kernel, although that takes several iterations.
    """
    if shape.im2row is not None:
        return shape.window.kernel[1]
    if not shape.array or shape.slot == hw.word_bytes or shape.window.dilations[1] != 1:
        return 1
    return min(max(1, mode.ic // shape.slot), shape.window.kernel[1])


def sweep_cycles(shape: Shape, mode: Mode, hw: HwSpec, words: int) -> int:
    """Array cycles in which a weight row is multiplied by the pixels of so many words."""
    return shape.sweeps(mode) * row_cycles(hw, words * mode.px, mode.px)


def kernel_iterations(shape: Shape, mode: Mode, hw: HwSpec) -> tuple[int, int]:
    """Kernel rows and column iterations."""
    kernel = shape.window.kernel
    return kernel[0], col_iterations(shape, mode, hw, kernel[1])


def col_iterations(shape: Shape, mode: Mode, hw: HwSpec, columns: int) -> int:
    """Iterations that cover `columns` kernel columns of a row."""
    if shape.im2row is not None:
        return ceil_div(columns * shape.slot, mode.ic)
    return ceil_div(columns, cols_per_iteration(shape, mode, hw))


def segments_per_block(mode: Mode, hw: HwSpec) -> int:
    """Input channel segments of a feature word."""
    return hw.word_channels // mode.ic


def groups_per_block(mode: Mode, hw: HwSpec) -> int:
    """Output channel groups of a partial-sum word."""
    return hw.word_channels // mode.oc


def first_group(shape: Shape, mode: Mode, hw: HwSpec, block: int) -> int:
    """The first output channel group of blocks from `block` on that holds real channels."""
    return max(block * hw.word_channels, shape.first_lane) // mode.oc


def output_groups(shape: Shape, mode: Mode, hw: HwSpec, first: int, count: int) -> int:
    """Output channel groups of blocks first .. first + count - 1 that hold real channels."""
    end = min((first + count) * hw.word_channels, shape.pre_pool_channels)
    return ceil_div(end, mode.oc) - first_group(shape, mode, hw, first)


def input_segments(shape: Shape, mode: Mode, hw: HwSpec, first: int, count: int) -> int:
    """Input channel segments of blocks first .. first + count - 1 that hold real channels."""
    return sum(several for _, several in segment_runs(shape, mode, hw, first, count))


def own_rows(shape: Shape, hw: HwSpec, inputs: Span) -> dict[int, dict[int, int]]:
    """Weight rows of each mode, by output block, for blocks that may have a mode of their own: the
    first and the last, where partly empty. inputs: (first, count) of the channel blocks read.
    """
    plain = shape.array and not shape.depthwise and shape.slot == hw.word_bytes and shape.px == 1
    if not plain or shape.computed:
        return {}
    last = output_blocks(shape, hw) - 1
    ends = {0: shape.first_lane, last: shape.pre_pool_channels % hw.word_channels}
    return {
        block: {
            index: input_segments(shape, mode, hw, *inputs)
            * output_groups(shape, mode, hw, block, 1)
            for index, mode in enumerate(hw.array.modes)
            if mode.px == 1
        }
        for block, partial in ends.items()
        if partial
    }


def segment_runs(shape: Shape, mode: Mode, hw: HwSpec, first: int, count: int) -> Iterator[Span]:
    """(first, count) of neighbouring input channel segments that hold real channels, of blocks
    first .. first + count - 1. Segments are absolute.
    """
    width = hw.word_channels
    begin, end = first * width, min((first + count) * width, shape.in_channels)
    if shape.slot < hw.word_bytes:
        yield begin // mode.ic, 1
        return
    start = stop = 0
    for lane, lanes in shape.in_runs or ((0, shape.in_channels),):
        low, high = max(lane, begin) // mode.ic, ceil_div(min(lane + lanes, end), mode.ic)
        if low >= high:
            continue
        if low > stop > start:
            yield start, stop - start
        if low > stop or stop == start:
            start = low
        stop = high
    if stop > start:
        yield start, stop - start


def pre_pool_rect(shape: Shape, rect: Rect) -> PrePoolRect:
    """The pre-pool pixels from which a tile is computed.

    The origins are those of the first image; a tile of several images has all their pixels.
    """
    row, rows, col, cols = rect
    if not shape.pool:
        return PrePoolRect(row, row + rows, 0, col, col + cols, 0)
    x = shape.pool_window.span(1, col, cols, shape.pre_pool_cols)
    image, first = divmod(row, shape.out_rows)
    above = image * shape.pre_pool_rows
    count = images_of(shape, rows)
    if count > 1:
        return PrePoolRect(
            above, above + count * shape.pre_pool_rows, -shape.pool_window.pads[0], *x
        )
    start, stop, origin = shape.pool_window.span(0, first, rows, shape.pre_pool_rows)
    if shape.reads_halo(row):
        start, origin = start + origin + shape.halo_rows, -shape.halo_rows
    return PrePoolRect(above + start, above + stop, origin, *x)


def images_of(shape: Shape, rows: int) -> int:
    """Images of a batch that a tile of `rows` final rows covers, 1 for a part of one."""
    return max(1, rows // shape.out_rows)


def row_words(cols: int, slot: int, word: int) -> int:
    """Feature words of a row of `cols` pixels that starts a word."""
    return ceil_div(cols * slot, word)


def pre_pool_size(shape: Shape, rows: int, cols: int, images: int = 1) -> tuple[int, int]:
    """Most pre-pool rows and columns of an image in a tile; all rows if it has several images."""
    pool = shape.pool_window
    tall = (rows - 1) * pool.strides[0] + pool.kernel[0]
    if shape.pools_with_halo:  # the first tile has padding above, no other tile
        tall = max(tall - pool.pads[0], rows * pool.strides[0])
    return (
        shape.pre_pool_rows if images > 1 else min(tall, shape.pre_pool_rows),
        min((cols - 1) * pool.strides[1] + pool.kernel[1], shape.pre_pool_cols),
    )


def feature_words(
    shape: Shape, hw: HwSpec, rows: int, cols: int, kernel: tuple[int, int], images: int = 1
) -> int:
    """Upper bound of the feature words of one channel block under rows × cols pre-pool pixels
    and a part of the kernel; several images have all their rows.
    """
    w = shape.window
    in_rows = min((rows - 1) * w.strides[0] + (kernel[0] - 1) * w.dilations[0] + 1, shape.in_rows)
    if images > 1 and not shape.unit:
        in_rows = images * shape.in_rows
    in_cols = min((cols - 1) * w.strides[1] + (kernel[1] - 1) * w.dilations[1] + 1, shape.in_cols)
    slot, word = shape.slot, hw.word_bytes
    if shape.im2row is not None:
        return in_rows * shape.im2row.row_words(image_words(shape, hw, in_cols))
    words = row_words(in_cols + word // slot - 1, slot, word)  # a row may start anywhere in a word
    return in_rows * min(words, row_words(shape.in_cols, slot, word))


def image_words(shape: Shape, hw: HwSpec, cols: int) -> int:
    """Upper bound of the image words of a row that hold `cols` columns."""
    assert shape.im2row is not None
    words = row_words(cols + hw.word_bytes // IMAGE_SLOT - 1, IMAGE_SLOT, hw.word_bytes)
    return min(words, shape.im2row.words)
