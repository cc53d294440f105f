"""When the memory, the banks of a buffer and maps are ready, for `timing/time_sink.py`."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import NamedTuple

from msgspec import Struct, field

from opu_fuse.hw import unit_rates
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.tile_schedule.forking import Forking
from opu_fuse.tiling.tile import Span

INSTRUCTION_BYTES = 16
"""Of an instruction with its parameters: four words; 14 to 33 bytes in what was measured."""


class TooLate(Exception):
    """The array completes a tile after the deadline."""


class Read(NamedTuple):
    """The input of a compute step.

    bank: first word of the feature bank;
    ready: cycle at which the input is complete;
    images: images of the tile;
    size: rows and columns of partial sums per image.
    """

    bank: int
    ready: float
    images: int
    size: tuple[int, int]


class Memory(Forking):
    """Memory bandwidth, first come first served.

    used: cycles in which bytes moved.
    """

    def __init__(self, hw: HwSpec) -> None:
        self._rate = hw.dram.rate
        self.used = 0.0
        self._busy = [(0.0, 0.0)]  # cycle spans, ascending
        prefetched = unit_rates.prefetch_beats(hw) * hw.dram.bus_bytes
        self._instruction_bytes = 0
        if hw.dram.is_slow:  # else words that are not prefetched take too little of it
            self._instruction_bytes = INSTRUCTION_BYTES
            prefetched //= 2  # between those of short and long programs
        self._move(0, prefetched)  # goes first
        self._to_fetch = -prefetched  # bytes of instructions

    def detach(self) -> None:
        self._busy = self._busy.copy()

    def fetch(self, instructions: int) -> None:
        """Count instructions: their words move with the next transfer."""
        self._to_fetch += instructions * self._instruction_bytes

    def transfer(self, start: float, size: int) -> float:
        """Move bytes and the instruction words up to here; return the cycle after the last one."""
        self.fetch(1)
        fetched, self._to_fetch = max(self._to_fetch, 0), min(self._to_fetch, 0)
        return self._move(start, size + fetched)

    def _move(self, start: float, size: int) -> float:
        """Reserve the first idle cycles from `start` on; return the cycle after the last byte."""
        left, at = size / self._rate, start
        self.used += left
        begin, end = self._busy[-1]
        if end <= start:
            self._busy.append((start, start + left))
            return start + left
        if begin <= start and left:
            self._busy[-1] = begin, end + left
            return end + left
        first = len(self._busy)
        while first and self._busy[first - 1][1] > start:
            first -= 1
        taken: list[tuple[float, float]] = []
        for begin, end in self._busy[first:]:
            if at + left <= begin:
                break
            if begin > at:
                taken.append((at, begin))
                left -= begin - at
            at = max(at, end)
        taken.append((at, at + left))
        merged: list[tuple[float, float]] = []
        for begin, end in sorted(self._busy[first:] + taken):
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        self._busy[first:] = merged
        return at + left


class Buffer(Struct):
    """Cycles of the banks of a buffer, or of parts of any size, by first word.

    reusable: the bank may be overwritten;
    ready: its load is complete;
    ends: the word after it, of parts of the feature buffer.
    """

    reusable: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    ready: dict[int, float] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def fork(self) -> "Buffer":
        """A copy that goes its own way."""
        return Buffer(self.reusable.copy(), self.ready.copy(), self.ends.copy())

    def change_banks(self, first: int, words: int) -> None:
        """Let new banks wait for all that began at these words before."""
        known, over = self.reusable, range(first, first + words)
        last = max((until for at, until in known.items() if at in over), default=0.0)
        kept = {at: until for at, until in known.items() if at not in over}
        self.reusable = defaultdict(lambda: last, kept)
        self.ends = {at: end for at, end in self.ends.items() if at in kept}

    def overwritable(self, part: int, words: Span) -> float:
        """Cycle from which words of a part may be overwritten, after the last readers of the parts
        that were there. part: its first word; negative: line buffers, which know their readers.
        """
        result, (first, count), ends = self.reusable[part], words, self.ends
        if part < 0:
            return result
        end = first + count
        for at in [at for at, last in ends.items() if at < end and first < last and at != part]:
            result = max(result, self.reusable[at])
            if first <= at and ends[at] <= end:
                del ends[at], self.reusable[at]
        ends[part] = end if first == part else max(ends.get(part, end), end)
        return result


class Constants(Forking):
    """Cycles of a scratchpad.

    ready: first word of an entry -> cycle at which its load is complete.
    """

    def __init__(self) -> None:
        self.ready: dict[int, float] = {}
        # Disjoint word spans, ascending -> cycle of their last read.
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self._until: list[float] = []

    def detach(self) -> None:
        self.ready, self._until = self.ready.copy(), self._until.copy()
        self._firsts, self._ends = self._firsts.copy(), self._ends.copy()

    def until(self, words: Span) -> float:
        """Cycle from which the words may be overwritten."""
        result = self._until[self._over(words)]
        return max(result) if result else 0.0

    def use(self, words: Span, at: float) -> None:
        """Note that the words are read until cycle `at`."""
        first, end = words[0], words[0] + words[1]
        known = bisect_left(self._firsts, first)
        if known < len(self._firsts) and (self._firsts[known], self._ends[known]) == (first, end):
            self._until[known] = at  # the common case: an entry read before
            return
        over = self._over(words)
        firsts, ends, until = self._firsts[over], self._ends[over], self._until[over]
        cut = [(first, end, at)]  # the remainders of partly covered spans keep their cycles
        if firsts and firsts[0] < first:
            cut.insert(0, (firsts[0], first, until[0]))
        if ends and ends[-1] > end:
            cut.append((end, ends[-1], until[-1]))
        self._firsts[over] = [piece[0] for piece in cut]
        self._ends[over] = [piece[1] for piece in cut]
        self._until[over] = [piece[2] for piece in cut]

    def _over(self, words: Span) -> slice:
        first, count = words
        return slice(bisect_right(self._ends, first), bisect_left(self._firsts, first + count))


class _Piece(Struct):
    """Progress of one producer in its channel blocks.

    rows, at: complete rows (or words) and the cycle of completion, both ascending; reports without
    new ones are dropped;
    last: cycle of the last report.
    """

    rows: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    last: float = 0.0

    def fork(self) -> "_Piece":
        return _Piece(self.rows.copy(), self.at.copy(), self.last)

    def since(self, rows: int) -> float:
        first = bisect_left(self.rows, rows)
        return self.at[first] if first < len(self.at) else self.last


class Progress(Forking):
    """Completed rows (or words) of maps by DFG index.

    One `_Piece` per producing layer and channel blocks.
    """

    def __init__(self) -> None:
        self._maps: dict[int, dict[tuple[int, int, int], _Piece]] = {}

    def detach(self) -> None:
        self._maps = {
            value: {key: piece.fork() for key, piece in pieces.items()}
            for value, pieces in self._maps.items()
        }

    def add(self, value: int, producer: int, blocks: Span, rows: int, at: float) -> None:
        """Note that the first `rows` rows of channel blocks are complete at cycle `at`."""
        piece = self._maps.setdefault(value, {}).setdefault((producer, *blocks), _Piece())
        piece.last = at
        if not piece.rows or rows > piece.rows[-1]:
            piece.rows.append(rows)
            piece.at.append(at)

    def forget(self, value: int) -> None:
        """Drop the progress of a map, because it is loaded again."""
        self._maps.pop(value, None)

    def since(self, value: int, blocks: Span, rows: int) -> float:
        """Cycle at which the first rows of channel blocks are ready; the last one known if they are
        incomplete.
        """
        result = 0.0
        for (_, first, count), piece in self._maps.get(value, {}).items():
            if first < sum(blocks) and blocks[0] < first + count:
                result = max(result, piece.since(rows))
        return result
