"""DRAM at the far side of the bus: in-order reads and writes that share one bandwidth budget.

It matches the memory of the RTL simulation (`opu_axi_memory`) cycle by cycle, but is event-driven.
A phase in which one direction is active is one step; so is one in which both alternate.
"""

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from opu_fuse.hw.unit_rates import WRITE_DATA_CYCLES

RATE_STEPS = 256
"""Steps of a byte per cycle in which the memory takes its bandwidth."""

LOWEST_LATENCY = 2
"""Cycles of latency of the memory of the RTL simulation, at least."""

WRITE_GRANT_CYCLES = 2
"""From a burst of store to the first grant of the memory; its first beat: WRITE_DATA_CYCLES."""

_NEVER = 1 << 60


class _Burst(NamedTuple):
    """at: earliest cycle of its first grant. data: cycle from which its beats are ready."""

    at: int
    data: int
    beats: int
    tag: int


class Stream:
    """Bursts of one direction, in order.

    at: earliest cycle of the next grant. data: cycle from which the beats of the current burst are
    ready. left: its beats not yet granted. end: cycle after the last granted beat.
    """

    __slots__ = ("_bursts", "at", "data", "end", "left")

    def __init__(self) -> None:
        self._bursts: deque[_Burst] = deque()
        self.at, self.data, self.left, self.end = _NEVER, 0, 0, 0

    def add(self, at: int, data: int, beats: int, tag: int) -> bool:
        """Append a burst to the queue; True if it becomes the current one."""
        self._bursts.append(_Burst(at, data, beats, tag))
        if len(self._bursts) > 1:
            return False
        self.at, self.data, self.left = at, data, beats
        return True

    def granted(self, at: int, left: int) -> int | None:
        """`left` beats are left after a grant at cycle `at`; tag of the burst if it has ended."""
        self.at = self.end = max(at, self.data) + 1
        self.left = left
        if left:
            return None
        tag = self._bursts.popleft().tag
        at, self.data, self.left, _ = self._bursts[0] if self._bursts else (_NEVER, 0, 0, 0)
        self.at = max(self.at, at)
        return tag


class Memory:
    """The memory: grants a beat in each cycle whose budget covers one.

    A granted beat moves in that cycle, or as soon as its data are ready. next: cycle after the next
    event, which `plan` computes and `move` applies.
    """

    __slots__ = (
        *("next", "reads", "writes"),
        *("_beat", "_budget", "_latency", "_now", "_plan", "_rate", "_write_first"),
    )

    def __init__(self, bytes_per_cycle: float, bus_bytes: int, latency: int = 0) -> None:
        self._latency = max(latency, LOWEST_LATENCY)
        self.reads, self.writes = Stream(), Stream()
        self.next: float = inf
        self._beat = bus_bytes * RATE_STEPS
        self._rate = max(1, round(bytes_per_cycle * RATE_STEPS))
        self._now = 0  # next cycle to decide
        self._budget = 0  # left by the cycle before
        self._write_first = False
        # Set by `plan`: last cycle, budget, whether a write is next; beats left of read and write.
        self._plan = (0, 0, False, 0, 0)

    def ask_read(self, at: int, address: int, parts: Sequence[tuple[int, int]]) -> None:  # noqa: ARG002  all bytes are alike here
        """The address of a read burst is sent at cycle `at`. parts: (beats, tag) of each part whose
        end is reported.
        """
        first, current = at + 1 + self._latency, False
        for beats, tag in parts:
            current |= self.reads.add(first, first, beats, tag)
            first += beats
        if current:
            self.plan()

    def ask_write(self, at: int, address: int, beats: int, tag: int) -> None:  # noqa: ARG002  as above
        """The address of a write burst is sent at cycle `at`, its data follow."""
        if self.writes.add(at + WRITE_GRANT_CYCLES, at + WRITE_DATA_CYCLES, beats, tag):
            self.plan()

    def plan(self) -> None:
        """Compute `next` after a burst was added or an event was applied."""
        begin = max(min(self.reads.at, self.writes.at), self._now)
        if begin >= _NEVER:
            self.next = inf
        elif max(self.reads.at, self.writes.at) <= begin:
            self._together(begin)
        else:
            self._alone(begin)

    def move(self) -> tuple[int | None, int | None]:
        """Apply the event; return the tags of the read and the write burst that ended."""
        last, self._budget, self._write_first, read_left, write_left = self._plan
        self._now = last + 1
        read = write = None
        if read_left != self.reads.left:
            read = self.reads.granted(last, read_left)
        if write_left != self.writes.left:
            write = self.writes.granted(last, write_left)
        self.plan()
        return read, write

    def _filled(self, cycle: int) -> int:
        """Budget in a cycle when nothing was granted since `_now`."""
        saved = self._budget + self._rate * (cycle - self._now + 1)
        return min(saved, self._beat + self._rate)

    def _alone(self, begin: int) -> None:
        """One direction, until its burst ends or the other one may join."""
        reads, writes, rate, beat = self.reads, self.writes, self._rate, self._beat
        reading = reads.at < writes.at
        one, until = (reads, writes.at) if reading else (writes, reads.at)
        budget, cycles = self._filled(begin), until - 1 - begin
        count = one.left if one.data <= begin else 1
        if rate >= beat:
            count = min(count, cycles + 1)
            last = begin + count - 1
            budget = min(budget - beat + (count - 1) * (rate - beat), rate)
        else:
            count = min(count, cycles + 1, (budget + rate * cycles) // beat)
            last = begin + max(count - 1, -(-(count * beat - budget) // rate))
            budget += rate * (last - begin) - count * beat
        if not count:  # the other one may join before
            last = until - 1
            budget = self._filled(last)
            self._plan = (last, budget, self._write_first, reads.left, writes.left)
            self.next = until
            return
        left = one.left - count
        if reading:
            self._plan = (last, budget, True, left, writes.left)
        else:
            self._plan = (last, budget, False, reads.left, left)
        self.next = last + 1

    def _together(self, cycle: int) -> None:
        """Both directions, until a burst ends; when the budget is short they alternate."""
        rate, beat = self._rate, self._beat
        budget, write_first = self._filled(cycle), self._write_first
        read_left, write_left = self.reads.left, self.writes.left
        data, write_at = self.writes.data, cycle
        while True:
            if budget < beat:
                wait = -(-(beat - budget) // rate)
                cycle += wait
                budget += rate * wait
            wants = write_at <= cycle
            if wants and rate <= beat and budget < 2 * beat:  # from here on they alternate
                count = min(2 * write_left - write_first, 2 * read_left - (not write_first))
                last = cycle + max(0, -(-(count * beat - budget) // rate))
                budget += rate * (last - cycle) - count * beat
                write_left -= (count + write_first) // 2
                read_left -= (count + (not write_first)) // 2
                write_first ^= bool(count % 2)
                cycle = last
                break
            if wants and write_first:
                budget -= beat
                write_left -= 1
                wants = write_first = False
                write_at = max(cycle, data) + 1
            if budget >= beat:
                budget -= beat
                read_left -= 1
                write_first = True
            if wants and budget >= beat:
                budget -= beat
                write_left -= 1
                write_first = False
                write_at = max(cycle, data) + 1
            if not (read_left and write_left):
                break
            cycle += 1
            budget = min(budget + rate, beat + rate)
        self._plan = (cycle, budget, write_first, read_left, write_left)
        self.next = cycle + 1
