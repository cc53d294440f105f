"""Register values that follow from geometry alone: transfer shapes, parts of a post tile."""

from collections.abc import Iterator, Mapping
from itertools import groupby, product

from msgspec import Struct, field
from msgspec.structs import replace

from opu_fuse.hw.isa.table import unit_register
from opu_fuse.hw.spec.hw_spec import HwSpec, Mode
from opu_fuse.layout.shape import Shape, Window
from opu_fuse.schedule.layer import Layer
from opu_fuse.tile_schedule.sink import PostStep
from opu_fuse.tiling.chunks import WeightChunk
from opu_fuse.tiling.depthwise import passes, tall
from opu_fuse.tiling.tile import PrePoolRect, Rect, Span, ceil_div, images_of


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


def rows_at_once(
    shape: Shape, part: WeightChunk, registers: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Registers of each depthwise instruction, which computes several output rows at a time."""
    down = shape.window.strides[0]
    for row, count, rows in passes(registers["out_rows"], part.at_once):
        yield {
            "origin_y": registers["origin_y"] + row * down,
            "stride_y": rows * down,
            "kernel_rows": tall(part.ky[1], down, rows),
            "out_rows": count,
            "oc_steps": rows,
            "psum": registers["psum"] + row * registers["out_cols"],
        }


def sub_rectangle(
    layer: Layer,
    common: Mapping[str, int],
    pre_pool: PrePoolRect,
    part: "TilePart",
    cols: int,
) -> dict[str, int]:
    """Window origin and residual addresses of the outputs of a part of a tile. cols: words of an
    output row.
    """
    pool, y, x = layer.shape.pool_window, part.y, part.x
    pre_pool_pixels = common["in_rows"] * common["in_cols"]
    registers = {
        "origin_y": pre_pool.row_origin + y * pool.strides[0],
        "origin_x": pre_pool.col_origin + x * pool.strides[1],
        "stride_y": pool.strides[0],
        "stride_x": pool.strides[1] * part.step,
        "win_rows": pool.kernel[0],
        "win_cols": pool.kernel[1],
    }
    if part.from_halo:  # the pooling halo replaces the rows of the tile above
        registers |= {"origin_y": 0, "win_rows": pool.kernel[0] - layer.shape.halo_rows}
    for unit, side in zip(layer.residual_units, layer.shape.sides, strict=True):
        name = unit_register("res", unit)
        if side.before_pool:
            registers[name] = common[name] + part.image * pre_pool_pixels
        elif not side.broadcast:
            registers[name] = common[name] + (part.image * layer.shape.out_rows + y) * cols + x
    return registers


def side_tiles(layer: Layer, step: PostStep) -> Iterator[tuple[int, int, Span, Span]]:
    """Yield (unit, first residual word, rows, words of a row) of each second operand of a tile."""
    word, px, pre_pool = step.residual or 0, layer.shape.stored_px, step.pre_pool
    for unit, side in zip(layer.residual_units, layer.shape.sides, strict=True):
        row, rows, col, cols = step.rect
        if side.broadcast:
            row, rows, col, cols = row // layer.shape.out_rows, 1, 0, 1
        elif side.before_pool:
            row, rows, col, cols = pre_pool.row, pre_pool.rows, pre_pool.col, pre_pool.cols
        words = ceil_div(cols, px)
        yield unit, word, (row, rows), (col // px, words)
        word += step.blocks[1] * rows * words


class TilePart(Struct, frozen=True, kw_only=True):
    """Outputs of a tile that one instruction computes.

    image: image of the tile;
    y, rows: first row in that image, and rows;
    x, cols, step: first column, columns, and from one to the next;
    average: registers of its divisor;
    from_halo: its first row includes the pooling halo of the tile above.
    """

    image: int = 0
    y: int = 0
    rows: int
    x: int = 0
    cols: int
    step: int = 1
    average: Mapping[str, int] = field(default_factory=dict)
    from_halo: bool = False


def tile_parts(layer: Layer, rect: Rect) -> Iterator[TilePart]:
    """Cut a tile into parts for one instruction each.

    A part is of one image where windows would reach the next one, and has one divisor where padding
    is not counted. A first row that includes a pooling halo is a part of its own.
    """
    row, rows, col, cols = rect
    shape = layer.shape
    if shape.reads_halo(row):
        yield TilePart(rows=1, cols=cols, from_halo=True)
        if rows > 1:
            yield TilePart(y=1, rows=rows - 1, cols=cols)
        return
    if (parts := shape.column_parts) > 1:
        for x in range(parts):
            yield TilePart(rows=rows, x=x, cols=cols // parts, step=parts)
        return
    images = images_of(shape, rows) if shape.pool else 1
    for image in range(images):
        whole = Rect(row % shape.out_rows, rows // images, col, cols)
        for part in _average_parts(layer, whole):
            yield replace(part, image=image)


def _average_parts(layer: Layer, rect: Rect) -> Iterator[TilePart]:
    row, rows, col, cols = rect
    if not layer.by_count:
        yield TilePart(rows=rows, cols=cols)
        return
    pool, shape = layer.shape.pool_window, layer.shape
    for (y, yn, inside_y), (x, xn, inside_x) in product(
        _equal_counts(pool, 0, (row, rows), shape.pre_pool_rows),
        _equal_counts(pool, 1, (col, cols), shape.pre_pool_cols),
    ):
        registers = layer.by_count[inside_y, inside_x]
        yield TilePart(y=y, rows=yn, x=x, cols=xn, average=registers)


def _equal_counts(
    pool: Window, axis: int, outputs: Span, extent: int
) -> Iterator[tuple[int, int, int]]:
    """Yield (start, length, positions) of runs of outputs whose windows have equally many positions
    inside 0 .. extent, along an axis.
    """

    def inside(output: int) -> int:
        begin = (outputs[0] + output) * pool.strides[axis] - pool.pads[axis]
        return min(begin + pool.kernel[axis], extent) - max(begin, 0)

    for positions, run in groupby(range(outputs[1]), inside):
        start, *others = run
        yield start, 1 + len(others), positions


def sweeps(
    shape: Shape, mode: Mode, hw: HwSpec, registers: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Own registers of each instruction that computes some slots of words of several pixels."""
    count, groups = shape.sweeps(mode), hw.word_channels // shape.px // mode.oc
    for sweep in range(count):
        yield {
            "origin_x": registers["origin_x"] + sweep * registers["stride_x"],
            "stride_x": registers["stride_x"] * count,
            "out_cols": registers["out_cols"] // count,
            "oc_first": registers["oc_first"] + sweep * groups,
        }
