"""A DDR memory at the port of the machine, instead of `memory.Memory`.

It matches `opu_axi_memory` with `+ddr` cycle by cycle. Reads and writes have channels of their own
on the bus, of a beat a cycle each; they meet in the memory, which serves bursts as they come.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

from opu_fuse.hw.unit_rates import WRITE_DATA_CYCLES
from opu_fuse.sim.cycle.memory import WRITE_GRANT_CYCLES
from opu_fuse.sim.ddr import WRITE_SLOTS, Ddr

READ_CYCLES = 2
"""From a burst's request by load or fetch to its address at the memory."""


class _Part(NamedTuple):
    """end: cycle after its last beat."""

    end: int
    tag: int


class _Write(NamedTuple):
    at: int
    address: int
    beats: int
    tag: int


class Channel:
    """Parts of bursts whose end is known, in order; end: that of the last completed one."""

    __slots__ = ("end", "known", "parts")

    def __init__(self) -> None:
        self.parts: deque[_Part] = deque()
        self.end = 0
        self.known = 0  # end of the last beat that is planned

    def complete(self) -> int:
        """The first part has ended: its tag."""
        self.end, tag = self.parts.popleft()
        return tag


class DdrMemory:
    """next: cycle of the next event, which `move` applies."""

    __slots__ = ("_ddr", "_slots", "_waiting", "next", "reads", "writes")

    def __init__(self, ddr: Ddr) -> None:
        self._ddr = ddr
        self.reads, self.writes = Channel(), Channel()
        self.next: float = inf
        self._waiting: deque[_Write] = deque()  # the first one is in `writes`
        self._slots: deque[int] = deque([0] * WRITE_SLOTS)  # cycle from which each is free

    def ask_read(self, at: int, address: int, parts: Sequence[tuple[int, int]]) -> None:
        """As `Memory.ask_read`."""
        due = iter(self._ddr.read(at + READ_CYCLES, address, sum(beats for beats, _ in parts)))
        for beats, tag in parts:
            self.reads.known = _passed(self.reads.known, due, beats)
            self.reads.parts.append(_Part(self.reads.known, tag))
        self._plan()

    def ask_write(self, at: int, address: int, beats: int, tag: int) -> None:
        """As `Memory.ask_write`."""
        self._waiting.append(_Write(at, address, beats, tag))
        if len(self._waiting) == 1:
            self._accept()
        self._plan()

    def move(self) -> tuple[int | None, int | None]:
        """Apply the event; return the tags of the read and the write burst that ended."""
        read = write = None
        now = self.next
        if self._next_write() == now:
            write = self.writes.complete()
            burst = self._waiting.popleft()
            self._slots.append(self._ddr.write(self.writes.end, burst.address, burst.beats))
            if self._waiting:
                self._accept()
        if self._next_read() == now:
            read = self.reads.complete()
        self._plan()
        return read, write

    def _accept(self) -> None:
        """The first waiting burst is taken next: a beat a cycle once it has a slot."""
        burst, writes = self._waiting[0], self.writes
        granted = max(burst.at + WRITE_GRANT_CYCLES, writes.known, self._slots.popleft())
        writes.known = max(granted, burst.at + WRITE_DATA_CYCLES) + burst.beats
        writes.parts.append(_Part(writes.known, burst.tag))

    def _next_read(self) -> float:
        return self.reads.parts[0].end if self.reads.parts else inf

    def _next_write(self) -> float:
        """Early by what a read takes to the memory, since the memory serves both as they come."""
        return self.writes.parts[0].end - READ_CYCLES if self.writes.parts else inf

    def _plan(self) -> None:
        self.next = min(self._next_read(), self._next_write())


def _passed(end: int, due: Iterator[int], beats: int) -> int:
    """Cycle after `beats` beats, one a cycle from `end` on, none before it is due."""
    for _, cycle in zip(range(beats), due, strict=False):
        end = max(end, cycle) + 1
    return end
