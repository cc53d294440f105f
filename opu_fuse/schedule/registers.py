"""Register values that follow from geometry alone: transfer shapes, parts of a post tile."""

from collections.abc import Iterator, Mapping

from opu_fuse.cost.tiles import ceil_div
from opu_fuse.hw.isa import unit_register
from opu_fuse.schedule.layer import Layer


def transfer_shape(
    run: int, rows: int, row_pitch: int, blocks: int, block_pitch: int, *, joins: bool = True
) -> dict[str, int]:
    """Transfer registers; with `joins`, rows and blocks that follow each other become longer runs
    (of 16 bits).
    """
    if joins and rows > 1 and run == row_pitch and run * rows < 1 << 16:
        run, rows = run * rows, 1
    if joins and blocks > 1 and rows == 1 and run == block_pitch and run * blocks < 1 << 16:
        run, blocks = run * blocks, 1
    return {
        "run": run,
        "rows": rows,
        "row_pitch": row_pitch,
        "blocks": blocks,
        "block_pitch": block_pitch,
    }


def sub_rectangle(
    layer: Layer,
    common: Mapping[str, int],
    mid: tuple[int, int, int, int, int, int],
    y: int,
    x: int,
    cols: int,
) -> dict[str, int]:
    """Window origin and residual addresses of the outputs that begin at (y, x) of the tile."""
    pool = layer.shape.pool_window
    found = {
        "origin_y": mid[2] + y * pool.strides[0],
        "origin_x": mid[5] + x * pool.strides[1],
        "stride_y": pool.strides[0],
        "stride_x": pool.strides[1],
        "win_rows": pool.kernel[0],
        "win_cols": pool.kernel[1],
    }
    for unit, side in zip(layer.residual_units, layer.shape.sides, strict=True):
        if not (side.before_pool or side.broadcast):
            name = unit_register("res", unit)
            found[name] = common[name] + y * cols + x
    return found


def side_tiles(
    layer: Layer, rect: tuple[int, int, int, int], mid: tuple[int, int, int, int, int, int]
) -> Iterator[tuple[int, tuple[int, int], tuple[int, int]]]:
    """(unit, (first row, rows), (first word of a row, words)) of what every stage with a second map
    reads of it beside a tile.
    """
    for unit, side in zip(layer.residual_units, layer.shape.sides, strict=True):
        row, rows, col, cols = rect
        if side.broadcast:
            row, rows, col, cols = 0, 1, 0, 1
        elif side.before_pool:
            row, rows, col, cols = mid[0], mid[1] - mid[0], mid[3], mid[4] - mid[3]
        yield unit, (row, rows), (col // layer.shape.px, ceil_div(cols, layer.shape.px))


def average_parts(
    layer: Layer, rect: tuple[int, int, int, int]
) -> Iterator[tuple[int, int, int, int, Mapping[str, int]]]:
    """Parts of a tile with one divisor each: (row, rows, col, cols, registers); the whole tile
    unless padding is uncounted.
    """
    row, rows, col, cols = rect
    if not layer.by_count:
        yield 0, rows, 0, cols, {}
        return
    pool, shape = layer.shape.pool_window, layer.shape
    for y, yn, inside_y in _equal_counts(
        pool.kernel[0], pool.strides[0], pool.pads[0], row, rows, shape.mid_rows
    ):
        for x, xn, inside_x in _equal_counts(
            pool.kernel[1], pool.strides[1], pool.pads[1], col, cols, shape.mid_cols
        ):
            yield y, yn, x, xn, layer.by_count[inside_y, inside_x]


def _equal_counts(
    kernel: int, stride: int, pad: int, first: int, count: int, extent: int
) -> Iterator[tuple[int, int, int]]:
    """Runs of outputs whose window has equally many positions inside 0 .. extent: (start,
    length, positions).
    """
    inside = [
        min(begin + kernel, extent) - max(begin, 0)
        for begin in ((first + i) * stride - pad for i in range(count))
    ]
    start = 0
    for i in range(1, count + 1):
        if i == count or inside[i] != inside[start]:
            yield start, i - start, inside[start]
            start = i
