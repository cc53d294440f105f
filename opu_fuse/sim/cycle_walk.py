"""Bursts of load or store on their way to the bus."""

from collections import deque
from math import inf

from opu_fuse.sim.cycle_bursts import Transfer
from opu_fuse.sim.cycle_work import Work

INSIDE = -1
"""Instruction that a burst inside of one completes."""


class Walk:
    """wanted: cycle from which the next burst may be taken, inf without one. taken: cycles in which
    bursts were taken, all of the program. worked: beats of all instructions so far. lead: cycles
    from an instruction's start to that of its addresses.
    """

    def __init__(self, lead: int = 0) -> None:
        self._lead = lead
        self.wanted = inf
        self.taken: list[int] = []
        self.worked = 0
        # Bursts to take: cycle offered, beats, instruction that they complete.
        self._offers: deque[tuple[int, int, int]] = deque()
        self._bursts = 0
        self._gate = 0  # bursts to be taken before the walk is in its last stretch
        self._stretch = 0  # cycles from there until it is ready
        self._earliest = 0

    def run(self, number: int, work: Work, start: int) -> None:
        """Take instruction `number` of the engine at cycle `start`; when it is done depends on the
        memory.
        """
        assert isinstance(work, Transfer)
        start += self._lead
        first = start + 1
        if self._bursts and len(self.taken) == self._bursts:
            first = max(first, self.taken[-1])
        last = len(work.beats) - 1
        for k, (beats, offered) in enumerate(zip(work.beats, work.offered, strict=True)):
            self._offers.append((first + offered, beats, number if k == last else INSIDE))
        self._gate = self._bursts + work.before
        self._stretch = work.last_stretch
        self._earliest = start + work.runs + 1
        self._bursts += len(work.beats)
        self.worked += sum(work.beats)
        self._want()

    def ready(self) -> int | None:
        """Cycle from which the next instruction may start; None: not known yet."""
        if len(self.taken) < self._gate:
            return None
        if self._gate == 0:
            return self._earliest
        return max(self._earliest, self.taken[self._gate - 1] + self._stretch)

    def _want(self) -> None:
        if not self._offers:
            self.wanted = inf
        elif self.taken:
            self.wanted = max(self._offers[0][0], self.taken[-1] + 1)
        else:
            self.wanted = self._offers[0][0]

    def take(self, at: int) -> tuple[int, int]:
        """Take the next burst at cycle `at`: its beats, and the instruction that it completes."""
        _, beats, completes = self._offers.popleft()
        self.taken.append(at)
        self._want()
        return beats, completes

    def opened(self) -> bool:
        """The burst taken last makes `ready` known."""
        return len(self.taken) == self._gate
