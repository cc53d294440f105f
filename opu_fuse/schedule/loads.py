"""Loads: what instructions have to be there before a tile is computed or finished.

Every on-chip buffer is used as banks in turn; a bank remembers what it holds, so that features
stay while output ranges change, weights while tiles change, and small maps from one layer to the
next.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from opu_fuse.cost.banks import map_banks, places
from opu_fuse.cost.chunks import FeatureChunk, OutputRange, WeightChunk
from opu_fuse.cost.reading import NOTHING, Mid, Part, Rect, in_time, window
from opu_fuse.cost.rings import Ring
from opu_fuse.cost.tiles import Span, ceil_div
from opu_fuse.cost.unfolding import pieces
from opu_fuse.hw.chain import chain_of
from opu_fuse.hw.instruction import Instruction, split_address
from opu_fuse.hw.isa import Engine, order_registers, parameters_of, unit_register
from opu_fuse.hw.spec import HwSpec
from opu_fuse.hw.unfolding import UNFOLD
from opu_fuse.layout.shape import Unfolded
from opu_fuse.schedule.job import Job, Placement, Step
from opu_fuse.schedule.registers import side_tiles, transfer_shape
from opu_fuse.schedule.stores import carried_words
from opu_fuse.units.base import Space
from opu_fuse.units.residual import ResidualKind
from opu_fuse.units.table import TABLE_WORDS


class Loads:
    """Instructions of one machine segment, those of the loads in particular. State: what the banks
    hold and the registers' last values.

    Registers an instruction does not use keep their value, so that no word is spent on them.
    """

    def __init__(self, hw: HwSpec) -> None:
        self._hw = hw
        self._banks, self._places = map_banks(hw), places(hw)
        zeros = {engine: {r.name: 0 for r in parameters_of(engine)} for engine in Engine}
        self._registers: dict[Engine, dict[str, int]] = zeros
        self._made = NOTHING  # by the tile in front
        self._count = {engine: len(names) for engine, names in zeros.items()}

    def instruction(self, engine: Engine, opcode: str, params: Mapping[str, int]) -> Instruction:
        """An instruction whose unnamed registers keep their last value."""
        registers = {**self._registers[engine], **params}
        if len(registers) > self._count[engine]:  # further units have the registers that are not 0
            registers = {k: v for k, v in registers.items() if v or "@" not in k}
        self._registers[engine] = registers
        return Instruction(engine=engine, opcode=opcode, params=self._registers[engine])

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

    def _load_rows(self, job: Job, first: int, behind: int) -> Iterator[Step]:
        """Bring rows of a layer's input to their place in the whole map."""
        layout = job.work.reads.layout
        base, _ = self._banks[Space.FEATURE].take(job.work.held)
        word = base + (first - job.work.rows_in[0]) * layout.row_words * layout.blocks
        yield from self._bring_rows(job, word, first, behind - first)

    def _bring_rows(self, job: Job, word: int, first: int, count: int) -> Iterator[Step]:
        """Bring whole rows of a layer's input, each with all its blocks, from a feature word on."""
        layout, unfolded = job.work.reads.layout, job.layer.shape.unfolded
        if unfolded is not None:
            yield from self._unfold(job, unfolded, word, (first, count), (0, unfolded.words))
            return
        yield self._load(
            job,
            Space.FEATURE,
            job.loaded.offset + layout.word_at(0, first) * layout.word,
            word,
            run=layout.row_words,
            rows=layout.blocks,
            row_pitch=layout.block_words,
            blocks=count,
            block_pitch=layout.row_words,
        )

    def _unfold(
        self, job: Job, unfolded: Unfolded, base: int, rows: Span, words: Span
    ) -> Iterator[Step]:
        """Bring unfolded rows, made of some words of the image's, behind each other."""
        image, _ = self._banks[Space.IMAGE].take(None)
        pitch = unfolded.row_words(words[1])
        for piece in pieces(unfolded, *rows, words[1], self._hw):
            whole = (0, 1), (piece.first, piece.count), words
            yield self._load_part(job, Space.IMAGE, job.loaded, image, *whole)
            yield self._step(
                job,
                Engine.LOAD,
                UNFOLD,
                {
                    "dst": base + piece.done * pitch,
                    "run": words[1],
                    "rows": piece.rows,
                    "row_pitch": unfolded.stride * words[1],
                    "image": image + piece.origin * words[1],
                    "in_rows": piece.count,
                    "origin_y": piece.origin,
                    "stride_y": unfolded.stride,
                    "kernel_rows": unfolded.kernel_rows,
                    "pad_value": job.layer.pad_value,
                },
            )

    def _load_features(
        self,
        job: Job,
        chunk: FeatureChunk,
        mid: Mid,
        ahead: Iterable[Iterator[Step]],
        ring: Ring | None = None,
    ) -> Iterator[Step]:
        """Bring the input under a mid tile into a feature bank, unless the map was kept there, or
        its rows are in a ring. Returns the bases of its images and the compute registers of its
        geometry. ahead: loads that had better not come behind one that waits for the last store.
        """
        shape, layout = job.layer.shape, job.work.reads.layout
        read = window(job.work, chunk, mid)
        if ring is not None:
            base = ring.word(read.part.rows[0]) + chunk.block * layout.row_words
            where = read.of_rows(layout)
        elif (kept := self._banks[Space.FEATURE].find(job.work.held)) is not None:
            where = read.of_map(layout)
            above = read.above - job.work.rows_in[0]
            base = kept + chunk.block * layout.row_words + above * where["row_pitch"]
        else:
            base, held = self._banks[Space.FEATURE].take(read.part)
            where, part = read.of_part(), read.part
            if not held and shape.unfolded is not None:
                yield from self._unfold(job, shape.unfolded, base, part.rows, part.words)
            elif not held:
                waits = self._made.of(job.work, part)
                yield from self._load_blocks(job, part, base, in_time(part, waits))
                if waits[1]:
                    yield from chain.from_iterable(ahead)
                    yield from self._load_blocks(job, part, base, [waits])
        rows, apart = (mid[1] - mid[0]) // read.images, read.rows * where["row_pitch"]
        return [base + image * apart for image in range(read.images)], {
            **where,
            "stride_y": shape.window.strides[0],
            "stride_x": shape.window.strides[1] * shape.column,
            "out_rows": rows,
            "out_cols": ceil_div(mid[4] - mid[3], shape.px) * shape.px,
            "psum_block_pitch": shape.words(mid[1] - mid[0], mid[4] - mid[3]),
            "pad_value": job.layer.pad_value,
            "slot_log2": shape.column_bytes.bit_length() - 1,
        }

    def _load_blocks(
        self, job: Job, part: Part, base: int, blocks: Iterable[Span]
    ) -> Iterator[Step]:
        """Bring some channel blocks of a part to their places in a bank."""
        pitch = part.rows[1] * part.words[1]
        for found in blocks:
            at = base + (found[0] - part.blocks[0]) * pitch
            yield self._load_part(job, Space.FEATURE, job.loaded, at, found, part.rows, part.words)

    def _load_strip(self, job: Job, ring: Ring, first: int, rows: int) -> Iterator[Step]:
        """Bring rows of a layer's input to their places in a ring."""
        for at, count, word in ring.written(first, rows):
            yield from self._bring_rows(job, word, first + at, count)

    def _load_weights(self, job: Job, part: WeightChunk) -> Iterator[Step]:
        offset = job.planned.weights + part.offset
        base, held = self._places[Space.WEIGHT].take(offset, part.words)
        if not held:
            yield self._load(job, Space.WEIGHT, offset, base, part.words)
        return base

    def _load_ahead(self, job: Job, behind: Job) -> Iterator[Step]:
        """Bring the first weights of the layer behind, if there is room beside those of a job."""
        first = next(behind.work.weights, None)
        ours = {job.planned.weights + part.offset for part in job.work.weights}
        if first is not None and self._places[Space.WEIGHT].spares(ours, first.words):
            yield from self._load_weights(behind, first)

    def _load_pre(self, job: Job, chunk: FeatureChunk, image: int, images: int) -> Iterator[Step]:
        """Bring the pre chain's parameters of a chunk's blocks, gates those of each image. Returns
        the compute registers of the first one.
        """
        if not job.layer.pre:
            return {"pre": 0}
        if job.gate is not None:
            place, node = job.gate, job.layer.gate
            key = node, chunk.block, chunk.blocks, image, images
            base, held = self._places[Space.PRE].take(key, images * chunk.blocks)
            if not held:
                layout = place.layout
                yield self._load(
                    job,
                    Space.PRE,
                    place.offset + layout.word_at(chunk.block, image) * layout.word,
                    base,
                    run=1,
                    rows=chunk.blocks,
                    row_pitch=layout.block_words,
                    blocks=images,
                    block_pitch=layout.row_words,
                )
            return {**job.layer.pre_registers, "pre_param": base}
        words = job.layer.shape.pre_words
        offset = job.planned.pre + chunk.block * words * self._hw.word_bytes
        base, held = self._places[Space.PRE].take((offset, chunk.blocks), chunk.blocks * words)
        if not held:
            yield self._load(job, Space.PRE, offset, base, chunk.blocks * words)
        return {**job.layer.pre_registers, "pre_param": base}

    def _load_params(self, job: Job, out: OutputRange) -> Iterator[Step]:
        """Bring the post chain's parameters of a range's blocks. Returns their first word."""
        words = job.layer.shape.param_words
        if not words:
            return 0
        offset = job.planned.params + out.block * words * self._hw.word_bytes
        base, held = self._places[Space.PARAM].take(offset, out.blocks * words)
        if not held:
            yield self._load(job, Space.PARAM, offset, base, out.blocks * words)
        return base

    def _load_table(self, job: Job) -> Iterator[Step]:
        """Bring the layer's tables. Returns the post registers."""
        units = job.layer.table_units
        if not units:
            return {}
        size = TABLE_WORDS * len(units)
        base, held = self._places[Space.TABLE].take(job.planned.table, size)
        if not held:
            yield self._load(job, Space.TABLE, job.planned.table, base, size)
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

    def _load_carried(self, job: Job, block: int, blocks: int, rect: Rect) -> Iterator[Step]:
        """Bring what the tile above left for the first row of a tile. Returns the post registers
        that take the larger.
        """
        shape, cols = job.layer.shape, rect[3]
        if not shape.carried_to(rect[0]):
            return {}
        chain = chain_of(self._hw)
        unit = chain.larger_behind(job.layer.order)
        assert unit is not None, "a layer carries where its chain can go on so"
        base, _ = self._banks[Space.RESIDUAL].take(None)
        offset = job.planned.carried + carried_words(job, rect, block) * self._hw.word_bytes
        yield self._load(
            job, Space.RESIDUAL, offset, base, cols, blocks=blocks, block_pitch=shape.out_cols
        )
        own = {
            "res": base,
            "res_row_pitch": cols,
            "res_block_pitch": cols,
            "res_kind": int(ResidualKind.MAXIMUM),
            "res_broadcast": 0,
        }
        return {
            **{unit_register(name, unit.bank): value for name, value in own.items()},
            **order_registers(chain.pack((*job.layer.order, unit.name))),
        }
