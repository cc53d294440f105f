"""DRAM behind the bus: reads and writes in order, one budget of beats for both.

As the memory of the RTL simulation (`opu_axi_memory`), in stretches of constant speed: while budget
is saved a direction moves a beat a cycle; without, those that move share what comes in.
"""

from collections import deque
from math import ceil, inf

_EPSILON = 1e-6
_SAVED_BEATS = 1.0
"""Budget that is kept for later, at most."""


class Memory:
    """reads, writes: current and waiting bursts as (cycle of the first beat at the earliest,
    beats, tag), in order. next: cycle of the next change.
    """

    __slots__ = (
        *("next", "reads", "writes"),
        *("_moving", "_now", "_rate", "_read_left", "_saved", "_speed", "_write_left"),
    )

    def __init__(self, rate: float) -> None:
        """rate: beats per cycle."""
        self.reads: deque[tuple[int, int, int]] = deque()
        self.writes: deque[tuple[int, int, int]] = deque()
        self.next = inf
        self._rate = rate
        self._saved = 0.0
        self._now = 0.0  # cycle up to which beats are moved
        self._read_left = self._write_left = inf  # beats of the current burst, inf: none
        self._moving = 0  # directions that move
        self._speed = 1.0  # of each

    def plan(self) -> None:
        """Find `next` after a burst was added or beats were moved."""
        now = self._now
        moving = self._moving = (self._read_left < inf) + (self._write_left < inf)
        scarce = moving > self._rate
        if scarce and self._saved < _EPSILON:
            self._speed = self._rate / moving
            at = now + min(self._read_left, self._write_left) / self._speed
        else:
            self._speed = 1.0
            at = now + min(self._read_left, self._write_left)
            if scarce:
                at = min(at, now + self._saved / (moving - self._rate))
        if self._read_left == inf and self.reads:
            at = min(at, max(now, self.reads[0][0]))
        if self._write_left == inf and self.writes:
            at = min(at, max(now, self.writes[0][0]))
        self.next = at

    def move(self) -> tuple[int | None, int | None, int]:
        """Go on to `next`: tags of the read and of the write that moved their last beat, and the
        cycle behind it.
        """
        cycles = self.next - self._now
        moved = cycles * self._speed
        saved = self._saved + cycles * self._rate - self._moving * moved
        self._saved = min(saved, _SAVED_BEATS)
        self._now = now = self.next
        self._read_left -= moved
        self._write_left -= moved
        read = write = None
        if self._read_left < _EPSILON:
            self._read_left, read = inf, self.reads.popleft()[2]
        if self._write_left < _EPSILON:
            self._write_left, write = inf, self.writes.popleft()[2]
        if self._read_left == inf and self.reads and self.reads[0][0] <= now:
            self._read_left = self.reads[0][1]
        if self._write_left == inf and self.writes and self.writes[0][0] <= now:
            self._write_left = self.writes[0][1]
        self.plan()
        return read, write, ceil(now - _EPSILON)
