"""Which tiles fit, what they move, and how long they take: closed forms.

A tile is a rectangle of final pixels times a number of output channel blocks. Its input channels
may be fed in several feature chunks, a chunk's weights in several weight chunks (one
`compute.conv` each).
"""

from collections.abc import Iterator

from msgspec import Struct

from opu_fuse.cost.further import needed_rows
from opu_fuse.cost.windows import depthwise_parts, layer_windows
from opu_fuse.hw.spec import HwSpec, Mode
from opu_fuse.hw.timing import (
    post_visits,
    row_cycles,
    unfold_cycles,
    visit_cycles,
)
from opu_fuse.hw.unfolding import IMAGE_SLOT
from opu_fuse.layout.shape import Shape

Span = tuple[int, int]
"""First, count."""

STEP_OVERHEAD = 24
"""Cycles lost per instruction of the compute engine: fill of the row registers and drain of the
pipeline.
"""


PIECE_LATENCY = 60
"""Cycles in which neither the array nor post works for a piece: drain of both, and tokens."""


class Tile(Struct, frozen=True, kw_only=True):
    """rows, cols: final pixels; blocks: output channel blocks; mode: index of the array mode;
    in_blocks: input channel blocks per feature chunk; kernel: kernel rows and columns per
    feature chunk; weights_outer: walk all tiles for one range of output channels before the next
    range (weights stay) instead of all channels for one tile (features stay); images: of a batch,
    several only with all their rows.
    """

    rows: int
    cols: int
    blocks: int
    mode: int
    in_blocks: int
    kernel: tuple[int, int]
    weights_outer: bool
    images: int = 1


def ceil_div(a: int, b: int) -> int:
    """Smallest integer >= a / b."""
    return -(-a // b)


def spans(total: int, step: int) -> Iterator[tuple[int, int]]:
    """(start, count) of consecutive pieces of at most `step`."""
    for start in range(0, total, step):
        yield start, min(step, total - start)


def input_blocks(shape: Shape, lanes: int, first: int, count: int) -> tuple[int, int]:
    """Input channel blocks [start, stop) that output blocks first .. first + count - 1 read
    (grouped convolutions skip some).
    """
    if not shape.array:
        return first, first + count
    if shape.slot < lanes:
        return 0, 1
    per_group_out = shape.mid_channels // shape.groups
    per_group_in = shape.in_channels // shape.groups
    last = min((first + count) * lanes, shape.mid_channels)
    g0, g1 = first * lanes // per_group_out, (last - 1) // per_group_out
    return g0 * per_group_in // lanes, ceil_div((g1 + 1) * per_group_in, lanes)


def weight_chunks(
    segments: int, unit: int, kernel: tuple[int, int], groups: int, capacity: int, load: float = 0.0
) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Split segments × kernel × output groups into pieces of at most `capacity` weight rows.

    A piece begins at a multiple of `unit` segments (a feature word), since an instruction starts
    at lane 0. Yields (first segment, segments, first kernel row, rows, first kernel column,
    columns); `groups` rows per position. load: cycles in which a row is loaded for each cycle in
    which one is used.
    """
    rows, cols = kernel
    unit = min(unit, segments)
    position = groups * unit
    if rows * cols * position <= capacity:
        words = _piece(ceil_div(segments, unit), capacity // (rows * cols * position), load)
        for s, n in spans(segments, words * unit):
            yield s, n, 0, rows, 0, cols
        return
    for s, m in spans(segments, unit):
        if cols * position <= capacity:
            for y, n in spans(rows, _piece(rows, capacity // (cols * position), load)):
                yield s, m, y, n, 0, cols
        else:
            most = _piece(cols, capacity // position, load)
            for y in range(rows):
                for x, n in spans(cols, most):
                    yield s, m, y, 1, x, n


def _piece(total: int, most: int, load: float) -> int:
    """Sizes of even pieces of a total, the largest for which the array does not wait: a whole one
    is loaded while the rest is used. Where it waits anyway, the most.
    """
    sizes = range(min(most, total), 0, -1)
    return next((n for n in sizes if load * n <= (total % n or n)), most)


def unfold(shape: Shape, mode: Mode, hw: HwSpec) -> int:
    """Kernel columns that one visit covers: neighbouring pixels of a slotted word fill the lanes
    that the channels leave free. Of unfolded rows all of the kernel, in several visits.
    """
    if shape.unfolded is not None:
        return shape.window.kernel[1]
    if not shape.array or shape.slot == hw.word_bytes or shape.window.dilations[1] != 1:
        return 1
    return min(max(1, mode.ic // shape.slot), shape.window.kernel[1])


def visits(shape: Shape, mode: Mode, hw: HwSpec) -> tuple[int, int]:
    """Kernel rows and column visits."""
    kernel = shape.window.kernel
    return kernel[0], col_visits(shape, mode, hw, kernel[1])


def col_visits(shape: Shape, mode: Mode, hw: HwSpec, columns: int) -> int:
    """Visits that cover so many kernel columns of a row."""
    if shape.unfolded is not None:
        return ceil_div(columns * shape.slot, mode.ic)
    return ceil_div(columns, unfold(shape, mode, hw))


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
    end = min((first + count) * hw.word_channels, shape.mid_channels)
    return ceil_div(end, mode.oc) - first_group(shape, mode, hw, first)


def input_segments(shape: Shape, mode: Mode, hw: HwSpec, first: int, count: int) -> int:
    """Input channel segments of blocks first .. first + count - 1 that hold real channels."""
    if shape.slot < hw.word_bytes:
        return 1
    channels = min((first + count) * hw.word_channels, shape.in_channels) - first * hw.word_channels
    return ceil_div(channels, mode.ic)


def mid_tile(
    shape: Shape, row: int, rows: int, col: int, cols: int
) -> tuple[int, int, int, int, int, int]:
    """Mid rectangle under final rows and columns: (row0, row1, row origin, col0, col1, col
    origin). Rows are counted through all images of a batch, the origin is that of the first; of
    several images everything is made.
    """
    if not shape.pool:
        return row, row + rows, 0, col, col + cols, 0
    x = shape.pool_window.span(1, col, cols, shape.mid_cols)
    image, first = divmod(row, shape.out_rows)
    above = image * shape.mid_rows
    count = images_of(shape, rows)
    if count > 1:
        return above, above + count * shape.mid_rows, -shape.pool_window.pads[0], *x
    start, stop, origin = shape.pool_window.span(0, first, rows, shape.mid_rows)
    if shape.carried_to(row):
        start, origin = start + origin + shape.carried, -shape.carried
    return above + start, above + stop, origin, *x


def images_of(shape: Shape, rows: int) -> int:
    """Images of a batch that a tile of so many final rows is made of, 1 for a part of one."""
    return max(1, rows // shape.out_rows)


def row_words(cols: int, slot: int, word: int) -> int:
    """Feature words of a row of `cols` pixels that starts a word."""
    return ceil_div(cols * slot, word)


def mid_size(shape: Shape, rows: int, cols: int, images: int = 1) -> tuple[int, int]:
    """Most mid rows and columns of an image under a tile; all rows where it has several images."""
    pool = shape.pool_window
    tall = (rows - 1) * pool.strides[0] + pool.kernel[0]
    if shape.carries:  # the first tile has no other above, but padding
        tall = max(tall - pool.pads[0], rows * pool.strides[0])
    return (
        shape.mid_rows if images > 1 else min(tall, shape.mid_rows),
        min((cols - 1) * pool.strides[1] + pool.kernel[1], shape.mid_cols),
    )


def feature_words(
    shape: Shape, hw: HwSpec, rows: int, cols: int, kernel: tuple[int, int], images: int = 1
) -> int:
    """Upper bound of the feature words of one channel block under rows × cols mid pixels and a
    part of the kernel; of several images with all rows.
    """
    w = shape.window
    in_rows = min((rows - 1) * w.strides[0] + (kernel[0] - 1) * w.dilations[0] + 1, shape.in_rows)
    if images > 1:
        in_rows = images * shape.in_rows
    in_cols = min((cols - 1) * w.strides[1] + (kernel[1] - 1) * w.dilations[1] + 1, shape.in_cols)
    slot, word = shape.slot, hw.word_bytes
    if shape.unfolded is not None:
        return in_rows * shape.unfolded.row_words(image_words(shape, hw, in_cols))
    words = row_words(in_cols + word // slot - 1, slot, word)  # a row may start anywhere in a word
    return in_rows * min(words, row_words(shape.in_cols, slot, word))


def image_words(shape: Shape, hw: HwSpec, cols: int) -> int:
    """Upper bound of the image words of a row that so many columns lie in."""
    assert shape.unfolded is not None
    words = row_words(cols + hw.word_bytes // IMAGE_SLOT - 1, IMAGE_SLOT, hw.word_bytes)
    return min(words, shape.unfolded.words)


class Estimate(Struct, frozen=True, kw_only=True):
    """Predicted totals of a layer: cycles of array, DRAM and post, bytes moved, and their
    combination.
    """

    compute_cycles: int
    post_cycles: int
    dram_bytes: int
    total_cycles: float


def estimate(shape: Shape, hw: HwSpec, tile: Tile) -> Estimate:
    """Closed-form cost of a layer cut into `tile`s (borders counted as full tiles' shares, so it
    is a bound within a few %).
    """
    mode = hw.array.modes[tile.mode]
    lanes, word = hw.word_channels, hw.word_bytes
    blocks = ceil_div(shape.mid_channels, lanes)
    tiles = ceil_div(shape.images, tile.images)
    tiles *= ceil_div(shape.out_rows, tile.rows) * ceil_div(shape.out_cols, tile.cols)
    ranges = ceil_div(blocks, tile.blocks)
    pool = shape.pool_window
    mid_rows, mid_cols = mid_size(shape, tile.rows, tile.cols, tile.images)
    if shape.carries:
        mid_rows = min(tile.rows * pool.strides[0], shape.mid_rows)
    pixels = shape.words(mid_rows, mid_cols)
    first, last = input_blocks(shape, lanes, 0, tile.blocks)
    in_blocks = last - first
    chunks = ceil_div(in_blocks, tile.in_blocks)
    if shape.depthwise:
        parts = depthwise_parts(shape, hw, 0, blocks)
        windows, swept, rows = layer_windows(shape, hw, (mid_rows, mid_cols), parts)
        compute = tiles * tile.images * windows * (ranges * STEP_OVERHEAD + swept)
        loaded = (1 if shape.sums else windows) * (1 if tile.weights_outer else tiles)
        weight_bytes = rows * loaded * hw.array.row_bytes
    elif shape.array:
        kernel_rows, kernel_visits = visits(shape, mode, hw)
        positions = kernel_rows * kernel_visits
        segments = input_segments(shape, mode, hw, first, in_blocks)
        rows_all = segments * positions * output_groups(shape, mode, hw, 0, blocks)
        further = needed_rows(shape, mode, hw, kernel_visits, unfold(shape, mode, hw))
        rows_all += sum(int(rows.sum()) for rows in further)
        capacity = hw.buffers.weight.bank_words // hw.mode_row_words(mode)
        steps = tiles * tile.images * ranges * max(chunks, ceil_div(rows_all, capacity * ranges))
        sweep = tile.images * row_cycles(hw, pixels * shape.px, shape.px)
        compute = tiles * rows_all * sweep + steps * STEP_OVERHEAD
        weights = rows_all * mode.ic * mode.oc
        resident = tile.weights_outer and rows_all <= capacity * ranges
        weight_bytes = weights * (1 if resident or tiles == 1 else tiles)
    else:
        compute = tiles * tile.images * (blocks * pixels + ranges * STEP_OVERHEAD)
        weight_bytes = 0
    kernel = tile.kernel
    parts = ceil_div(shape.window.kernel[0], kernel[0]) * ceil_div(
        shape.window.kernel[1], kernel[1]
    )
    per_block, unfolding = _read(shape, hw, (mid_rows, mid_cols), kernel, tile.images)
    pieces = tiles * ranges
    one = per_block * parts * in_blocks
    stay = chunks == 1 and parts == 1 and not tile.weights_outer and shape.array
    if shape.depthwise:  # every range reads its own blocks
        one, ranges = per_block * blocks, 1
    feature_bytes = tiles * one * (1 if stay or ranges == 1 else ranges)
    map_bytes = shape.images * blocks * shape.stored_words(shape.out_rows, shape.out_cols) * word
    out_bytes = map_bytes * shape.upsample[0] * shape.upsample[1]
    res_bytes = sum(
        tiles * blocks * word
        if side.broadcast
        else tiles * tile.images * blocks * pixels * word
        if side.before_pool
        else map_bytes
        for side in shape.sides
    )
    carried_bytes = 0
    if shape.leaves_maxima(tile.rows):  # stored and loaded
        carried_bytes = 2 * tiles * blocks * tile.cols * word
    total_bytes = weight_bytes + feature_bytes + out_bytes + res_bytes + carried_bytes
    post = tiles * tile.images * blocks * _post_cycles(shape, hw, tile)
    dram = total_bytes / hw.dram.rate
    total = max(
        compute,
        post,
        (compute + post + pieces * PIECE_LATENCY) / hw.buffers.psum.banks,
    )
    if not _stays(shape, hw):
        fill = one / hw.dram.rate / max(1, chunks) + unfolding
        total = max(total, dram + tiles * unfolding) + fill + 0.2 * dram
    return Estimate(
        compute_cycles=compute,
        post_cycles=post,
        dram_bytes=total_bytes,
        total_cycles=total + post / pieces,
    )


def _stays(shape: Shape, hw: HwSpec) -> bool:
    """Whether a depthwise layer finds on chip what it reads, and leaves there what it makes: both
    fit, so memory, which bounds it otherwise, has nothing to do with it.
    """
    blocks = ceil_div(shape.mid_channels, hw.word_channels)
    pixels = max(shape.in_rows * shape.in_cols, shape.out_rows * shape.out_cols)
    fits = shape.images * blocks * pixels <= hw.buffers.feature.bank_words
    return shape.depthwise and hw.post.keep and fits


def _read(
    shape: Shape, hw: HwSpec, mid: tuple[int, int], kernel: tuple[int, int], images: int
) -> tuple[int, int]:
    """Bytes of a channel block, or of an image, under a tile of mid pixels; cycles of load while it
    unfolds them.
    """
    window, unfolded = shape.window, shape.unfolded
    if unfolded is None:
        return feature_words(shape, hw, *mid, kernel, images) * hw.word_bytes, 0
    in_cols = min((mid[1] - 1) * window.strides[1] + window.kernel[1], shape.in_cols)
    words = image_words(shape, hw, in_cols)
    in_rows = min((mid[0] - 1) * unfolded.stride + unfolded.kernel_rows, unfolded.in_rows)
    return in_rows * words * hw.word_bytes, unfold_cycles(words, mid[0], unfolded.kernel_rows)


def _post_cycles(shape: Shape, hw: HwSpec, tile: Tile) -> int:
    """Of post for a channel block of a tile."""
    cols = ceil_div(tile.cols, shape.stored_px)
    carried = shape.leaves_maxima(tile.rows)
    found = post_cycles(shape, hw, tile.rows - carried, cols, shape.pool_window.kernel[0])
    if carried:
        found += carried_cycles(shape, hw, cols) + left_cycles(shape, hw, cols)
    return found


def post_cycles(
    shape: Shape, hw: HwSpec, rows: int, cols: int, window: int, *, second_operand: bool = False
) -> int:
    """Of post for rows of words in a channel block, the windows so many rows high."""
    pool = shape.pool_window
    visited = post_visits(
        out_rows=rows,
        out_cols=cols,
        window=(window, pool.kernel[1]),
        stride_x=pool.strides[1],
        kind=shape.pool_kind,
    )
    return visited * visit_cycles(hw, second_operand=second_operand or bool(shape.sides))


def carried_cycles(shape: Shape, hw: HwSpec, cols: int) -> int:
    """The same for a tile's first row, of which the tile above has found some maxima."""
    window = shape.pool_window.kernel[0] - shape.carried
    return post_cycles(shape, hw, 1, cols, window, second_operand=True)


def left_cycles(shape: Shape, hw: HwSpec, cols: int) -> int:
    """The same for the maxima that a tile finds for the one below."""
    return post_cycles(shape, hw, 1, cols, shape.carried)
