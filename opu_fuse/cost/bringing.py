"""Loads of passes that run one after the other (`cost/flow.py`): when what tiles read is there."""

from collections import defaultdict
from collections.abc import Hashable, Sequence

from opu_fuse.cost.banks import map_banks, places
from opu_fuse.cost.chunks import FeatureChunk, WeightChunk
from opu_fuse.cost.keeping import Keep
from opu_fuse.cost.reading import NOTHING, Mid, Part, in_time, window
from opu_fuse.cost.tiles import Span
from opu_fuse.cost.times import Buffer, Constants, Memory, Progress
from opu_fuse.cost.unfolding import pieces
from opu_fuse.cost.work import Work
from opu_fuse.hw import timing
from opu_fuse.hw.spec import HwSpec
from opu_fuse.layout.decided import Place
from opu_fuse.layout.shape import Unfolded
from opu_fuse.units.base import Space

ISSUE = 3
"""Cycles from the token of another engine to the start."""

FIRST_WORDS = 18
"""Instruction words, one a cycle, up to the first load's last."""


class Bringing:
    """Times of load: banks, what they hold, and the memory that stores share."""

    def __init__(self, hw: HwSpec) -> None:
        self._hw = hw
        self._buffers = {space: Buffer(banks) for space, banks in map_banks(hw).items()}
        self._constants = {space: Constants(found) for space, found in places(hw).items()}
        self._memory = Memory(hw.dram.rate)
        self._memory.move(0, timing.fetch_ahead_beats(hw) * hw.dram.bus_bytes)  # goes first
        self._load_ready = hw.dram.latency + FIRST_WORDS  # the next transfer may start
        self._kept_written = self._features_there = 0.0  # of the write port that post shares
        self._stored, self._kept = Progress(), Progress()
        self._made = NOTHING
        self._places: dict[int, Place] = {}  # of what was made
        self._left: dict[tuple[int, int, int], float] = defaultdict(float)  # for tiles below

    @property
    def memory_used(self) -> float:
        """Cycles in which bytes moved."""
        return self._memory.used

    def _load(self, space: Space, base: int, size: int, after: float = 0.0) -> float:
        """Bytes into a bank, not before its last reader and `after`; when they are there."""
        buffer = self._buffers[space]
        buffer.there[base] = self._move(size, max(buffer.free.get(base, 0.0), after))
        return buffer.there[base]

    def _move(self, size: int, after: float) -> float:
        """Bytes from memory, not before `after`; when they are there."""
        start = ISSUE + max(self._load_ready, after)
        moved = self._memory.move(start, size)
        self._load_ready = max(start, moved - 1)  # addresses go ahead of data
        return moved + self._hw.dram.latency

    def _load_once(
        self, space: Space, key: object, words: int, after: float = 0.0
    ) -> tuple[Span, float]:
        """Constants, unless they are there: their words, and when they are there."""
        found = self._constants[space]
        base, held = found.places.take(key, words)
        place = base, words
        if not held:
            width = self._hw.buffers.weight.width if space is Space.WEIGHT else self._hw.word_bytes
            found.there[base] = self._move(words * width, max(after, found.until(place)))
        return place, found.there[base]

    def _bring(
        self, work: Work, base: int, rows: Span, words: int, blocks: int, after: float
    ) -> float:
        """Rows of the input of a pass, so many words of each block's; when they are there."""
        if work.shape.unfolded is not None:
            return self._unfold(work.shape.unfolded, base, rows, words, after)
        size = blocks * rows[1] * words * self._hw.word_bytes
        return self._load(Space.FEATURE, base, size, after)

    def _unfold(self, unfolded: Unfolded, base: int, rows: Span, words: int, after: float) -> float:
        """Unfolded rows into a bank: the image, then load at work on it; when they are there."""
        word, there = self._hw.word_bytes, after
        for piece in pieces(unfolded, *rows, words, self._hw):
            loaded = self._load(Space.IMAGE, 0, piece.count * words * word)
            there = max(loaded, self._buffers[Space.FEATURE].free.get(base, 0.0), after) + ISSUE
            there += timing.unfold_cycles(words, piece.rows, unfolded.kernel_rows)
            self._load_ready = self._buffers[Space.IMAGE].free[0] = there
        self._buffers[Space.FEATURE].there[base] = there
        return there

    def _load_rows(self, work: Work, first: int, behind: int) -> None:
        layout = work.reads.layout
        base, _ = self._buffers[Space.FEATURE].banks.take(work.held)
        blocks = work.reads.block, layout.blocks
        after = self._stored.since(work.reads.home, blocks, behind)
        rows = first, behind - first
        at = self._bring(work, base, rows, work.row_words, layout.blocks, after)
        if first == work.rows_in[0]:
            self._kept.forget(work.source)
        self._kept.add(work.source, work.source, (0, layout.blocks), behind, at)

    def _load_features(
        self, work: Work, chunk: FeatureChunk, mid: Mid, keep: Keep | None
    ) -> tuple[int, float]:
        """The bank in which a tile's input lies, and from when on."""
        buffer, part = self._buffers[Space.FEATURE], window(work, chunk, mid).part
        rows = sum(part.rows)
        kept = buffer.banks.find(work.held)
        if kept is not None:
            return kept, self._kept.since(work.source, part.blocks, rows)
        base, held = buffer.banks.take(part)
        if not held:
            waits = self._made.of(work, part)
            for blocks in in_time(part, waits):
                self._bring_part(work, base, part, blocks, keep)
            if waits[1]:
                for weights in chunk.weights[:1]:
                    self._load_weights(work, weights)
                self._bring_part(work, base, part, waits, keep)
        return base, buffer.there[base]

    def _bring_part(
        self, work: Work, base: int, part: Part, blocks: Span, keep: Keep | None
    ) -> None:
        """Some channel blocks of a part."""
        first, count = blocks
        stored = work.reads.block + first, count
        after = self._stored.since(work.reads.home, stored, sum(part.rows))
        after = after if keep is None else max(after, self._kept_written)
        self._features_there = self._bring(work, base, part.rows, part.words[1], count, after)

    def _load_ahead(self, work: Work, behind: Work) -> None:
        first = next(behind.weights, None)
        ours = {_weights(work, part) for part in work.weights}
        if first is not None and self._constants[Space.WEIGHT].places.spares(ours, first.words):
            self._load_weights(behind, first)

    def _load_weights(self, work: Work, part: WeightChunk) -> tuple[Span, float]:
        return self._load_once(Space.WEIGHT, _weights(work, part), part.words)

    def _load_pre(
        self, work: Work, chunk: FeatureChunk, image: int, images: int
    ) -> tuple[Span, float]:
        """Constants or gates of a chunk's blocks: their words, and when they are there."""
        words = work.shape.pre_words * chunk.blocks
        if work.gate is None:
            return self._load_once(Space.PRE, (work.output, chunk.block), words)
        after = self._since_stored(work.gate, (chunk.block, chunk.blocks), image + images)
        key = work.gate, chunk.block, chunk.blocks, image
        return self._load_once(Space.PRE, key, images * words, after)

    def _load_beside(
        self, work: Work, made: Span, rows: int, added: Sequence[int], carried: int
    ) -> tuple[float, int | None]:
        """Maps that stages read beside the pipeline's, words of each: when they are there, and in
        which bank. carried: words of what the tile above left.
        """
        words = (*added, carried) if carried else added
        if not words:
            return 0.0, None
        bank, _ = self._buffers[Space.RESIDUAL].banks.take(None)
        after = [self._since_stored(node, made, rows) for node in work.residuals]
        after += [self._left[work.output, *made]] * bool(carried)
        sizes = [made[1] * count * self._hw.word_bytes for count in words]
        loads = zip(sizes, after, strict=True)
        return max(self._load(Space.RESIDUAL, bank, *load) for load in loads), bank

    def _since_stored(self, value: int, blocks: Span, rows: int) -> float:
        place = self._places.get(value)
        home, first = (value, 0) if place is None else (place.home, place.block)
        return self._stored.since(home, (first + blocks[0], blocks[1]), rows)


def _weights(work: Work, part: WeightChunk) -> Hashable:
    """What a buffer holds that has them."""
    return work.output, id(work.ranges), part.offset
