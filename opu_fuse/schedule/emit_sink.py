"""Instructions of a tile schedule: loads, compute, post and stores, without tokens.

Registers that an instruction does not use keep their value, so that no word is spent on them.
Safety comes from `dependencies`.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from opu_fuse.errors import InternalError
from opu_fuse.hw.im2row_window import UNFOLD
from opu_fuse.hw.isa.instruction import Instruction, split_address
from opu_fuse.hw.isa.table import Engine, order_registers, parameters_of, unit_register
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.schedule.placement import Placement, PostTile, Step
from opu_fuse.schedule.registers import (
    TilePart,
    rows_at_once,
    side_tiles,
    sub_rectangle,
    sweeps,
    tile_parts,
    transfer_shape,
)
from opu_fuse.schedule.store_registers import halo_store, halo_words, stores
from opu_fuse.schedule.tile_choice import PlannedLayer
from opu_fuse.tile_schedule.fused_heads import ResidentTile
from opu_fuse.tile_schedule.input_region import window
from opu_fuse.tile_schedule.line_buffers import LineBuffer
from opu_fuse.tile_schedule.sink import ComputeStep, FeatureLoad, FeatureSource, PostStep, TileSink
from opu_fuse.tiling.chunks import OutputRange, WeightChunk
from opu_fuse.tiling.im2row import Piece
from opu_fuse.tiling.tile import (
    Span,
    ceil_div,
    groups_per_block,
    images_of,
    segments_per_block,
)
from opu_fuse.units.base import Space
from opu_fuse.units.residual import ResidualKind
from opu_fuse.units.table import TABLE_WORDS

UNUSED_KERNEL = {
    "kernel_rows": 1,
    "kernel_cols": 1,
    "dilation_y": 1,
    "dilation_x": 1,
    "oc_first": 0,
    "oc_steps": 1,
}


class Read(NamedTuple):
    """The input of a compute instruction.

    bases: first feature word of each image;
    registers: geometry registers;
    pixels: partial-sum words of an image.
    """

    bases: list[int]
    registers: Mapping[str, int]
    pixels: int


class EmitSink(TileSink[PlannedLayer, Read]):
    """Emits the operations of one machine segment as `steps`. Slots need no instructions, and these
    know words, not banks.

    placements: DFG index -> DRAM placement; maps that are not stored to DRAM have none.
    """

    def __init__(self, hw: HwSpec, placements: Mapping[int, Placement]) -> None:
        self._hw = hw
        self._placements = placements
        self.steps: list[Step] = []
        zeros = {engine: {r.name: 0 for r in parameters_of(engine)} for engine in Engine}
        self._registers: dict[Engine, dict[str, int]] = zeros
        self._count = {engine: len(names) for engine, names in zeros.items()}

    def append(
        self,
        group: int,
        engine: Engine,
        opcode: str,
        params: Mapping[str, int],
        tile: PostTile | None = None,
    ) -> None:
        """Append an instruction whose unnamed registers keep their last value."""
        registers = {**self._registers[engine], **params}
        if len(registers) > self._count[engine]:  # further units have the registers that are not 0
            registers = {k: v for k, v in registers.items() if v or "@" not in k}
        self._registers[engine] = registers
        instruction = Instruction(engine=engine, opcode=opcode, params=registers)
        self.steps.append(Step(instruction=instruction, group=group, tile=tile))

    def load_features(self, layer: PlannedLayer, load: FeatureLoad) -> None:
        """`load.feature`: a part block by block, rows of a whole map row by row."""
        placement, part = self._placement_of(layer), (load.blocks, load.rows, load.words)
        self._load_part(layer, Space.FEATURE, placement, load.word, *part, by_rows=load.by_rows)

    def im2row(self, layer: PlannedLayer, load: FeatureLoad, piece: Piece, image: int) -> None:
        """`load.image` and `load.unfold`."""
        rows, (_, run), im2row = (piece.first, piece.count), load.words, layer.shape.im2row
        assert im2row is not None, "its input is an im2row map"
        placement = self._placement_of(layer)
        self._load_part(layer, Space.IMAGE, placement, image, (0, 1), rows, load.words)
        registers = {
            "dst": load.word + piece.done * im2row.row_words(run),
            "run": run,
            "rows": piece.rows,
            "row_pitch": im2row.stride * run,
            "image": image + piece.origin * run,
            "in_rows": piece.count,
            "origin_y": piece.origin,
            "stride_y": im2row.stride,
            "kernel_rows": im2row.kernel_rows,
            "pad_value": layer.layer.pad_value,
        }
        self.append(layer.layer.group, Engine.LOAD, UNFOLD, registers)

    def load_constants(self, layer: PlannedLayer, space: Space, offset: int, words: Span) -> None:
        """From the layer's constants of that buffer."""
        self._load(layer, space, layer.constants_at(space) + offset, *words)

    def load_weights(self, layer: PlannedLayer, part: WeightChunk, image: int, words: Span) -> None:
        """`load.weight` of a map: a row of the array's mode is as many pixels as it has outputs.

        Words after the map's last pixel are not read: what is in their place reaches only lanes
        that parameters set to zero. So segments whose last row is incomplete are loaded one by one.
        Lanes that other values use are loaded as zeros.
        """
        assert layer.second is not None, "its weights are a map"
        placement = self._placements[layer.second]
        outputs = self._hw.array.modes[layer.tile.mode].oc
        lane, layout = layer.shape.first_lane, placement.layout
        pixels = layer.shape.pre_pool_channels - lane
        per_word = self._hw.word_bytes // self._hw.buffers.weight.width
        first, whole = part.group * outputs - lane, part.groups * outputs
        run = min(whole, pixels - first)
        at_once = part.segments if run == whole and not layer.layer.zeroes else 1
        for segment in range(0, part.segments, at_once):
            word = layout.word_at(part.segment + segment) + image * pixels + first
            offset = placement.offset + word * layout.word
            dst = words[0] + segment * whole * per_word
            shape = run * per_word, at_once, layout.block_words * per_word
            zeros = layer.layer.zero_bytes(part.segment + segment, self._hw)
            self._load(layer, Space.WEIGHT, offset, dst, *shape, zeros=zeros)

    def load_gate(self, layer: PlannedLayer, blocks: Span, images: Span, words: Span) -> None:
        """`load.pre` of a map."""
        assert layer.gate is not None, "it has a gate"
        placement = self._placements[layer.gate]
        self._load_part(layer, Space.PRE, placement, words[0], blocks, images, (0, 1), by_rows=True)

    def load_residuals(self, layer: PlannedLayer, step: PostStep) -> None:
        """`load.residual` for each, one after the other in the bank."""
        sides = zip(layer.residuals, layer.shape.sides, side_tiles(layer.layer, step), strict=True)
        for node, side, (_, word, rows, cols) in sides:
            placement = _of_cols(self._placements[node], layer.shape.side_cols(side))
            self._load_part(layer, Space.RESIDUAL, placement, word, step.blocks, rows, cols)

    def load_halo(self, layer: PlannedLayer, step: PostStep) -> None:
        """`load.residual` of the pooling halo that the tile above stored."""
        assert step.halo is not None, "it has a bank"
        (block, blocks), cols, pitch = step.blocks, step.rect.cols, layer.shape.out_cols
        offset = layer.halo + halo_words(layer, step.rect, block) * self._hw.word_bytes
        self._load(layer, Space.RESIDUAL, offset, step.halo, cols, 1, 0, blocks, pitch)

    def _placement_of(self, layer: PlannedLayer) -> Placement:
        """DRAM placement of the input. Raises InternalError if it is not stored to DRAM."""
        if layer.shape.unit:
            return Placement(offset=layer.unit, layout=layer.reads.layout, skips=(0, 0))
        placement = self._placements.get(layer.source)
        if placement is None:
            raise InternalError("schedule", f"{layer.layer.name} loads a map that is not in DRAM")
        return _of_cols(placement, layer.shape.in_cols)

    def _load_part(
        self,
        layer: PlannedLayer,
        space: Space,
        placement: Placement,
        dst: int,
        blocks: Span,
        rows: Span,
        words: Span,
        *,
        by_rows: bool = False,
    ) -> None:
        """Channel blocks, rows and words of a row of a map."""
        layout = placement.layout
        first = layout.word_at(blocks[0], rows[0], words[0])
        inner, outer = (rows[1], layout.row_words), (blocks[1], layout.block_words)
        if by_rows:
            inner, outer = outer, inner
        offset = placement.offset + first * layout.word
        self._load(layer, space, offset, dst, words[1], *inner, *outer)

    def _load(
        self,
        layer: PlannedLayer,
        space: Space,
        offset: int,
        dst: int,
        run: int,
        rows: int = 1,
        row_pitch: int = 0,
        blocks: int = 1,
        block_pitch: int = 0,
        zeros: Span = (0, 0),
    ) -> None:
        shape = transfer_shape(run, rows, row_pitch, blocks, block_pitch)
        if layer.tile.undivided:  # so many loads that the words of unused registers matter
            unused = {"row_pitch": shape["rows"], "block_pitch": shape["blocks"]}
            shape = {name: value for name, value in shape.items() if unused.get(name) != 1}
        low, high = zeros
        shape = {"dst": dst, **shape, "zero_low": low, "zero_high": high}
        registers = {**split_address(offset), **shape}
        self.append(layer.layer.group, Engine.LOAD, str(space), registers)

    def read(self, layer: PlannedLayer, source: FeatureSource) -> Read:
        """Registers of the geometry."""
        shape, layout = layer.shape, layer.reads.layout
        pre_pool, chunk = source.pre_pool, source.chunk
        read, base = source.window or window(layer, chunk, pre_pool), source.bank
        if source.line_buffer is not None:
            row, rows = read.part.rows
            pitch = source.line_buffer.pitch
            where = read.by_rows(layout, pitch, row - read.above, rows)
            base = source.line_buffer.word(row) + chunk.block * layout.row_words
        elif source.resident:
            where = read.by_rows(layout, layout.blocks * layout.row_words, 0, shape.in_rows)
            above = read.above - layer.rows_in[0]
            base += chunk.block * layout.row_words + above * where["row_pitch"]
        else:
            where = read.of_part()
        pitch = 0 if shape.unit else shape.in_rows * where["row_pitch"]
        pixels = shape.words(pre_pool.rows, pre_pool.cols)
        registers = {
            **where,
            "stride_y": shape.window.strides[0],
            "stride_x": shape.window.strides[1] * shape.column,
            "out_rows": pre_pool.rows // source.images,
            "out_cols": ceil_div(pre_pool.cols, shape.px) * shape.px,
            "psum_block_pitch": pixels,
            "pad_value": layer.layer.pad_value,
            "slot_log2": shape.column_bytes.bit_length() - 1,
        }
        bases = [base + image * pitch for image in range(source.images)]
        return Read(bases, registers, pixels // source.images)

    def copy(self, layer: PlannedLayer, out: OutputRange, psum: int, read: Read) -> None:
        """`compute.copy` of each image."""
        common = {**read.registers, **UNUSED_KERNEL, "ic_steps": out.blocks, "pre": 0}
        for number, base in enumerate(read.bases):
            own = {"feature": base, "psum": psum + number * read.pixels}
            self.append(layer.layer.group, Engine.COMPUTE, "copy", common | own)

    def compute(self, layer: PlannedLayer, step: ComputeStep, read: Read) -> None:
        """`compute.conv` or `compute.depthwise` of each image, or of the step's."""
        mode, depthwise = self._hw.array.modes[step.out.mode], layer.shape.depthwise
        unit = self._hw.word_parts if depthwise else segments_per_block(mode, self._hw)
        block = step.part.segment // unit - step.chunk.block
        common = self._common_of_compute(layer, step, read.registers)
        common["ic_first"] = step.part.segment % unit
        for number, base in enumerate(read.bases):
            if step.image not in (None, number):
                continue
            registers = {
                **common,
                "feature": base + block * common["block_pitch"],
                "psum": step.psum + number * read.pixels,
            }
            if step.pre is not None:
                gates = number * step.chunk.blocks if layer.gate is not None else 0
                at = step.pre[0] + gates + block * layer.shape.pre_words
                registers |= {**layer.layer.pre_registers, "pre_param": at}
            if not depthwise:
                for own in sweeps(layer.shape, mode, self._hw, registers):
                    self.append(layer.layer.group, Engine.COMPUTE, "conv", registers | own)
                continue
            registers["psum"] += block * common["psum_block_pitch"]
            for rows in rows_at_once(layer.shape, step.part, registers):
                self.append(layer.layer.group, Engine.COMPUTE, "depthwise", registers | rows)

    def _common_of_compute(
        self, layer: PlannedLayer, step: ComputeStep, registers: Mapping[str, int]
    ) -> dict[str, int]:
        """Registers of a weight chunk, the same for all images."""
        out, chunk, part = step.out, step.chunk, step.part
        mode = self._hw.array.modes[out.mode]
        dilations, im2row = layer.shape.window.dilations, layer.shape.im2row is not None
        across = mode.ic if im2row else dilations[1] * layer.cols_per_iteration
        first = part.group - out.block * groups_per_block(mode, self._hw)
        return {
            **registers,
            "weight": step.weights[0],
            "pre": 0,
            "origin_y": registers["origin_y"] + (part.ky[0] - chunk.ky[0]) * dilations[0],
            "origin_x": registers["origin_x"] + (part.kx[0] - chunk.kx[0]) * across,
            "dilation_y": dilations[0],
            "dilation_x": across,
            "kernel_rows": part.ky[1],
            "kernel_cols": part.kx[1],
            "ic_steps": part.segments,
            "oc_first": 0 if layer.shape.depthwise else first,
            "oc_steps": part.groups,
            "mode": out.mode,
            "accumulate": int(part.accumulate),
        }

    def post(self, layer: PlannedLayer, step: PostStep) -> None:
        """`post.run` for each part of the tile that one instruction can compute."""
        shape, pre_pool, (row, _, col, cols) = layer.shape, step.pre_pool, step.rect
        common, words = self._common_of_post(layer, step), ceil_div(cols, shape.stored_px)
        halo = self._halo(layer, step) if step.halo is not None else {}
        for whole in tile_parts(layer.layer, step.rect._replace(cols=words)):
            first = whole.image * shape.out_rows + whole.y
            at = row + first, whole.rows, col // shape.stored_px + whole.x
            for more, count, target in _targets(layer, step, *at):
                part, y = replace(whole, y=whole.y + more), first + more
                above = part.image * common["in_rows"]
                registers = {
                    **common,
                    **part.average,
                    **(halo if part.from_halo else {}),
                    **sub_rectangle(layer.layer, common, pre_pool, part, words),
                    "psum": common["psum"] + above * common["psum_row_pitch"],
                    "out": step.output + y * words + part.x,
                    **target,
                    **_in_parts(part, step),
                    "out_rows": count,
                    "out_cols": part.cols,
                }
                tile = PostTile(
                    pre_pool.row + above, pre_pool.col, row + y, col + part.x, step.blocks[0]
                )
                for own in _statistics(layer, step, registers):
                    self.append(layer.layer.group, Engine.POST, "run", own, tile)
                self.append(layer.layer.group, Engine.POST, "run", registers, tile)

    def _common_of_post(self, layer: PlannedLayer, step: PostStep) -> dict[str, int]:
        """Registers that are the same for all parts of a tile."""
        shape, lowered, pre_pool, rect = layer.shape, layer.layer, step.pre_pool, step.rect
        cols = ceil_div(rect.cols, shape.stored_px)
        pre_pool_cols = ceil_div(pre_pool.cols, shape.px)
        pixels, at = shape.words(pre_pool.rows, pre_pool.cols), step.blocks[0] - step.tile_block
        operands: dict[str, int] = {}
        for unit, word, (_, rows), (_, run) in side_tiles(layer.layer, step):
            own = {"res": word, "res_row_pitch": run, "res_block_pitch": rows * run}
            operands |= {unit_register(name, unit): value for name, value in own.items()}
        for number, unit in enumerate(lowered.table_units):
            first = step.constants[Space.TABLE][0]
            operands[unit_register("table", unit)] = first + TABLE_WORDS * number
        if lowered.norm is not None:
            whole = sum(step.blocks) * self._hw.word_channels <= shape.pre_pool_channels
            own = {"norm_idle": 0 if whole else lowered.norm.idle}
            if Space.NORM in step.constants:
                own["norm_table"] = step.constants[Space.NORM][0]
            operands |= {unit_register(k, lowered.norm.unit): v for k, v in own.items()}
        params = step.constants.get(Space.PARAM)
        return {
            **lowered.post,
            **operands,
            "psum": step.psum + at * pixels,
            "psum_row_pitch": pre_pool_cols,
            "psum_block_pitch": pixels,
            "in_rows": pre_pool.rows // (images_of(shape, rect.rows) if shape.pool else 1),
            "in_cols": cols if shape.spread else pre_pool_cols,
            "blocks": step.blocks[1],
            "param": params[0] + at * shape.param_words if params else 0,
            "out_row_pitch": cols,
            "out_block_pitch": rect.rows * cols,
            "pool_slots": shape.px if shape.pool and shape.px > 1 else 0,
            "spread": shape.px + shape.out_slot if shape.spread else 0,
            **order_registers(chain_of(self._hw).pack(lowered.order)),
        }

    def _halo(self, layer: PlannedLayer, step: PostStep) -> dict[str, int]:
        """Registers with which the first row includes the pooling halo from above."""
        chain = chain_of(self._hw)
        unit = chain.trailing_maximum(layer.layer.order)
        assert unit is not None, "a pooling halo needs a unit that takes the maximum"
        own = {
            "res": step.halo or 0,
            "res_row_pitch": step.rect.cols,
            "res_block_pitch": step.rect.cols,
            "res_kind": int(ResidualKind.MAXIMUM),
            "res_broadcast": 0,
        }
        return {
            **{unit_register(name, unit.bank): value for name, value in own.items()},
            **order_registers(chain.pack((*layer.layer.order, unit.name))),
        }

    def store(self, layer: PlannedLayer, step: PostStep) -> None:
        """`store.store`, several where blocks share words with other maps."""
        to = self._placements[layer.output]
        for registers in stores(layer, to, step.output, step.rect, *step.blocks):
            self.append(layer.layer.group, Engine.STORE, "store", registers)

    def store_halo(self, layer: PlannedLayer, step: PostStep, bank: int) -> None:
        """`post.run` of the pooling halo for the tile below, and its `store.store`."""
        (row, rows, col, cols), pre_pool = step.rect, step.pre_pool
        common = self._common_of_post(layer, step)
        part = TilePart(y=rows, rows=1, cols=cols)
        registers = {
            **common,
            **sub_rectangle(layer.layer, common, pre_pool, part, cols),
            "win_rows": layer.shape.halo_rows,
            "out": bank,
            "out_row_pitch": cols,
            "out_block_pitch": cols,
            "out_rows": 1,
            "out_cols": cols,
            "keep": 0,
        }
        tile = PostTile(pre_pool.row, pre_pool.col, row + rows, col, step.blocks[0])
        self.append(layer.layer.group, Engine.POST, "run", registers, tile)
        registers = halo_store(layer, bank, step.rect, *step.blocks)
        self.append(layer.layer.group, Engine.STORE, "store", registers)


def _of_cols(placement: Placement, cols: int) -> Placement:
    """The same words as a map of `cols` columns."""
    if placement.layout.cols == cols:
        return placement
    return replace(placement, layout=placement.layout.of_cols(cols))


def _in_parts(part: TilePart, step: PostStep) -> dict[str, int]:
    """Registers of a part whose columns have others between: its results follow each other."""
    if part.step == 1:
        return {}
    return {"out": step.output + part.x * part.rows * part.cols, "out_row_pitch": part.cols}


def _statistics(
    layer: PlannedLayer, step: PostStep, results: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Registers of the passes over all blocks of the tile before the one with results."""
    norm = layer.layer.norm
    if norm is not None and step.statistics:
        idle = {unit_register("norm_idle", norm.unit): norm.idle}
        for own in norm.statistics:
            yield {**results, **idle, "blocks": step.statistics, **own}


def _targets(
    layer: PlannedLayer, step: PostStep, row: int, rows: int, word: int
) -> Iterator[tuple[int, int, dict[str, int]]]:
    """Yield (first row, rows, registers) per instruction that writes output rows.

    word: first word of each row. Rows that a line buffer duplicates are written twice.
    """
    to, block = step.to, step.blocks[0]
    if to is None:
        yield 0, rows, {"keep": 0}
    elif isinstance(to, LineBuffer):
        for first, count, at in to.written(row, rows):
            yield first, count, to.registers(at, block, word)
    elif isinstance(to, ResidentTile):
        yield 0, rows, to.registers(block, row, word)
    else:
        above = layer.images[0] * layer.shape.out_rows if layer.images else 0
        yield 0, rows, to.resident.registers(to.bank, block, row - above, word)
