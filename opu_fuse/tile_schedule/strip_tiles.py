"""The tile of a layer in a fused stack."""

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.tiling.candidates import loop_orders, overflow
from opu_fuse.tiling.tile import Tile, ceil_div, input_blocks, output_blocks, pre_pool_size


def strip_tile(shape: Shape, most: int, hw: HwSpec) -> Tile | None:
    """Choose the tile of a layer in a fused stack; None if one row of one channel block overflows.

    All channels and columns are preferred, then as many rows as fit, in even parts.
    """
    if shape.whole_map:
        return None  # its strips are no maps
    total = output_blocks(shape, hw)
    wide = ceil_div(shape.out_cols, shape.px)
    for parts in range(1, wide + 1):
        cols = min(ceil_div(wide, parts) * shape.px, shape.out_cols)
        for count in range(1, 2 if shape.passes else total + 1):
            blocks = ceil_div(total, count)
            fits = (r for r in range(most, 0, -1) if not _overflows(shape, hw, (r, cols), blocks))
            rows = next(fits, None)
            if rows is not None:
                return _tile(shape, ceil_div(most, ceil_div(most, rows)), cols, blocks, hw)
    return None


def _overflows(shape: Shape, hw: HwSpec, size: tuple[int, int], blocks: int) -> bool:
    pre_pool = pre_pool_size(shape, *size)
    return overflow(shape, hw, size, pre_pool, blocks, stacked=True) is not None


def _tile(shape: Shape, rows: int, cols: int, blocks: int, hw: HwSpec) -> Tile:
    _, inputs = input_blocks(shape, hw.word_channels, 0, blocks)
    at_once = blocks if shape.depthwise or not shape.array else inputs
    if shape.pre and hw.buffers.pre is not None:
        at_once = min(at_once, hw.buffers.pre.bank_words // shape.pre_words)
    mode, _ = next(loop_orders(shape, hw, blocks))
    return Tile(
        rows=rows,
        cols=cols,
        blocks=blocks,
        mode=mode,
        in_blocks=at_once,
        kernel=shape.window.kernel,
        weights_outer=False,
    )
