"""Tiles -> instructions: loads, compute, post and store of one layer, without tokens.

Instructions come in an order that is correct when executed one by one; overlap comes from the
engines' queues, safety from `dependencies`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from opu_fuse.cost.banks import map_banks, places
from opu_fuse.cost.cascade import STAYING, Cascade
from opu_fuse.cost.chunks import FeatureChunk, OutputRange, WeightChunk
from opu_fuse.cost.keeping import Keep
from opu_fuse.cost.reading import AHEAD, Made, Mid, Rect, count_parts, rows_read, walk
from opu_fuse.cost.rings import Ring
from opu_fuse.cost.tiles import (
    ceil_div,
    groups_per_block,
    images_of,
    mid_tile,
    segments_per_block,
    spans,
)
from opu_fuse.cost.turns import LOAD
from opu_fuse.cost.windows import passes, tall
from opu_fuse.cost.work import Work
from opu_fuse.hw.chain import chain_of
from opu_fuse.hw.isa import Engine, order_registers
from opu_fuse.schedule.job import Job, Step
from opu_fuse.schedule.loads import Loads
from opu_fuse.schedule.registers import TilePart, sub_rectangle, tile_parts
from opu_fuse.schedule.stores import carried_store, stores
from opu_fuse.units.base import Space

UNUSED_KERNEL = {
    "kernel_rows": 1,
    "kernel_cols": 1,
    "dilation_y": 1,
    "dilation_x": 1,
    "oc_first": 0,
    "oc_steps": 1,
}


Target = Callable[[int, int, int, int], Iterator[tuple[int, int, Mapping[str, int]]]]
"""Where post keeps output rows besides, by channel block, first row, rows, and word of a row:
(first of the rows, how many, registers) of each instruction that it takes.
"""


def _nowhere(
    block: int,  # noqa: ARG001  one signature for all targets
    row: int,  # noqa: ARG001  the same
    rows: int,
    word: int,  # noqa: ARG001  the same
) -> Iterator[tuple[int, int, dict[str, int]]]:
    yield 0, rows, {"keep": 0}


def _in_ring(ring: Ring) -> Target:
    """Rows that stand in two places of a ring are made twice."""

    def target(
        block: int, row: int, rows: int, word: int
    ) -> Iterator[tuple[int, int, dict[str, int]]]:
        for first, count, at in ring.written(row, rows):
            yield first, count, ring.registers(at, block, word)

    return target


class Emitter(Loads):
    """Emits the layers of one machine segment."""

    def layer(
        self, job: Job, keep: Keep | None = None, behind: Job | None = None
    ) -> Iterator[Step]:
        """All steps of one layer. keep: the map on chip that its output is part of; behind: what
        comes next.
        """
        banks = self._banks[Space.FEATURE]
        tiles, (start, rows) = walk(job.work), job.work.rows_in
        first = rows = start + rows
        there = banks.find(job.work.held) is not None
        if keep is not None and not there and count_parts(job.work, banks.banks) == banks.banks:
            first = rows_read(job.work, *tiles[0])
            yield from self._load_rows(job, start, first)
        for left, (output_range, rect) in zip(range(len(tiles), 0, -1), tiles, strict=True):
            psum = yield from self._accumulate(job, output_range, rect)
            if first < rows:  # now: post will need the write port of the buffer
                yield from self._load_rows(job, first, rows)
                first = rows
            if behind is not None and left <= AHEAD:
                yield from self._load_ahead(job, behind)
            yield from self._post(job, output_range, rect, psum, self._in_bank(job.work, keep))

    def cascade(self, jobs: Sequence[Job], cascade: Cascade) -> Iterator[Step]:
        """All steps of layers that are computed together, their constants and rings in the buffers
        as the cascade has them; the banks hold nothing behind it.
        """
        self._places |= places(self._hw, STAYING, together=True)
        tiles = [walk(job.work) for job in jobs]
        for turn in cascade.turns:
            if turn.layer == LOAD:
                strip = cascade.strip(turn.number)
                yield from self._load_strip(jobs[0], cascade.rings[0], *strip)
                continue
            job, (out, rect) = jobs[turn.layer], tiles[turn.layer][turn.number]
            psum = yield from self._accumulate(job, out, rect, cascade.rings[turn.layer])
            behind = turn.layer + 1
            target = _in_ring(cascade.rings[behind]) if behind < len(jobs) else _nowhere
            yield from self._post(job, out, rect, psum, target)
        self._places |= places(self._hw, STAYING)
        self._banks[Space.FEATURE] = map_banks(self._hw)[Space.FEATURE]

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

    def _tile(self, job: Job, out: OutputRange, rect: Rect) -> Iterator[Step]:
        psum = yield from self._accumulate(job, out, rect)
        yield from self._post(job, out, rect, psum, _nowhere)

    def _in_bank(self, work: Work, keep: Keep | None) -> "Target":
        if keep is None:
            return _nowhere
        base, _ = self._banks[Space.FEATURE].take(work.bank_of(keep.node))
        above = work.images[0] * work.shape.out_rows if work.images else 0
        return lambda block, row, rows, word: iter(
            ((0, rows, keep.registers(base, block, row - above, word)),)
        )

    def _accumulate(
        self, job: Job, out: OutputRange, rect: Rect, ring: Ring | None = None
    ) -> Iterator[Step]:
        """Loads and compute of a tile. Returns where its partial sums lie. ring: where its input
        is.
        """
        mid = mid_tile(job.layer.shape, *rect)
        psum, _ = self._banks[Space.PSUM].take(None)
        for chunk in out.features:
            ahead = (self._load_weights(job, part) for part in chunk.weights[:1])
            bases, geometry = yield from self._load_features(job, chunk, mid, ahead, ring)
            pixels = geometry["psum_block_pitch"] // len(bases)
            images = [(base, psum + n * pixels) for n, base in enumerate(bases)]
            for base, sums in () if job.layer.shape.array else images:
                yield self._step(
                    job,
                    Engine.COMPUTE,
                    "copy",
                    {
                        **geometry,
                        **UNUSED_KERNEL,
                        "feature": base,
                        "psum": sums,
                        "ic_steps": out.blocks,
                        "pre": 0,
                    },
                )
            image = mid[0] // job.layer.shape.mid_rows
            pre = yield from self._load_pre(job, chunk, image, len(images))
            for part in chunk.weights:
                weight = yield from self._load_weights(job, part)
                for number, (base, sums) in enumerate(images):
                    where = {**geometry, **pre, "weight": weight, "psum": sums}
                    if job.gate is not None:
                        where["pre_param"] += number * chunk.blocks
                    yield from self._conv(job, chunk, part, base, out, where)
        return psum

    def _conv(
        self,
        job: Job,
        chunk: FeatureChunk,
        part: WeightChunk,
        base: int,
        out: OutputRange,
        geometry: Mapping[str, int],
    ) -> Iterator[Step]:
        mode, window = self._hw.array.modes[out.mode], job.layer.shape.window
        dilations, down = window.dilations, window.strides[0]
        unfolded = job.layer.shape.unfolded is not None
        across = mode.ic if unfolded else dilations[1] * job.work.unfold
        depthwise = job.layer.shape.depthwise
        unit = self._hw.word_parts if depthwise else segments_per_block(mode, self._hw)
        first = 0 if depthwise else part.group - out.block * groups_per_block(mode, self._hw)
        block = part.segment // unit - chunk.block
        if geometry["pre"]:
            at = geometry["pre_param"] + block * job.layer.shape.pre_words
            geometry = {**geometry, "pre_param": at}
        registers = {
            **geometry,
            "feature": base + block * geometry["block_pitch"],
            "origin_y": geometry["origin_y"] + (part.ky[0] - chunk.ky[0]) * dilations[0],
            "origin_x": geometry["origin_x"] + (part.kx[0] - chunk.kx[0]) * across,
            "dilation_y": dilations[0],
            "dilation_x": across,
            "kernel_rows": part.ky[1],
            "kernel_cols": part.kx[1],
            "ic_first": part.segment % unit,
            "ic_steps": part.segments,
            "oc_first": first,
            "oc_steps": part.groups,
            "mode": out.mode,
            "accumulate": int(part.accumulate),
        }
        if not depthwise:
            yield self._step(job, Engine.COMPUTE, "conv", registers)
            return
        for row, count, rows in passes(geometry["out_rows"], part.at_once):
            several = {
                "origin_y": registers["origin_y"] + row * down,
                "stride_y": rows * down,
                "kernel_rows": tall(part.ky[1], down, rows),
                "out_rows": count,
                "oc_steps": rows,
                "psum": geometry["psum"]
                + block * geometry["psum_block_pitch"]
                + row * geometry["out_cols"],
            }
            yield self._step(job, Engine.COMPUTE, "depthwise", registers | several)

    def _post(
        self,
        job: Job,
        out: OutputRange,
        rect: Rect,
        psum: int,
        target: "Target",
    ) -> Iterator[Step]:
        """Post chain and store of a tile, as many channel blocks at a time as the output and
        residual banks hold. target: where the feature buffer gets the words, too.
        """
        shape = job.layer.shape
        row, rows, col, cols = rect
        mid = mid_tile(shape, *rect)
        one = (mid[1] - mid[0]) // (images_of(shape, rows) if shape.pool else 1)
        mid_pixels = shape.words(mid[1] - mid[0], mid[4] - mid[3])
        cols, mid_cols = ceil_div(cols, shape.stored_px), ceil_div(mid[4] - mid[3], shape.px)
        at_once = self._hw.buffers.output.bank_words // (rows * cols)
        if shape.sides:
            pixels = sum(shape.side_words(mid_pixels, rows * cols))
            at_once = min(at_once, self._hw.buffers.residual.bank_words // pixels)
        if shape.leaves_maxima(job.planned.tile.rows):
            at_once = min(at_once, self._hw.buffers.residual.bank_words // cols)
        params = yield from self._load_params(job, out)
        table = yield from self._load_table(job)
        for at, blocks in spans(out.blocks, at_once):
            residual = yield from self._load_residuals(job, out.block + at, blocks, rect, mid)
            above = yield from self._load_carried(job, out.block + at, blocks, rect)
            base, _ = self._banks[Space.OUTPUT].take(None)
            common = {
                **job.layer.post,
                **residual,
                **table,
                "psum": psum + at * mid_pixels,
                "psum_row_pitch": mid_cols,
                "psum_block_pitch": mid_pixels,
                "in_rows": one,
                "in_cols": cols if shape.spread else mid_cols,
                "blocks": blocks,
                "param": params + at * shape.param_words,
                "out_row_pitch": cols,
                "out_block_pitch": rows * cols,
                "pool_slots": shape.px if shape.pool and shape.px > 1 else 0,
                "spread": shape.px if shape.spread else 0,
                **order_registers(chain_of(self._hw).pack(job.layer.order)),
            }
            for whole in tile_parts(job.layer, (row, rows, col, cols)):
                first = whole.image * shape.out_rows + whole.y
                words = out.block + at, row + first, whole.rows, col // shape.stored_px + whole.x
                for more, count, kept in target(*words):
                    part, y = replace(whole, y=whole.y + more), first + more
                    yield self._step(
                        job,
                        Engine.POST,
                        "run",
                        {
                            **common,
                            **part.average,
                            **(above if part.carried else {}),
                            **sub_rectangle(job.layer, common, mid, part, cols),
                            "psum": common["psum"] + part.image * one * mid_cols,
                            "out": base + y * cols + part.x,
                            **kept,
                            "out_rows": count,
                            "out_cols": part.cols,
                        },
                        (mid[0] + part.image * one, mid[3], row + y, col + part.x, out.block + at),
                    )
            if job.output is not None:
                for registers in stores(job, job.output, base, rect, out.block + at, blocks):
                    yield self._step(job, Engine.STORE, "store", registers)
            if shape.carried_to(row + rows):
                yield from self._leave(job, common, out.block + at, rect, mid)
        self._made = Made.by(job.work, out, rect)

    def _leave(
        self, job: Job, common: Mapping[str, int], block: int, rect: Rect, mid: Mid
    ) -> Iterator[Step]:
        """The maxima of this tile's rows that windows of the tile below see, for that one."""
        row, rows, col, cols = rect
        whole = sub_rectangle(job.layer, common, mid, TilePart(y=rows, rows=1, cols=cols), cols)
        base, _ = self._banks[Space.OUTPUT].take(None)
        yield self._step(
            job,
            Engine.POST,
            "run",
            {
                **common,
                **whole,
                "win_rows": job.layer.shape.carried,
                "out": base,
                "out_row_pitch": cols,
                "out_block_pitch": cols,
                "out_rows": 1,
                "out_cols": cols,
                "keep": 0,
            },
            (mid[0], mid[3], row + rows, col, block),
        )
        yield self._step(
            job, Engine.STORE, "store", carried_store(job, base, rect, block, common["blocks"])
        )
