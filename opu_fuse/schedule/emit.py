"""Tiles -> instructions: loads, compute, post and store of one layer, without tokens.

Every on-chip buffer is used as banks in turn; a bank remembers what it holds, so that features
stay while output ranges change, weights while tiles change, and small maps from one layer to the
next. Instructions come in an order that is correct when executed one by one; overlap comes from the
engines' queues, safety from `dependencies`.
"""

from collections.abc import Iterator, Mapping

from opu_fuse.cost.chunks import FeatureChunk, OutputRange, WeightChunk
from opu_fuse.cost.keeping import Keep
from opu_fuse.cost.reading import Mid, Rect, Span, count_parts, rows_read, walk, window
from opu_fuse.cost.tiles import (
    ceil_div,
    groups_per_block,
    mid_tile,
    parts_per_block,
    segments_per_block,
    spans,
)
from opu_fuse.cost.work import Banks
from opu_fuse.hw.chain import chain_of
from opu_fuse.hw.instruction import Instruction, split_address
from opu_fuse.hw.isa import Engine, order_registers, parameters_of, unit_register
from opu_fuse.hw.spec import HwSpec
from opu_fuse.schedule.job import Job, Placement, Step
from opu_fuse.schedule.registers import average_parts, side_tiles, sub_rectangle, transfer_shape
from opu_fuse.schedule.stores import stores
from opu_fuse.units.array import PARAM_WORDS
from opu_fuse.units.base import Space
from opu_fuse.units.table import TABLE_WORDS

UNUSED_KERNEL = {
    "kernel_rows": 1,
    "kernel_cols": 1,
    "dilation_y": 1,
    "dilation_x": 1,
    "oc_first": 0,
    "oc_steps": 1,
}


class Emitter:
    """Emits the layers of one machine segment. State: what the banks hold and the registers'
    last values.

    Registers an instruction does not use keep their value, so that no word is spent on them.
    """

    def __init__(self, hw: HwSpec) -> None:
        self._hw = hw
        self._banks = {
            space: Banks(words=buffer.words, banks=buffer.banks)
            for space in Space
            if (buffer := getattr(hw.buffers, space.value, None)) is not None
        }
        zeros = {engine: {r.name: 0 for r in parameters_of(engine)} for engine in Engine}
        self._registers: dict[Engine, dict[str, int]] = zeros
        self._count = {engine: len(names) for engine, names in zeros.items()}

    def instruction(self, engine: Engine, opcode: str, params: Mapping[str, int]) -> Instruction:
        """An instruction whose unnamed registers keep their last value."""
        registers = {**self._registers[engine], **params}
        if len(registers) > self._count[engine]:  # further units have the registers that are not 0
            registers = {k: v for k, v in registers.items() if v or "@" not in k}
        self._registers[engine] = registers
        return Instruction(engine=engine, opcode=opcode, params=self._registers[engine])

    def layer(self, job: Job, keep: Keep | None = None) -> Iterator[Step]:
        """All steps of one layer. keep: the map on chip that its output is part of."""
        banks = self._banks[Space.FEATURE]
        tiles, rows = walk(job.work), job.work.reads.layout.rows
        first = rows
        there = banks.find(job.layer.source) is not None
        if keep is not None and not there and count_parts(job.work, banks.banks) == banks.banks:
            first = rows_read(job.work, *tiles[0])
            yield self._load_rows(job, 0, first)
        for output_range, rect in tiles:
            psum = yield from self._accumulate(job, output_range, rect)
            if first < rows:  # now: post will need the write port of the buffer
                yield self._load_rows(job, first, rows)
                first = rows
            yield from self._post(job, output_range, rect, psum, keep)

    def side_by_side(self, job: Job, companion: Job) -> Iterator[Step]:
        """All steps of two layers, the companion's tiles spread evenly between the several of the
        other.
        """
        ours, theirs = walk(job.work), walk(companion.work)
        gaps, done = len(ours) - 1, 0
        for number, (output_range, rect) in enumerate(ours, 1):
            yield from self._tile(job, output_range, rect)
            due = min(ceil_div(number * len(theirs), gaps), len(theirs))
            for companion_range, companion_rect in theirs[done:due]:
                yield from self._tile(companion, companion_range, companion_rect)
            done = due

    def _load_rows(self, job: Job, first: int, behind: int) -> Step:
        """Bring rows of a layer's input to their place in the whole map."""
        layout = job.work.reads.layout
        base, _ = self._banks[Space.FEATURE].take(job.layer.source)
        return self._load(
            job,
            Space.FEATURE,
            job.loaded.offset + layout.word_at(0, first) * layout.word,
            base + first * layout.row_words * layout.blocks,
            run=layout.row_words,
            rows=layout.blocks,
            row_pitch=layout.block_words,
            blocks=behind - first,
            block_pitch=layout.row_words,
        )

    def _tile(self, job: Job, out: OutputRange, rect: Rect) -> Iterator[Step]:
        psum = yield from self._accumulate(job, out, rect)
        yield from self._post(job, out, rect, psum)

    def _accumulate(self, job: Job, out: OutputRange, rect: Rect) -> Iterator[Step]:
        """Loads and compute of a tile. Returns where its partial sums lie."""
        mid = mid_tile(job.layer.shape, *rect)
        psum, _ = self._banks[Space.PSUM].take(None)
        first = True
        for chunk in out.features:
            base, geometry = yield from self._load_features(job, chunk, mid)
            if not job.layer.shape.array:
                yield self._step(
                    job,
                    Engine.COMPUTE,
                    "copy",
                    {
                        **geometry,
                        **UNUSED_KERNEL,
                        "feature": base,
                        "psum": psum,
                        "ic_steps": out.blocks,
                        "pre": 0,
                    },
                )
            pre = yield from self._load_pre(job, chunk)
            for part in chunk.weights:
                weight = yield from self._load_weights(job, part)
                where = {**geometry, **pre, "weight": weight, "psum": psum}
                yield self._conv(job, chunk, part, base, out, where, accumulate=not first)
                first = False
        return psum

    def _step(
        self,
        job: Job,
        engine: Engine,
        opcode: str,
        params: Mapping[str, int],
        tile: tuple[int, int, int, int, int] | None = None,
    ) -> Step:
        return Step(
            instruction=self.instruction(engine, opcode, params), group=job.layer.group, tile=tile
        )

    def _load(
        self,
        job: Job,
        space: Space,
        offset: int,
        dst: int,
        run: int,
        rows: int = 1,
        row_pitch: int = 0,
        blocks: int = 1,
        block_pitch: int = 0,
    ) -> Step:
        return self._step(
            job,
            Engine.LOAD,
            str(space),
            {
                **split_address(offset),
                "dst": dst,
                **transfer_shape(run, rows, row_pitch, blocks, block_pitch),
            },
        )

    def _load_part(
        self,
        job: Job,
        space: Space,
        place: Placement,
        base: int,
        blocks: Span,
        rows: Span,
        words: Span,
    ) -> Step:
        """Bring channel blocks, rows and words of a row, each (first, count), of a map."""
        layout = place.layout
        first = layout.word_at(blocks[0], rows[0], words[0])
        return self._load(
            job,
            space,
            place.offset + first * layout.word,
            base,
            words[1],
            rows[1],
            layout.row_words,
            blocks[1],
            layout.block_words,
        )

    def _load_features(self, job: Job, chunk: FeatureChunk, mid: Mid) -> Iterator[Step]:
        """Bring the input under a mid tile into a feature bank, unless the map was kept there.
        Returns its base and the compute registers of its geometry.
        """
        shape, layout = job.layer.shape, job.work.reads.layout
        read = window(job.work, chunk, mid)
        kept = self._banks[Space.FEATURE].find(job.layer.source)
        if kept is not None:
            base, where = kept + chunk.block * layout.row_words, read.of_map(layout)
        else:
            base, held = self._banks[Space.FEATURE].take(read.part)
            where = read.of_part(layout, shape.in_cols)
            if not held:
                part = read.part
                yield self._load_part(
                    job, Space.FEATURE, job.loaded, base, part.blocks, part.rows, part.words
                )
        return base, {
            **where,
            "stride_y": shape.window.strides[0],
            "stride_x": shape.window.strides[1],
            "out_rows": mid[1] - mid[0],
            "out_cols": ceil_div(mid[4] - mid[3], shape.px) * shape.px,
            "psum_block_pitch": shape.words(mid[1] - mid[0], mid[4] - mid[3]),
            "pad_value": job.layer.pad_value,
            "slot_log2": layout.slot.bit_length() - 1,
        }

    def _load_weights(self, job: Job, part: WeightChunk) -> Iterator[Step]:
        offset = job.planned.weights + part.offset
        base, held = self._banks[Space.WEIGHT].take(offset)
        if not held:
            yield self._load(job, Space.WEIGHT, offset, base, part.words)
        return base

    def _load_pre(self, job: Job, chunk: FeatureChunk) -> Iterator[Step]:
        """Bring the pre chain's parameters of a chunk's blocks. Returns the compute registers."""
        if not job.layer.pre:
            return {"pre": 0}
        words = PARAM_WORDS * job.layer.shape.pre
        offset = job.planned.pre + chunk.block * words * self._hw.word_bytes
        base, held = self._banks[Space.PRE].take((offset, chunk.blocks))
        if not held:
            yield self._load(job, Space.PRE, offset, base, chunk.blocks * words)
        return {**job.layer.pre_registers, "pre_param": base}

    def _conv(
        self,
        job: Job,
        chunk: FeatureChunk,
        part: WeightChunk,
        base: int,
        out: OutputRange,
        geometry: Mapping[str, int],
        *,
        accumulate: bool,
    ) -> Step:
        mode = self._hw.array.modes[out.mode]
        dilations = job.layer.shape.window.dilations
        across = dilations[1] * job.work.unfold
        depthwise = job.layer.shape.depthwise
        unit = parts_per_block(self._hw) if depthwise else segments_per_block(mode, self._hw)
        first = 0 if depthwise else part.group - out.block * groups_per_block(mode, self._hw)
        block = part.segment // unit - chunk.block
        if geometry["pre"]:
            words = PARAM_WORDS * geometry["pre"]
            geometry = {**geometry, "pre_param": geometry["pre_param"] + block * words}
        return self._step(
            job,
            Engine.COMPUTE,
            "depthwise" if depthwise else "conv",
            {
                **geometry,
                "feature": base + block * geometry["block_pitch"],
                "origin_y": geometry["origin_y"] + (part.ky[0] - chunk.ky[0]) * dilations[0],
                "origin_x": geometry["origin_x"] + (part.kx[0] - chunk.kx[0]) * across,
                "dilation_y": dilations[0],
                "dilation_x": across,
                "kernel_rows": part.ky[1],
                "kernel_cols": part.kx[1],
                "ic_steps": part.segments,
                "oc_first": first,
                "oc_steps": part.groups,
                "mode": out.mode,
                "accumulate": int(accumulate),
            },
        )

    def _post(
        self,
        job: Job,
        out: OutputRange,
        rect: Rect,
        psum: int,
        keep: Keep | None = None,
    ) -> Iterator[Step]:
        """Post chain and store of a tile, as many channel blocks at a time as the output and
        residual banks hold. keep: the feature buffer gets the words, too.
        """
        shape = job.layer.shape
        row, rows, col, cols = rect
        mid = mid_tile(shape, *rect)
        mid_pixels = shape.words(mid[1] - mid[0], mid[4] - mid[3])
        cols, mid_cols = ceil_div(cols, shape.px), ceil_div(mid[4] - mid[3], shape.px)
        at_once = self._hw.buffers.output.bank_words // (rows * cols)
        if shape.sides:
            pixels = sum(shape.side_words(mid_pixels, rows * cols))
            at_once = min(at_once, self._hw.buffers.residual.bank_words // pixels)
        kept = 0 if keep is None else self._banks[Space.FEATURE].take(keep.node)[0]
        params = 0
        if shape.param_words:
            offset = job.planned.params + out.block * shape.param_words * self._hw.word_bytes
            params, held = self._banks[Space.PARAM].take(offset)
            if not held:
                yield self._load(job, Space.PARAM, offset, params, out.blocks * shape.param_words)
        table = yield from self._load_table(job)
        for at, blocks in spans(out.blocks, at_once):
            residual = yield from self._load_residuals(job, out.block + at, blocks, rect, mid)
            base, _ = self._banks[Space.OUTPUT].take(None)
            common = {
                **job.layer.post,
                **residual,
                **table,
                "psum": psum + at * mid_pixels,
                "psum_row_pitch": mid_cols,
                "psum_block_pitch": mid_pixels,
                "in_rows": mid[1] - mid[0],
                "in_cols": mid_cols,
                "blocks": blocks,
                "param": params + at * shape.param_words,
                "out_row_pitch": cols,
                "out_block_pitch": rows * cols,
                "pool_slots": shape.px if shape.pool and shape.px > 1 else 0,
                **order_registers(chain_of(self._hw).pack(job.layer.order)),
            }
            for y, yn, x, xn, average in average_parts(job.layer, (row, rows, col, cols)):
                here = (out.block + at, row + y, col // shape.px + x)
                yield self._step(
                    job,
                    Engine.POST,
                    "run",
                    {
                        **common,
                        **average,
                        **sub_rectangle(job.layer, common, mid, y, x, cols),
                        "out": base + y * cols + x,
                        **({"keep": 0} if keep is None else keep.registers(kept, *here)),
                        "out_rows": yn,
                        "out_cols": xn,
                    },
                    (mid[0], mid[3], row + y, col + x, out.block + at),
                )
            if job.output is not None:
                for registers in stores(job, job.output, base, rect, out.block + at, blocks):
                    yield self._step(job, Engine.STORE, "store", registers)

    def _load_table(self, job: Job) -> Iterator[Step]:
        """Bring the layer's tables. Returns the post registers."""
        units = job.layer.table_units
        if not units:
            return {}
        base, held = self._banks[Space.TABLE].take(job.planned.table)
        if not held:
            yield self._load(job, Space.TABLE, job.planned.table, base, TABLE_WORDS * len(units))
        return {
            unit_register("table", unit): base + TABLE_WORDS * number
            for number, unit in enumerate(units)
        }

    def _load_residuals(
        self,
        job: Job,
        block: int,
        blocks: int,
        rect: Rect,
        mid: Mid,
    ) -> Iterator[Step]:
        """Bring the tiles that stages read beside the pipeline's, one behind the other into a bank.
        Returns the post registers.
        """
        found: dict[str, int] = {}
        if not job.residuals:
            return found
        base, _ = self._banks[Space.RESIDUAL].take(None)
        tiles = side_tiles(job.layer, rect, mid)
        for place, (unit, rows, cols) in zip(job.residuals, tiles, strict=True):
            yield self._load_part(job, Space.RESIDUAL, place, base, (block, blocks), rows, cols)
            pixels = rows[1] * cols[1]
            own = {"res": base, "res_row_pitch": cols[1], "res_block_pitch": pixels}
            found |= {unit_register(name, unit): value for name, value in own.items()}
            base += blocks * pixels
        return found
