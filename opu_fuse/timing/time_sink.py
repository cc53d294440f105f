"""Predicted times of a tile schedule: what every operation waits for, and how long it takes.

The times are those of `hw/unit_rates.py`. Four engines run their instructions in order; loads and
stores share the memory bandwidth (`Dram.rate`), behind a slow memory with instruction words. The
model leaves out the edges of bursts, pages, and waits for memory that later maps reuse.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import inf, prod

from opu_fuse.hw import unit_rates
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import Storage
from opu_fuse.layout.permutation import Transfers
from opu_fuse.tile_schedule.forking import Forking
from opu_fuse.tile_schedule.fused_heads import ResidentTile
from opu_fuse.tile_schedule.fused_stack import FusedStack
from opu_fuse.tile_schedule.line_buffers import LineBuffer
from opu_fuse.tile_schedule.scratchpad import CONSTANTS
from opu_fuse.tile_schedule.sink import (
    ComputeStep,
    Destination,
    FeatureLoad,
    FeatureSource,
    PostStep,
    ToBank,
)
from opu_fuse.tile_schedule.slot_lines import TimeSlot
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tiling.chunks import OutputRange, WeightChunk
from opu_fuse.tiling.estimate import halo_store_cycles
from opu_fuse.tiling.im2row import Piece
from opu_fuse.tiling.tile import Rect, Span, ceil_div
from opu_fuse.timing.array_sweeps import compute_timing
from opu_fuse.timing.bandwidth import Buffer, Constants, Memory, Progress, Read, TooLate
from opu_fuse.timing.post_iterations import iteration_cycles
from opu_fuse.timing.slot_times import SlotTimes
from opu_fuse.units.array import PARAM_WORDS
from opu_fuse.units.base import Space, Stage

ISSUE = 3
"""Cycles from the token of another engine to the start."""

FIRST_WORDS = 18
"""Instruction words, one a cycle, up to the first load's last."""


class TimeSink(Forking):
    """Cycles of the engines.

    deadline: of the array's tiles; swept: cycles in which the array computes;
    memory: bandwidth, and cycles in which bytes moved;
    end: cycle of the last store;
    spent: DFG index of an output -> cycles, counted until the array completes it;
    idle: of every unit (`segment_cycles.timed`).
    """

    def __init__(self, hw: HwSpec) -> None:
        self._hw, self._word, self._latency = hw, hw.word_bytes, hw.dram.latency
        self._buffers = {space: Buffer() for space in Space}
        self._constants = {space: Constants() for space in CONSTANTS}
        self._widths: dict[Space, int] = dict.fromkeys(CONSTANTS, hw.word_bytes)
        self._widths[Space.WEIGHT] = hw.buffers.weight.width
        self._bank_words = hw.buffers.feature.bank_words
        self._name_buffers()
        self.memory = Memory(hw)
        self.end, self.counted, self.swept, self.deadline = 0.0, 0.0, 0.0, inf
        self.spent: dict[int, float] = defaultdict(float)
        self.idle: list[float] = []
        self._drain = unit_rates.drain_cycles(hw)
        # Most passes end in an activation; the other stages are not known here.
        self._post_drain = unit_rates.post_drain_cycles(hw, (Stage.ACT,))
        norm_drain = unit_rates.post_drain_cycles(hw, (Stage.NORM,))
        self._hold_and_drain = (0, self._post_drain), (unit_rates.hold_cycles(hw), norm_drain)
        self._load_ready = hw.dram.latency + FIRST_WORDS  # the next transfer may start
        self._store_ready = 0.0
        self._compute_ready = self._swept = self._next_row = 0.0
        self._post_ready = self._post_done = self._post_held = 0.0
        # Load and post share the write port of the feature buffer.
        self._resident_written = self._features_ready = 0.0
        self._stored, self._resident = Progress(), Progress()
        # (output, first block, blocks) -> cycle at which the pooling halo is in DRAM
        self._halos: dict[tuple[int, int, int], float] = defaultdict(float)
        self._sweeps: dict[object, tuple[int, int, int, int]] = {}
        self._iterations: dict[object, list[int]] = {}
        self._slots = SlotTimes()

    def _name_buffers(self) -> None:
        """Looking a `Space` up takes longer than most steps of this model."""
        spaces = Space.FEATURE, Space.PSUM, Space.OUTPUT, Space.RESIDUAL
        named = map(self._buffers.__getitem__, spaces)
        self._features, self._psums, self._outputs, self._operands = named
        self._weights, self._pre = self._constants[Space.WEIGHT], self._constants[Space.PRE]

    def detach(self) -> None:
        """Copy all that changes; not within a fused stack."""
        self._slots = SlotTimes()
        self._buffers = {space: buffer.fork() for space, buffer in self._buffers.items()}
        self._constants = {space: each.fork() for space, each in self._constants.items()}
        self._name_buffers()
        self.memory, self.spent = self.memory.fork(), self.spent.copy()
        self._stored, self._resident = self._stored.fork(), self._resident.fork()
        self._halos = self._halos.copy()
        self._sweeps, self._iterations = self._sweeps.copy(), self._iterations.copy()

    def stack(self, stack: FusedStack) -> None:
        """Start a fused stack."""
        self._slots.start(stack)

    def slot(self, slot: TimeSlot | None) -> None:
        """End the time slot before, and start another."""
        computed = self._swept + self._drain
        self._slots.proceed(slot, self._features_ready, computed, self._post_done)

    def change_banks(self, spaces: Iterable[Space], words: Span | None = None) -> None:
        """Let every new bank of a buffer wait for those before. words: that change; None: all."""
        for space in spaces:
            self._buffers[space].change_banks(*(words or (0, 1 << 32)))

    def load_features(self, layer: TiledLayer, load: FeatureLoad) -> None:
        """Transfer a part of the input."""
        words, after = load.blocks[1] * load.rows[1] * load.words[1], self._after(layer, load)
        fresh = not load.resident or load.begins_at(layer.rows_in[0])  # else no words being read
        after = max(after, self._overwritable(load, words)) if fresh else after
        ready = self._move(words * self._word, after)
        if fresh:
            self._features.ready[load.bank] = ready
        self._loaded(layer, load, ready)

    def im2row(self, layer: TiledLayer, load: FeatureLoad, piece: Piece, image: int) -> None:
        """Transfer image rows without waiting for the feature buffer, then run im2row in load."""
        im2row, images = layer.shape.im2row, self._buffers[Space.IMAGE]
        assert im2row is not None, "its input is an im2row map"
        size = piece.count * load.words[1] * self._word
        loaded = self._load(images, image, size, self._in_memory(layer, load))
        words = load.blocks[1] * load.rows[1] * im2row.row_words(load.words[1])
        ready = max(loaded, self._overwritable(load, words), self._after(layer, load)) + ISSUE
        ready += unit_rates.im2row_cycles(load.words[1], piece.rows, im2row.kernel_rows)
        images.reusable[image] = self._features.ready[load.bank] = ready
        self._load_ready = ready
        if piece.done + piece.rows == load.rows[1]:
            self._loaded(layer, load, ready)

    def _overwritable(self, load: FeatureLoad, words: int) -> float:
        """Cycle from which words of a part, or all of the bank of a whole map, are reusable."""
        first, words = (load.bank, self._bank_words) if load.resident else (load.word, words)
        return self._features.overwritable(load.bank, (first, words))

    def _after(self, layer: TiledLayer, load: FeatureLoad) -> float:
        """Cycle at which the source is in DRAM, and its target and the write port are reusable."""
        return max(self._in_memory(layer, load), self._slots.reusable, self._resident_written)

    def _in_memory(self, layer: TiledLayer, load: FeatureLoad) -> float:
        reads, (first, count), words = layer.reads, load.blocks, load.complete * layer.row_words
        part_of_row = load.resident or reads.layout.is_row
        words += (sum(load.words) - layer.row_words) * part_of_row  # of its last row
        return self._stored.since(reads.alias_root, (reads.block + first, count), words)

    def _loaded(self, layer: TiledLayer, load: FeatureLoad, ready: float) -> None:
        if not load.resident:
            self._features_ready = ready
            return
        if load.begins_at(layer.rows_in[0]):
            self._resident.forget(layer.source)
        complete = sum(load.words) if layer.reads.layout.is_row else load.complete
        self._resident.add(layer.source, layer.source, load.blocks, complete, ready)

    def _load(self, buffer: Buffer, bank: int, size: int, after: float) -> float:
        """Load bytes into a bank, after its last reader and `after`; return when it is ready."""
        buffer.ready[bank] = self._move(size, max(buffer.reusable[bank], after))
        return buffer.ready[bank]

    def _move(self, size: int, after: float) -> float:
        """Load bytes from DRAM, not before `after`; return when they are complete."""
        start = ISSUE + max(self._load_ready, after)
        moved = self.memory.transfer(start, size)
        self._load_ready = max(start, moved - 1)  # addresses are issued before the data arrives
        return moved + self._latency

    def load_constants(self, layer: TiledLayer, space: Space, offset: int, words: Span) -> None:  # noqa: ARG002  addresses take no time
        """Transfer constants into a scratchpad."""
        self._fill(space, words, 0.0)

    def load_weights(self, layer: TiledLayer, part: WeightChunk, image: int, words: Span) -> None:  # noqa: ARG002  all images alike
        """Transfer part of a map into the weight buffer after its store."""
        assert layer.reads_second is not None, "its weights are a map"
        second = layer.reads_second
        blocks, every = (second.block, second.layout.blocks), 1 << 32  # words
        self._fill(Space.WEIGHT, words, self._stored.since(second.alias_root, blocks, every))

    def load_gate(self, layer: TiledLayer, blocks: Span, images: Span, words: Span) -> None:
        """Transfer the gate after its store."""
        assert layer.reads_gate is not None, "it has a gate"
        self._fill(Space.PRE, words, self._since(layer.reads_gate, blocks, sum(images)))

    def _fill(self, space: Space, words: Span, after: float) -> None:
        """Transfer into a scratchpad, not before `after`."""
        constants, size = self._constants[space], words[1] * self._widths[space]
        constants.ready[words[0]] = self._move(size, max(after, constants.until(words)))

    def load_residuals(self, layer: TiledLayer, step: PostStep) -> None:
        """Transfer each operand."""
        assert step.residual is not None, "it has a bank"
        (row, rows, _, cols), pre_pool, shape = step.rect, step.pre_pool, layer.shape
        final, ready = shape.stored_words(rows, cols), 0.0
        added = shape.side_words(shape.words(pre_pool.rows, pre_pool.cols), final)
        for count, reads, side in zip(added, layer.reads_residuals, shape.sides, strict=True):
            size = step.blocks[1] * count * self._word
            words = shape.stored_words(row + rows, shape.side_cols(side))
            after = self._since(reads, step.blocks, words)
            ready = max(ready, self._load(self._operands, step.residual, size, after))
        self._operands.ready[step.residual] = ready

    def load_halo(self, layer: TiledLayer, step: PostStep) -> None:
        """Transfer the halo after the store of the tile above."""
        assert step.halo is not None, "it has a bank"
        size = step.blocks[1] * layer.shape.stored_words(1, step.rect.cols) * self._word
        self._load(self._operands, step.halo, size, self._halos[layer.output, *step.blocks])

    def _since(self, reads: Storage, blocks: Span, words: int) -> float:
        """Cycle at which the first words of channel blocks of a map are in DRAM."""
        return self._stored.since(reads.alias_root, (reads.block + blocks[0], blocks[1]), words)

    def read(self, layer: TiledLayer, source: FeatureSource) -> Read:
        """Return when the input of the following compute steps is ready."""
        pre_pool, images, ready = source.pre_pool, source.images, self._slots.needed
        if source.window is not None and source.resident:
            part = source.window.part
            complete = part.words if layer.reads.layout.is_row else part.rows
            ready = self._resident.since(layer.source, part.blocks, sum(complete))
        elif source.window is not None:
            ready = self._features.ready[source.bank]
        px = layer.shape.px
        size = pre_pool.rows // images, ceil_div(pre_pool.cols, px) * px
        return Read(source.bank, ready, images, size)

    def copy(self, layer: TiledLayer, out: OutputRange, psum: int, read: Read) -> None:  # noqa: ARG002  as every sink
        """Copy one pixel of a channel block per cycle."""
        bank, ready, images, size = read
        start = ISSUE + max(self._compute_ready, ready, self._psums.reusable[psum])
        self._swept = max(start, self._swept) + images * out.blocks * prod(size)
        self._compute_ready = self._swept - prod(size)
        self._features.reusable[bank] = self._swept + self._drain

    def compute(self, layer: TiledLayer, step: ComputeStep, read: Read) -> None:
        """Run one compute instruction per image, or that of the step's."""
        bank, ready, images, size = read
        part, weights, psum = step.part, self._weights, self._psums.reusable[step.psum]
        ready = max(ready, weights.ready[step.weights[0]], psum, self._compute_ready)
        if step.pre is not None:
            ready = max(ready, self._pre.ready[step.pre[0]])
        start, dense = ISSUE + ready, not layer.shape.depthwise
        kernel = part.ky[1], part.kx[1]
        key = id(layer), step.out.mode, size, part.segments, kernel, part.groups, part.rows
        timing = self._sweeps.get(key)
        if timing is None:  # most steps of a layer are alike
            timing = self._sweeps[key] = compute_timing(layer.shape, step, size, self._hw)
        sweeps, setup, length, early = timing
        images = sweeps if step.image is not None else sweeps * images
        self.swept += images * length
        self.memory.fetch(images)
        for _ in range(images):
            first = max(start + setup, self._swept)
            if dense:
                first = max(first, self._next_row)
            if images > 1 and part.accumulate:
                first = max(first, self._swept + self._drain - 1)
            self._swept = first + length
            self._compute_ready = self._swept - early
            if dense:
                self._next_row = self._compute_ready - 1 + unit_rates.MIN_ROW_CYCLES
            start = max(start, self._compute_ready + ISSUE)
        done = self._swept + self._drain
        self._features.reusable[bank] = done
        weights.use(step.weights, done)
        if step.pre is not None:
            self._pre.use(step.pre, done)

    def post(self, layer: TiledLayer, step: PostStep) -> None:
        """Run the post instructions of a tile, one after the other."""
        rect, to, constants = step.rect, step.to, step.constants
        done = self._swept + self._drain
        if done > self.deadline:
            raise TooLate
        self.spent[layer.output] += done - self.counted
        self.counted = done
        start = max(done, self._post_ready, self._outputs.reusable[step.output])
        for space, words in constants.items():
            start = max(start, self._constants[space].ready[words[0]])
        operands = [bank for bank in (step.residual, step.halo) if bank is not None]
        start = max([start, *(self._operands.ready[bank] for bank in operands)])
        # Passes of statistics do not write.
        writable = 0.0 if to is None else max(self._features_ready, self._slots.reusable)
        if isinstance(to, ToBank | ResidentTile):
            over = to.bank, self._bank_words if isinstance(to, ToBank) else 1
            writable = max(writable, self._features.overwritable(to.bank, over))
        each = self._iteration_cycles(layer, rect, to)
        runs = [(n, step.blocks[1], writable) for n in each]
        if step.statistics:
            runs = [(n, step.statistics, 0.0) for n in each * layer.shape.passes] + runs
        self._run(start, runs, layer)
        if to is not None:
            self._resident_written = self._post_done
            if isinstance(to, ResidentTile):
                self._features.ready[to.bank] = self._post_done
            if isinstance(to, ToBank):
                blocks = to.resident.block + step.blocks[0], step.blocks[1]
                complete = rect.row + rect.rows
                if to.resident.layout.is_row:
                    complete = ceil_div(rect.col + rect.cols, layer.shape.stored_px)
                self._resident.add(
                    to.resident.node, layer.output, blocks, complete, self._post_done
                )
        for bank in operands:
            self._operands.reusable[bank] = self._post_done
        self._outputs.reusable[step.output] = self._post_done
        self._release(step.psum, constants)

    def _release(self, psum: int, constants: Mapping[Space, Span]) -> None:
        """Mark partial sums and constants as reusable after post."""
        self._psums.reusable[psum] = self._post_done
        for space, words in constants.items():
            self._constants[space].use(words, self._post_done)

    def _iteration_cycles(self, layer: TiledLayer, rect: Rect, to: Destination) -> list[int]:
        """Cycles of the iterations over a block, per instruction of a tile; memoised."""
        pieces = ()
        if isinstance(to, LineBuffer):
            pieces = tuple(count for _, count, _ in to.written(rect.row, rect.rows))
        key = id(layer), rect if layer.shape.pool else (rect.rows, rect.cols), pieces
        if key not in self._iterations:
            self._iterations[key] = iteration_cycles(layer.shape, rect, pieces, self._hw)
        return self._iterations[key]

    def _run(self, start: float, runs: Iterable[tuple[int, int, float]], layer: TiledLayer) -> None:
        """Run post instructions: of each, iterations' cycles of a channel block, blocks, and when
        its results may be written.
        """
        # Without parameters, a pass waits about as long for other things.
        words = max(layer.shape.param_words, PARAM_WORDS)
        hold, drain = self._hold_and_drain[layer.shape.passes > 0]
        start += ISSUE
        for count, blocks, writable in runs:
            start = max(start, writable + ISSUE)
            period = unit_rates.post_block_cycles(iterations=count, words=words, hold=hold)
            loaded = max(start + unit_rates.POST_LOAD_CYCLES, self._post_held + 1) + words
            first = max(loaded, self._post_done + 1)
            last = first + (blocks - 1) * period
            self._post_held = last + hold if hold else 0.0  # a norm uses its parameters until then
            self._post_ready = start = last + count
            self._post_done = start + drain
            self.memory.fetch(1)

    def store(self, layer: TiledLayer, step: PostStep) -> None:
        """Transfer the output to DRAM."""
        shape, rect = layer.shape, step.rect
        if shape.permute is not None:
            self._permute(shape.permute.transfers(rect), step)
        else:
            words = rect.rows * ceil_div(rect.cols, shape.stored_px)
            self._store(step.output, step.blocks[1] * words * prod(shape.upsample))
        self.end = max(self.end, self._outputs.reusable[step.output] + self._latency)
        storage = layer.writes
        blocks = storage.block + step.blocks[0], step.blocks[1]
        words = layer.words_until(rect)
        if layer.writes.layout.is_row and shape.permute is None:
            words = ceil_div(rect.col + rect.cols, shape.stored_px)
        self._stored.add(storage.alias_root, layer.output, blocks, words, self.end)

    def _permute(self, each: Transfers, step: PostStep) -> None:
        """Transfer the output to DRAM in short runs. each: of a channel block."""
        blocks, start = step.blocks[1], max(self._store_ready, self._post_done)
        least = blocks * unit_rates.short_write_cycles(self._hw, *each)
        self._store(step.output, blocks * each.words, least)
        queued = unit_rates.queued_share(self._hw, blocks * each.instructions)
        fetched = start + (1 - queued) * (self._store_ready - start) if queued < 1 else 0.0
        self._load_ready = max(self._load_ready, fetched)
        self._compute_ready = max(self._compute_ready, fetched)
        self._post_ready = max(self._post_ready, fetched)

    def store_halo(self, layer: TiledLayer, step: PostStep, bank: int) -> None:
        """Run one more post instruction and transfer the halo to DRAM."""
        cols, blocks = ceil_div(step.rect.cols, layer.shape.stored_px), step.blocks[1]
        start = max(self._post_ready, self._outputs.reusable[bank])
        cycles = halo_store_cycles(layer.shape, self._hw, cols)
        self._run(start, [(cycles, blocks, 0.0)], layer)
        self._release(step.psum, step.constants)
        self._store(bank, blocks * cols)
        stored = self._outputs.reusable[bank] + self._latency
        self._halos[layer.output, *step.blocks] = stored

    def _store(self, bank: int, words: int, least: float = 0.0) -> None:
        """Store words of an output bank to DRAM, in so many cycles at least."""
        start = max(self._store_ready, self._post_done + ISSUE) + ISSUE
        moved = max(self.memory.transfer(start, words * self._word), start + least)
        self._store_ready = max(start, moved - 1)
        self._outputs.reusable[bank] = moved
