"""Closed-form DRAM traffic and cycles of a tiled layer."""

from msgspec import Struct

from opu_fuse.hw.spec.hw_spec import HwSpec, Mode
from opu_fuse.hw.unit_rates import (
    POST_LOAD_CYCLES,
    hold_cycles,
    im2row_cycles,
    iteration_cycles,
    post_block_cycles,
    post_drain_cycles,
    post_iterations,
    queued_share,
    short_write_cycles,
)
from opu_fuse.layout.shape import Shape
from opu_fuse.lowering.wide_weight_rows import needed_rows
from opu_fuse.tiling.depthwise import depthwise_parts, layer_windows
from opu_fuse.tiling.tile import (
    Span,
    Tile,
    ceil_div,
    cols_per_iteration,
    feature_words,
    image_words,
    input_blocks,
    input_segments,
    kernel_iterations,
    output_blocks,
    output_groups,
    own_rows,
    pre_pool_size,
    sweep_cycles,
)
from opu_fuse.units.array import PARAM_WORDS
from opu_fuse.units.base import Stage

STEP_OVERHEAD = 24
"""Cycles lost per instruction of the compute engine: fill of the row registers and drain of the
pipeline.
"""

PIECE_LATENCY = 60
"""Cycles per piece (a tile of a range of output channels) in which neither the array nor post
computes: drain of both, and tokens.
"""

EXPOSED_DRAM = 0.2
"""Share of the DRAM cycles that is added, since transfers never overlap completely. Of two tiles
that are equally fast, the one that moves fewer bytes is so taken.
"""

_TILES_TRIED = 4
"""Tiles down and across whose stores are counted."""


class Estimate(Struct, frozen=True, kw_only=True):
    """Predicted totals of a layer: cycles in which the compute engine and post work, DRAM bytes
    moved, and cycles of the whole.
    """

    compute_cycles: int
    post_cycles: int
    dram_bytes: int
    total_cycles: float

    def spare(self, hw: HwSpec) -> float:
        """Cycles in which the array is busy, and post and memory are idle."""
        return self.compute_cycles - max(self.post_cycles, self.dram_bytes / hw.dram.rate)


class _Cut(Struct, frozen=True):
    """How a tile cuts its layer.

    tiles: for each range of output channels, those of all images;
    ranges: of output channel blocks;
    blocks: output channel blocks of the layer;
    in_blocks: (first, count) of the input channel blocks that a range reads;
    chunks: feature chunks of these for each part of the kernel;
    parts: of the kernel, a feature chunk each;
    pre_pool: pre-pool rows and columns of an image in a tile.
    """

    tiles: int
    ranges: int
    blocks: int
    in_blocks: Span
    chunks: int
    parts: int
    pre_pool: tuple[int, int]


def estimate(shape: Shape, hw: HwSpec, tile: Tile) -> Estimate:
    """Closed-form cost of a layer cut into tiles of this size.

    Tiles at the borders count as full ones, so the result may be a few % too high.
    """
    hw = tile.sees(hw)
    cut = _cut(shape, hw, tile)
    tiles, blocks, rate = cut.tiles, cut.blocks, hw.dram.rate
    pieces = tiles * cut.ranges
    compute, weight_bytes = _array_cost(shape, hw, tile, cut)
    post = tiles * _post_of_tile(shape, hw, tile, blocks)
    block_bytes, im2row = _read(shape, hw, cut.pre_pool, tile)
    tile_bytes = block_bytes * (blocks if shape.depthwise else cut.parts * cut.in_blocks[1])
    total_bytes = weight_bytes + tiles * tile_bytes * _feature_loads(shape, tile, cut)
    total_bytes += _post_bytes(shape, hw, tile, cut)
    dram = total_bytes / rate
    total = max(compute, post, (compute + post + pieces * PIECE_LATENCY) / hw.buffers.psum.banks)
    if not _is_resident(shape, hw):
        fill = tile_bytes / rate / cut.chunks + im2row
        total = max(total, dram + tiles * im2row) + fill + EXPOSED_DRAM * dram
    if tile.undivided:  # single bank: loads and array do not overlap
        total += dram
    if tile.whole_post:
        total = max(total, post + _post_bytes(shape, hw, tile, cut) / rate)
    return Estimate(
        compute_cycles=compute,
        post_cycles=post,
        dram_bytes=total_bytes,
        total_cycles=_with_stores(total, shape, hw, tile, blocks) + _end(shape, post / pieces),
    )


def _cut(shape: Shape, hw: HwSpec, tile: Tile) -> _Cut:
    blocks = output_blocks(shape, hw)
    rows, cols = pre_pool_size(shape, tile.rows, tile.cols, tile.images)
    if shape.pools_with_halo:
        rows = min(tile.rows * shape.pool_window.strides[0], shape.pre_pool_rows)
    inputs = input_blocks(shape, hw.word_channels, 0, tile.blocks)
    parts = [ceil_div(n, part) for n, part in zip(shape.window.kernel, tile.kernel, strict=True)]
    return _Cut(
        tiles=tile.count(shape),
        ranges=ceil_div(blocks, tile.blocks),
        blocks=blocks,
        in_blocks=inputs,
        chunks=ceil_div(inputs[1], tile.in_blocks),
        parts=parts[0] * parts[1],
        pre_pool=(rows, cols),
    )


def _array_cost(shape: Shape, hw: HwSpec, tile: Tile, cut: _Cut) -> tuple[int, int]:
    """(cycles of the compute engine, bytes of weights that it needs loaded)."""
    tiles, ranges, blocks = cut.tiles, cut.ranges, cut.blocks
    pixels = shape.words(*cut.pre_pool)
    if not shape.array:
        return tiles * tile.images * (blocks * pixels + ranges * STEP_OVERHEAD), 0
    if shape.depthwise:
        parts = depthwise_parts(shape, hw, 0, blocks)
        windows, swept, rows = layer_windows(shape, hw, cut.pre_pool, parts)
        loads = (1 if shape.sums else windows) * (1 if tile.weights_outer else tiles)
        cycles = tiles * tile.images * windows * (ranges * STEP_OVERHEAD + swept)
        return cycles, rows * loads * hw.array.row_bytes
    mode = hw.array.modes[tile.mode]
    rows = weight_rows(shape, mode, hw, cut.in_blocks, blocks) - _saved_rows(shape, hw, tile, cut)
    capacity = ranges * (hw.buffers.weight.bank_words // hw.mode_row_words(mode))
    steps = tiles * tile.images * ranges * max(cut.chunks * cut.parts, ceil_div(rows, capacity))
    sweep = tile.images * sweep_cycles(shape, mode, hw, pixels)
    resident = tiles == 1 or (tile.weights_outer and rows <= capacity)
    loads = 1 if resident else tiles
    if shape.computed:  # every image has weights of its own
        loads *= shape.images if resident else tile.images
    return tiles * rows * sweep + steps * STEP_OVERHEAD, rows * mode.ic * mode.oc * loads


def _saved_rows(shape: Shape, hw: HwSpec, tile: Tile, cut: _Cut) -> int:
    """Weight rows that the last output block saves in a mode of its own (`output_ranges`)."""
    last = cut.blocks - 1
    if cut.chunks * cut.parts > 1 or not last or shape.needed is not None:
        return 0
    rows = own_rows(shape, hw, cut.in_blocks).get(last)
    kernel = kernel_iterations(shape, hw.array.modes[tile.mode], hw)
    return 0 if rows is None else kernel[0] * kernel[1] * (rows[tile.mode] - min(rows.values()))


def _feature_loads(shape: Shape, tile: Tile, cut: _Cut) -> int:
    """How often each input byte of a tile is loaded."""
    if shape.depthwise:  # every range reads its own blocks
        return 1
    input_stationary = cut.chunks == cut.parts == 1 and not tile.weights_outer and shape.array
    return 1 if input_stationary else cut.ranges


def kept_bytes(shape: Shape, hw: HwSpec, tile: Tile) -> int:
    """Bytes of the estimate that are not loaded, since the feature buffer has places for all parts
    of the input (`Places`): every range of output channels after the first finds them there.
    """
    if not hw.dram.is_slow or shape.im2row is not None or tile.undivided:
        return 0
    cut, buffer = _cut(shape, hw, tile), hw.buffers.feature
    words = feature_words(shape, hw, *cut.pre_pool, tile.kernel, tile.images)
    parts, each = cut.tiles * cut.chunks * cut.parts, words * tile.in_blocks
    if parts > buffer.banks * (buffer.bank_words // each):
        return 0
    again = _feature_loads(shape, tile, cut) - 1
    return again * cut.tiles * cut.parts * cut.in_blocks[1] * words * hw.word_bytes


def _post_bytes(shape: Shape, hw: HwSpec, tile: Tile, cut: _Cut) -> int:
    """Bytes that move for post: output, residual operands and pooling halos."""
    tiles, blocks, word = cut.tiles, cut.blocks, hw.word_bytes
    map_bytes = shape.images * blocks * shape.stored_words(shape.out_rows, shape.out_cols) * word
    result = map_bytes * shape.upsample[0] * shape.upsample[1]
    for side in shape.sides:
        if side.broadcast:
            result += tiles * blocks * word
        elif side.before_pool:
            result += tiles * tile.images * blocks * shape.words(*cut.pre_pool) * word
        else:
            result += map_bytes
    if shape.stores_halo(tile.rows):  # stored and loaded
        result += 2 * tiles * blocks * tile.cols * word
    return result


def _end(shape: Shape, post: float) -> float:
    """Cycles in which only post works, on the last tile. post: cycles of a tile.

    Products of a head with several windows (`images`) have none: those of the next head follow.
    """
    return 0.0 if shape.computed and shape.images > 1 else post


def _with_stores(total: float, shape: Shape, hw: HwSpec, tile: Tile, blocks: int) -> float:
    """Cycles of a layer, with those that stores take which permute pixels. total: without them.

    The other engines may wait until such stores are fetched. Those of a few tiles are counted.
    """
    if shape.permute is None:
        return total
    down, across = ceil_div(shape.out_rows, tile.rows), ceil_div(shape.out_cols, tile.cols)
    starts = [
        (row * tile.rows, col * tile.cols)
        for row in range(min(down, _TILES_TRIED))
        for col in range(min(across, _TILES_TRIED))
    ]
    cycles = waits = 0.0
    for row, col in starts:
        rows, cols = min(tile.rows, shape.out_rows - row), min(tile.cols, shape.out_cols - col)
        each = shape.permute.transfers((row, rows, col, cols))
        own = blocks * short_write_cycles(hw, *each)
        cycles += own
        waits += own * (1 - queued_share(hw, blocks * each.instructions))
    share = down * across * shape.images / len(starts)
    return max(total + waits * share, cycles * share)


def weight_rows(shape: Shape, mode: Mode, hw: HwSpec, inputs: tuple[int, int], blocks: int) -> int:
    """Weight rows by which each pixel is multiplied. inputs: (first, count) of channel blocks."""
    kernel_rows, kernel_cols = kernel_iterations(shape, mode, hw)
    segments = input_segments(shape, mode, hw, *inputs)
    dense = segments * kernel_rows * kernel_cols * output_groups(shape, mode, hw, 0, blocks)
    columns = cols_per_iteration(shape, mode, hw)
    return needed_rows(shape, mode, hw, kernel_cols, columns).count(dense)


def _is_resident(shape: Shape, hw: HwSpec) -> bool:
    """Whether input and output of a depthwise layer are both resident.

    Such a layer has no DRAM traffic, which would bound it otherwise.
    """
    blocks = output_blocks(shape, hw)
    pixels = max(shape.in_rows * shape.in_cols, shape.out_rows * shape.out_cols)
    fits = shape.images * blocks * pixels <= hw.buffers.feature.bank_words
    return shape.depthwise and hw.post.keep and fits


def _read(shape: Shape, hw: HwSpec, pre_pool: tuple[int, int], tile: Tile) -> tuple[int, int]:
    """(bytes, im2row cycles) to load a channel block, or an image, of a tile of pre-pool pixels."""
    window, im2row = shape.window, shape.im2row
    if im2row is None:
        words = feature_words(shape, hw, *pre_pool, tile.kernel, tile.images)
        return words * hw.word_bytes, 0
    in_cols = min((pre_pool[1] - 1) * window.strides[1] + window.kernel[1], shape.in_cols)
    words = image_words(shape, hw, in_cols)
    in_rows = min((pre_pool[0] - 1) * im2row.stride + im2row.kernel_rows, im2row.in_rows)
    return in_rows * words * hw.word_bytes, im2row_cycles(words, pre_pool[0], im2row.kernel_rows)


def _post_of_tile(shape: Shape, hw: HwSpec, tile: Tile, blocks: int) -> int:
    """Post cycles for all channel blocks of a tile. blocks: output channel blocks.

    Each pass of a norm, and the results after them, wait for the instruction before to drain.
    """
    count = tile.images * _post_cycles(shape, hw, tile)
    if not shape.passes:
        return blocks * count
    count //= shape.column_parts
    words = max(shape.param_words, PARAM_WORDS)
    period = post_block_cycles(iterations=count, words=words, hold=hold_cycles(hw))
    ends = words + POST_LOAD_CYCLES + post_drain_cycles(hw, (Stage.NORM,))
    stored = shape.stored_words(tile.images * tile.rows, tile.cols)
    results = ceil_div(blocks, max(hw.buffers.output.bank_words // stored, 1))
    parts = shape.column_parts
    instructions = (shape.passes + results) * parts
    others = (1 + shape.passes) * blocks * parts - instructions
    return others * period + instructions * max(ends + count, period)


def _post_cycles(shape: Shape, hw: HwSpec, tile: Tile) -> int:
    """Post cycles for a channel block of an image of a tile."""
    cols = ceil_div(tile.cols, shape.stored_px)
    has_halo = shape.stores_halo(tile.rows)
    result = post_cycles(shape, hw, tile.rows - has_halo, cols, shape.pool_window.kernel[0])
    if has_halo:
        result += halo_load_cycles(shape, hw, cols) + halo_store_cycles(shape, hw, cols)
    return result


def post_cycles(
    shape: Shape, hw: HwSpec, rows: int, cols: int, window: int, *, second_operand: bool = False
) -> int:
    """Post cycles for rows of words in a channel block. window: rows of the pool window."""
    pool = shape.pool_window
    iterations = post_iterations(
        out_rows=rows,
        out_cols=cols,
        window=(window, pool.kernel[1]),
        stride_x=pool.strides[1],
        kind=shape.pool_kind,
    )
    return iterations * iteration_cycles(hw, second_operand=second_operand or bool(shape.sides))


def halo_load_cycles(shape: Shape, hw: HwSpec, cols: int) -> int:
    """Post cycles for the first row of a tile, which starts from the pooling halo."""
    window = shape.pool_window.kernel[0] - shape.halo_rows
    return post_cycles(shape, hw, 1, cols, window, second_operand=True)


def halo_store_cycles(shape: Shape, hw: HwSpec, cols: int) -> int:
    """Post cycles for the pooling halo that a tile stores for its successor."""
    return post_cycles(shape, hw, 1, cols, shape.halo_rows)
