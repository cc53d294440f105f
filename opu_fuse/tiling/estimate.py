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
    row_cycles,
    short_write_cycles,
)
from opu_fuse.layout.shape import Shape
from opu_fuse.lowering.wide_weight_rows import needed_rows
from opu_fuse.tiling.depthwise import depthwise_parts, layer_windows
from opu_fuse.tiling.tile import (
    Tile,
    ceil_div,
    cols_per_iteration,
    feature_words,
    image_words,
    input_blocks,
    input_segments,
    kernel_iterations,
    output_groups,
    pre_pool_size,
)
from opu_fuse.units.array import PARAM_WORDS
from opu_fuse.units.base import Stage

STEP_OVERHEAD = 24
"""Cycles lost per instruction of the compute engine: fill of the row registers and drain of the
pipeline.
"""


PIECE_LATENCY = 60
"""Cycles per piece in which neither the array nor post computes: drain of both, and tokens."""


_TILES_TRIED = 4
"""Tiles down and across whose stores are counted."""


class Estimate(Struct, frozen=True, kw_only=True):
    """Predicted totals of a layer: cycles of array, DRAM and post, bytes moved, and their
    combination.
    """

    compute_cycles: int
    post_cycles: int
    dram_bytes: int
    total_cycles: float

    def spare(self, hw: HwSpec) -> float:
        """Cycles in which the array is busy, and post and memory are idle."""
        return self.compute_cycles - max(self.post_cycles, self.dram_bytes / hw.dram.rate)


def estimate(shape: Shape, hw: HwSpec, tile: Tile) -> Estimate:
    """Closed-form cost of a layer cut into `tile`s (borders counted as full tiles' shares, so it
    is a bound within a few %).
    """
    hw, mode = tile.sees(hw), hw.array.modes[tile.mode]
    lanes, word = hw.word_channels, hw.word_bytes
    blocks = ceil_div(shape.pre_pool_channels, lanes)
    tiles, ranges = tile.count(shape), ceil_div(blocks, tile.blocks)
    pool = shape.pool_window
    pre_pool_rows, pre_pool_cols = pre_pool_size(shape, tile.rows, tile.cols, tile.images)
    if shape.pools_with_halo:
        pre_pool_rows = min(tile.rows * pool.strides[0], shape.pre_pool_rows)
    pixels = shape.words(pre_pool_rows, pre_pool_cols)
    first, last = input_blocks(shape, lanes, 0, tile.blocks)
    in_blocks = last - first
    chunks = ceil_div(in_blocks, tile.in_blocks)
    kernel = tile.kernel
    parts = ceil_div(shape.window.kernel[0], kernel[0])
    parts *= ceil_div(shape.window.kernel[1], kernel[1])
    if shape.depthwise:
        word_parts = depthwise_parts(shape, hw, 0, blocks)
        windows, swept, rows = layer_windows(shape, hw, (pre_pool_rows, pre_pool_cols), word_parts)
        compute = tiles * tile.images * windows * (ranges * STEP_OVERHEAD + swept)
        loaded = (1 if shape.sums else windows) * (1 if tile.weights_outer else tiles)
        weight_bytes = rows * loaded * hw.array.row_bytes
    elif shape.array:
        rows_all = _weight_rows(shape, mode, hw, (first, in_blocks), blocks)
        capacity = hw.buffers.weight.bank_words // hw.mode_row_words(mode)
        steps = tiles * tile.images * ranges
        steps *= max(chunks * parts, ceil_div(rows_all, capacity * ranges))
        sweep = tile.images * row_cycles(hw, pixels * shape.px, shape.px)
        compute = tiles * rows_all * sweep + steps * STEP_OVERHEAD
        weights = rows_all * mode.ic * mode.oc
        resident = tile.weights_outer and rows_all <= capacity * ranges
        own, each = (shape.images, tile.images) if shape.computed else (1, 1)  # of each image
        weight_bytes = weights * (own if resident or tiles == 1 else tiles * each)
    else:
        compute = tiles * tile.images * (blocks * pixels + ranges * STEP_OVERHEAD)
        weight_bytes = 0
    per_block, im2row = _read(shape, hw, (pre_pool_rows, pre_pool_cols), kernel, tile.images)
    pieces = tiles * ranges
    tile_bytes = per_block * parts * in_blocks
    input_stationary = chunks == 1 and parts == 1 and not tile.weights_outer and shape.array
    if shape.depthwise:  # every range reads its own blocks
        tile_bytes, ranges = per_block * blocks, 1
    feature_bytes = tiles * tile_bytes * (1 if input_stationary or ranges == 1 else ranges)
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
    halo_bytes = 0
    if shape.stores_halo(tile.rows):  # stored and loaded
        halo_bytes = 2 * tiles * blocks * tile.cols * word
    total_bytes = weight_bytes + feature_bytes + out_bytes + res_bytes + halo_bytes
    post = tiles * _post_of_tile(shape, hw, tile, blocks)
    dram = total_bytes / hw.dram.rate
    total = max(
        compute,
        post,
        (compute + post + pieces * PIECE_LATENCY) / hw.buffers.psum.banks,
    )
    if not _is_resident(shape, hw):
        fill = tile_bytes / hw.dram.rate / max(1, chunks) + im2row
        total = max(total, dram + tiles * im2row) + fill + 0.2 * dram
    if tile.undivided:  # single bank: loads and array do not overlap
        total += dram
    return Estimate(
        compute_cycles=compute,
        post_cycles=post,
        dram_bytes=total_bytes,
        total_cycles=_with_stores(total, shape, hw, tile, blocks) + _end(shape, post / pieces),
    )


def _end(shape: Shape, post: float) -> float:
    """Cycles in which only post works, on the last tile: not for heads of windows, of which the
    next one follows. post: cycles of a tile.
    """
    return 0.0 if shape.computed and shape.images > 1 else post


def _with_stores(total: float, shape: Shape, hw: HwSpec, tile: Tile, blocks: int) -> float:
    """Cycles of a layer whose stores permute pixels: the other engines may wait until these are
    fetched. The stores of a few tiles are counted.
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


def _weight_rows(shape: Shape, mode: Mode, hw: HwSpec, inputs: tuple[int, int], blocks: int) -> int:
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
    blocks = ceil_div(shape.pre_pool_channels, hw.word_channels)
    pixels = max(shape.in_rows * shape.in_cols, shape.out_rows * shape.out_cols)
    fits = shape.images * blocks * pixels <= hw.buffers.feature.bank_words
    return shape.depthwise and hw.post.keep and fits


def _read(
    shape: Shape, hw: HwSpec, pre_pool: tuple[int, int], kernel: tuple[int, int], images: int
) -> tuple[int, int]:
    """(bytes, im2row cycles) to load a channel block, or an image, of a tile of pre-pool pixels."""
    window, im2row = shape.window, shape.im2row
    if im2row is None:
        return feature_words(shape, hw, *pre_pool, kernel, images) * hw.word_bytes, 0
    in_cols = min((pre_pool[1] - 1) * window.strides[1] + window.kernel[1], shape.in_cols)
    words = image_words(shape, hw, in_cols)
    in_rows = min((pre_pool[0] - 1) * im2row.stride + im2row.kernel_rows, im2row.in_rows)
    return in_rows * words * hw.word_bytes, im2row_cycles(words, pre_pool[0], im2row.kernel_rows)


def _post_of_tile(shape: Shape, hw: HwSpec, tile: Tile, blocks: int) -> int:
    """Post cycles for all channel blocks of a tile. Instructions of a norm wait for each other."""
    count = tile.images * _post_cycles(shape, hw, tile)
    if not shape.passes:
        return blocks * count
    words = max(shape.param_words, PARAM_WORDS)
    period = post_block_cycles(iterations=count, words=words, hold=hold_cycles(hw))
    ends = words + POST_LOAD_CYCLES + post_drain_cycles(hw, (Stage.NORM,))
    stored = shape.stored_words(tile.images * tile.rows, tile.cols)
    results = ceil_div(blocks, max(hw.buffers.output.bank_words // stored, 1))
    instructions = shape.passes + results
    others = (1 + shape.passes) * blocks - instructions
    return others * period + instructions * max(ends + count, period)


def _post_cycles(shape: Shape, hw: HwSpec, tile: Tile) -> int:
    """Post cycles for a channel block of a tile."""
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
