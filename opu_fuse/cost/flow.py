"""Cycles of passes that run one after the other, tile by tile: what a tile waits for, and what runs
beside what.

The walk is that of the schedule (banks in turn, what a bank holds is not loaded again, maps kept on
chip), the times are those of `hw.timing`. Four engines take their work in order; loads and stores
share the bytes a cycle of the memory (`Dram.rate`). Left out are the edges of bursts, pages,
instruction words behind the first and maps that give their memory to others.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import prod

from msgspec import Struct

from opu_fuse.cost.bringing import ISSUE, Bringing
from opu_fuse.cost.chunks import OutputRange, WeightChunk
from opu_fuse.cost.keeping import Keep
from opu_fuse.cost.reading import AHEAD, Made, Rect, count_parts, rows_read, walk
from opu_fuse.cost.tiles import (
    Span,
    carried_cycles,
    ceil_div,
    images_of,
    left_cycles,
    mid_tile,
    post_cycles,
    spans,
)
from opu_fuse.cost.turns import LOAD
from opu_fuse.cost.windows import depthwise_cycles
from opu_fuse.cost.work import Work
from opu_fuse.hw import timing
from opu_fuse.hw.spec import HwSpec
from opu_fuse.units.array import PARAM_WORDS
from opu_fuse.units.base import Space, Stage
from opu_fuse.units.table import TABLE_WORDS


class Target(Struct, frozen=True, kw_only=True):
    """Where post keeps a tile's words besides, from when on it may. pieces: output rows of each
    instruction; then: is told what was made.
    """

    free: float
    pieces: tuple[int, ...] = ()
    then: Callable[[Work, Span, int], None] | None = None


class Flow(Bringing):
    """Times of the engines while passes run one after the other."""

    def __init__(self, hw: HwSpec) -> None:
        super().__init__(hw)
        self.end = self.counted = 0.0
        self.spent: dict[int, float] = defaultdict(float)
        self._drain = timing.drain_cycles(hw)
        # Most passes end in an activation; what else they pass is not known here.
        self._post_drain = timing.post_drain_cycles(hw, (Stage.ACT,))
        self._store_ready = 0.0
        self._compute_ready = self._swept = self._next_row = 0.0
        self._post_ready = self._post_done = 0.0
        self._sweeps: dict[tuple[int, tuple[int, int]], tuple[int, int, int]] = {}
        self._posts: dict[object, tuple[int, tuple[int, ...], list[int]]] = {}

    def layer(self, work: Work, keep: Keep | None, behind: Work | None = None) -> None:
        """All tiles of a pass. keep: the map on chip that its output is part of; behind: what comes
        next.
        """
        banks = self._buffers[Space.FEATURE].banks
        tiles, (start, rows) = walk(work), work.rows_in
        first = rows = start + rows
        there = banks.find(work.held) is not None
        if keep is not None and not there and count_parts(work, banks.banks) == banks.banks:
            first = rows_read(work, *tiles[0])
            self._load_rows(work, start, first)
        for left, (out, rect) in zip(range(len(tiles), 0, -1), tiles, strict=True):
            psum = self._accumulate(work, out, rect, keep)
            if first < rows:
                self._load_rows(work, first, rows)
                first = rows
            if behind is not None and left <= AHEAD:
                self._load_ahead(work, behind)
            target = self._target(work, keep)
            self._post(work, out, rect, psum, target, stored=not keep or keep.stored)

    def side_by_side(self, work: Work, companion: Work) -> None:
        """All tiles of two passes, the companion's between those of the other."""
        ours, theirs = walk(work), walk(companion)
        done = 0
        for number, (out, rect) in enumerate(ours, 1):
            self._tile(work, out, rect)
            due = min(ceil_div(number * len(theirs), len(ours) - 1), len(theirs))
            for other_out, other_rect in theirs[done:due]:
                self._tile(companion, other_out, other_rect)
            done = due

    def _tile(self, work: Work, out: OutputRange, rect: Rect) -> None:
        self._post(work, out, rect, self._accumulate(work, out, rect, None), None)

    def _target(self, work: Work, keep: Keep | None) -> "Target | None":
        if keep is None:
            return None
        buffer = self._buffers[Space.FEATURE]
        base, _ = buffer.banks.take(work.bank_of(keep.node))

        def kept(work: Work, blocks: Span, rows: int) -> None:
            first = keep.block + blocks[0], blocks[1]
            self._kept.add(keep.node, work.output, first, rows, self._post_done)

        return Target(free=buffer.free.get(base, 0.0), then=kept)

    def _accumulate(
        self,
        work: Work,
        out: OutputRange,
        rect: Rect,
        keep: Keep | None,
        made: float | None = None,
    ) -> int:
        """Loads and compute of a tile. Returns where its partial sums lie. made: when its input was
        there, if that is in a ring.
        """
        shape, mid = work.shape, mid_tile(work.shape, *rect)
        psum, _ = self._buffers[Space.PSUM].banks.take(None)
        ready = self._buffers[Space.PSUM].free.get(psum, 0.0)
        images = images_of(shape, rect[1])
        size = (mid[1] - mid[0]) // images, ceil_div(mid[4] - mid[3], shape.px) * shape.px
        first = True
        for chunk in out.features:
            base, there = LOAD, made or 0.0
            if made is None:
                base, there = self._load_features(work, chunk, mid, keep)
            if not shape.array:
                start = ISSUE + max(self._compute_ready, there, ready)
                self._swept = max(start, self._swept) + images * out.blocks * prod(size)
                self._compute_ready = self._swept - prod(size)
            pre = None
            if shape.pre:
                pre, at = self._load_pre(work, chunk, mid[0] // shape.mid_rows, images)
                there = max(there, at)
            for part in chunk.weights:
                weight, at = self._load_weights(work, part)
                start = ISSUE + max(self._compute_ready, there, at, ready if first else 0.0)
                for _ in range(images):
                    self._sweep(work, out, part, size, start, waits=images > 1 and part.accumulate)
                    start = max(start, self._compute_ready + ISSUE)
                self._constants[Space.WEIGHT].use(weight, self._swept + self._drain)
                first = False
            self._buffers[Space.FEATURE].free[base] = self._swept + self._drain
            if pre is not None:
                self._constants[Space.PRE].use(pre, self._swept + self._drain)
        done = self._swept + self._drain
        self.spent[work.output] += done - self.counted
        self.counted = done
        return psum

    def _sweep(
        self,
        work: Work,
        out: OutputRange,
        part: WeightChunk,
        size: tuple[int, int],
        start: float,
        *,
        waits: bool,
    ) -> None:
        setup, length, early = self._sweep_of(work, out, part, size)
        first = max(start + setup, self._swept)
        if not work.shape.depthwise:
            first = max(first, self._next_row)
        if waits:
            first = max(first, self._swept + self._drain - 1)
        self._swept = first + length
        self._compute_ready = self._swept - early
        if not work.shape.depthwise:
            self._next_row = self._compute_ready - 1 + timing.MIN_ROW_CYCLES

    def _sweep_of(
        self, work: Work, out: OutputRange, part: WeightChunk, size: tuple[int, int]
    ) -> tuple[int, int, int]:
        """Cycles of an instruction: before its first sweep, of all sweeps, and how long before
        their end the next one may come. Nearly all tiles of a pass are alike.
        """
        key = id(part), size
        if key in self._sweeps:
            return self._sweeps[key]
        hw, shape, pixels = self._hw, work.shape, prod(size)
        if shape.depthwise:
            kernel = part.ky[1], part.kx[1]
            length = depthwise_cycles(shape, hw, size, part.segments, kernel, part.at_once)
            setup = max(hw.row_words, timing.SWEEP_SETUP_CYCLES)
            return self._sweeps.setdefault(key, (setup, length, hw.array.window_side))
        px = hw.array.modes[out.mode].px
        setup = timing.conv_setup_cycles(hw, px=px, pre=shape.pre, gate=shape.gated)
        rows = part.segments * part.ky[1] * part.kx[1] * part.groups
        last = pixels // px
        length = (rows - 1) * timing.row_cycles(hw, pixels, px) + last
        return self._sweeps.setdefault(key, (setup, length, last - 1))

    def _post(
        self,
        work: Work,
        out: OutputRange,
        rect: Rect,
        psum: int,
        target: "Target | None",
        *,
        stored: bool = True,
    ) -> None:
        """Post chain and stores of a tile, as many blocks at a time as the banks hold."""
        shape, (row, rows, _, cols), buffers = work.shape, rect, self._buffers
        cols, carried = ceil_div(cols, shape.stored_px), shape.carried_to(row)
        at_once, added, turns = self._post_of(work, rect, (target and target.pieces) or ())
        ready, words = self._swept + self._drain, shape.param_words
        params = tables = None
        if words:
            key = work.output, out.block
            params, there = self._load_once(Space.PARAM, key, out.blocks * words)
            ready = max(ready, there)
        if shape.tables:
            size = shape.tables * TABLE_WORDS
            tables, there = self._load_once(Space.TABLE, work.output, size)
            ready = max(ready, there)
        for at, blocks in spans(out.blocks, at_once):
            made = out.block + at, blocks
            start, residual = self._load_beside(work, made, row + rows, added, carried * cols)
            start = max(start, self._post_ready, ready)
            output, _ = buffers[Space.OUTPUT].banks.take(None)
            start = max(start, buffers[Space.OUTPUT].free.get(output, 0.0))
            self._run(start, turns, blocks, words, target)
            if residual is not None:
                buffers[Space.RESIDUAL].free[residual] = self._post_done
            if target is not None and target.then is not None:
                target.then(work, made, row + rows)
            self._buffers[Space.OUTPUT].free[output] = self._post_done
            if stored:
                self._store(work, output, made, row + rows, rows * cols)
            if shape.carried_to(row + rows):
                self._leave(work, made, words, cols)
        buffers[Space.PSUM].free[psum] = self._post_done
        if params is not None:
            self._constants[Space.PARAM].use(params, self._post_done)
        if tables is not None:
            self._constants[Space.TABLE].use(tables, self._post_done)
        self._made = Made.by(work, out, rect)

    def _post_of(
        self, work: Work, rect: Rect, pieces: tuple[int, ...]
    ) -> tuple[int, tuple[int, ...], list[int]]:
        """(channel blocks at a time, residual words of a block of every side, cycles of the visits
        of a block of each instruction that a tile takes). Nearly all tiles of a pass are alike.
        """
        hw, shape, (row, rows, _, cols) = self._hw, work.shape, rect
        key = id(work), rect if shape.pool else (rows, cols), pieces
        if key in self._posts:
            return self._posts[key]
        mid, cols = mid_tile(shape, *rect), ceil_div(cols, shape.stored_px)
        carried = shape.carried_to(row)
        added = shape.side_words(shape.words(mid[1] - mid[0], mid[4] - mid[3]), rows * cols)
        at_once = hw.buffers.output.bank_words // (rows * cols)
        if added or shape.leaves_maxima(work.tile.rows):
            at_once = min(at_once, hw.buffers.residual.bank_words // (sum(added) or cols))
        images = images_of(shape, rows) if shape.pool else 1
        counts, first = list(pieces or (rows // images,) * images), []
        if carried:
            first = [carried_cycles(shape, hw, cols)]
            counts = [count for count in (counts[0] - 1, *counts[1:]) if count]
        window = shape.pool_window.kernel[0]
        turns = first + [post_cycles(shape, hw, count, cols, window) for count in counts]
        return self._posts.setdefault(key, (at_once, added, turns))

    def _leave(self, work: Work, made: Span, words: int, cols: int) -> None:
        """What a tile finds of the maxima of the one below, to memory."""
        output, _ = self._buffers[Space.OUTPUT].banks.take(None)
        turns = [left_cycles(work.shape, self._hw, cols)]
        free = self._buffers[Space.OUTPUT].free.get(output, 0.0)
        self._run(max(self._post_ready, free), turns, made[1], words, None)
        start = max(self._store_ready, self._post_done + ISSUE) + ISSUE
        moved = self._memory.move(start, made[1] * cols * self._hw.word_bytes)
        self._store_ready = max(start, moved - 1)
        self._buffers[Space.OUTPUT].free[output] = moved
        self._left[work.output, *made] = moved + self._hw.dram.latency

    def _run(
        self, start: float, turns: Sequence[int], blocks: int, words: int, target: "Target | None"
    ) -> None:
        """Post instructions whose visits of a block take so many cycles each."""
        if target is not None:
            start = max(start, self._features_there, target.free)
        start += ISSUE
        for count in turns:
            self._visit(start, count, blocks, words)
            start = self._post_ready
        if target is not None:
            self._kept_written = self._post_done

    def _visit(self, start: float, turns: int, blocks: int, words: int) -> None:
        words = max(words, PARAM_WORDS)  # without any, a pass waits about as long for other things
        period = timing.post_block_cycles(turns=turns, words=words)
        first = max(start + words + timing.POST_LOAD_CYCLES, self._post_done + 1)
        self._post_ready = first + (blocks - 1) * period + turns
        self._post_done = self._post_ready + self._post_drain

    def _store(self, work: Work, bank: int, blocks: Span, rows: int, words: int) -> None:
        """Channel blocks of a tile, of `words` words each, up to a row."""
        up_rows, up_cols = work.shape.upsample
        size = blocks[1] * words * self._hw.word_bytes
        start = max(self._store_ready, self._post_done + ISSUE) + ISSUE
        moved = self._memory.move(start, size * up_rows * up_cols)
        self._store_ready = max(start, moved - 1)
        self._buffers[Space.OUTPUT].free[bank] = moved
        self.end = max(self.end, moved + self._hw.dram.latency)
        place = self._places[work.output] = work.writes
        first = place.block + blocks[0], blocks[1]
        self._stored.add(place.home, work.output, first, rows * up_rows, self.end)
