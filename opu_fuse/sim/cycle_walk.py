"""Bursts of load or store on their way to the bus."""

from collections import deque
from math import inf

from opu_fuse.sim.cycle_bursts import Transfer
from opu_fuse.sim.cycle_work import Work

INSIDE = -1
"""Instruction that a burst inside of one completes."""


class Walk:
    """wanted: cycle from which the next burst may be taken, inf without one. due: cycle at which
    `ready` is known if no burst is taken before, else inf. taken: cycles in which bursts were
    taken, all of the program. worked: beats of all instructions so far. lead: cycles from an
    instruction's start to that of its addresses.

    A run a cycle joins the stretch, but none in a cycle in which a burst is taken that leaves a
    rest; the first run of a stretch comes when the last burst of the one before is taken. Runs are
    numbered through the program.
    """

    def __init__(self, lead: int = 0) -> None:
        self._lead = lead
        self.wanted = self.due = inf
        self.taken: list[int] = []
        self.worked = 0
        # Bursts to take: beats, the three numbers of `Burst`, instruction that they complete.
        self._offers: deque[tuple[int, int, int, int, int]] = deque()
        self._runs = 0
        self._run, self._seen = 0, 0  # a run, and the cycle from which it is part of the stretch
        self._start = 0  # that of an instruction whose first run waits for the one before
        self._ready: int | None = 0

    def run(self, number: int, work: Work, start: int) -> None:
        """Take instruction `number` of the engine at cycle `start`; when it is done depends on the
        memory.
        """
        assert isinstance(work, Transfer)
        first, seen = self._runs, start + self._lead + 2
        waits = bool(self._offers)
        for burst in work.bursts:
            self._offers.append(
                (burst.beats, burst.needs + first, burst.grown + first, burst.last + first, INSIDE)
            )
            self.worked += burst.beats
        self._offers[-1] = (*self._offers[-1][:-1], number)
        self._runs += work.runs
        if waits:
            self._start, self._ready = seen, None
        else:
            after = self.taken[-1] + 1 if self.taken else 0
            self._run, self._seen = first, max(seen, after)
            self._plan()

    def ready(self) -> int | None:
        """Cycle from which the next instruction may start; None: not known yet."""
        return self._ready

    def settle(self) -> None:
        """No burst was taken before `due`."""
        self._ready, self.due = int(self.due), inf

    def _plan(self) -> None:
        """The next burst, and what is known of the next instruction."""
        self.due = inf
        if not self._offers:
            self.wanted = inf
            return
        _, needs, grown, last, _ = self._offers[0]
        seen = self._seen + needs - self._run
        self.wanted = max(seen, self.taken[-1] + 1) if self.taken else seen
        free = self._seen + last - self._run  # if no burst delays it
        self._ready = None
        if last == self._runs - 1:
            if grown > last or self.wanted >= free:
                self._ready = free
            else:
                self.due = free

    def take(self, at: int) -> tuple[int, int]:
        """Take the next burst at cycle `at`: its beats, and the instruction that it completes."""
        beats, _, grown, last, completes = self._offers.popleft()
        self.taken.append(at)
        seen = self._run + at - self._seen  # in this cycle
        if grown > last:
            self._run, self._seen = last + 1, max(at + 1, self._start)
            self._start = 0
        elif grown <= seen < last:
            self._run, self._seen = seen + 1, at + 2
        self._plan()
        return beats, completes
