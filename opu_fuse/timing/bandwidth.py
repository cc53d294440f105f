"""When the memory, the banks of a buffer and maps are ready, for `timing/time_sink.py`."""

from bisect import bisect_left, bisect_right
from collections import defaultdict

from msgspec import Struct, field

from opu_fuse.tiling.tile import Span


class Memory:
    """Bytes a cycle, given to whoever asks first in time. busy: spans, ascending; used: cycles."""

    def __init__(self, bytes_per_cycle: float) -> None:
        self._rate = bytes_per_cycle
        self.used = 0.0
        self._busy: list[tuple[float, float]] = []

    def move(self, start: float, size: int) -> float:
        """Take the first free cycles from `start` on; when the last byte has moved."""
        left, at = size / self._rate, start
        self.used += left
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
    """Times of banks, by their first word. reusable: when they may be overwritten; ready: when what
    they hold has come.
    """

    reusable: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    ready: dict[int, float] = field(default_factory=dict)


class Constants:
    """Times of a scratchpad. ready: when what begins with a word has come."""

    def __init__(self) -> None:
        self.ready: dict[int, float] = {}
        # Disjoint spans that are read, ascending: until when.
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self._until: list[float] = []

    def until(self, words: Span) -> float:
        """When they may be overwritten."""
        found = self._until[self._over(words)]
        return max(found) if found else 0.0

    def use(self, words: Span, at: float) -> None:
        """They are read until then."""
        first, behind = words[0], words[0] + words[1]
        known = bisect_left(self._firsts, first)
        if self._firsts[known : known + 1] == [first] and self._ends[known] == behind:
            self._until[known] = at  # as nearly always
            return
        over = self._over(words)
        firsts, ends, until = self._firsts[over], self._ends[over], self._until[over]
        cut = [(first, behind, at)]  # what is left of the spans at both ends keeps its time
        if firsts and firsts[0] < first:
            cut.insert(0, (firsts[0], first, until[0]))
        if ends and ends[-1] > behind:
            cut.append((behind, ends[-1], until[-1]))
        self._firsts[over] = [one[0] for one in cut]
        self._ends[over] = [one[1] for one in cut]
        self._until[over] = [one[2] for one in cut]

    def _over(self, words: Span) -> slice:
        first, count = words
        return slice(bisect_right(self._ends, first), bisect_left(self._firsts, first + count))


class _Piece(Struct):
    """Of one layer's channel blocks. rows, at: each time more rows than ever before were complete,
    how many and when; last: when it was last told. Many tiles tell of the same rows, so what adds
    nothing is not kept, and what is kept ascends.
    """

    rows: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    last: float = 0.0

    def since(self, rows: int) -> float:
        first = bisect_left(self.rows, rows)
        return self.at[first] if first < len(self.at) else self.last


class Progress:
    """From when on maps are there, by the DFG index of a map: of every piece of it, made by one
    layer in the same channel blocks, the rows that are complete and since when.
    """

    def __init__(self) -> None:
        self._maps: dict[int, dict[tuple[int, int, int], _Piece]] = {}

    def add(self, home: int, maker: int, blocks: Span, rows: int, at: float) -> None:
        """The first rows of channel blocks are complete."""
        piece = self._maps.setdefault(home, {}).setdefault((maker, *blocks), _Piece())
        piece.last = at
        if not piece.rows or rows > piece.rows[-1]:
            piece.rows.append(rows)
            piece.at.append(at)

    def forget(self, home: int) -> None:
        """It is loaded anew."""
        self._maps.pop(home, None)

    def since(self, home: int, blocks: Span, rows: int) -> float:
        """From when on the first rows of channel blocks are there; all that is known of them where
        they are not.
        """
        found = 0.0
        for (_, first, count), piece in self._maps.get(home, {}).items():
            if first < sum(blocks) and blocks[0] < first + count:
                found = max(found, piece.since(rows))
        return found
