"""Bursts of load or store on their way to the bus."""

from collections import deque
from math import inf

from opu_fuse.sim.cycle_bursts import Burst, Transfer
from opu_fuse.sim.cycle_work import Work

INSIDE = -1
"""Instruction that a burst inside of one completes."""


class Walk:
    """wanted: cycle from which the next burst may be taken, inf without one. due: cycle at which
    `ready` is known if no burst is taken before, else inf. taken: cycles in which bursts were
    taken, all of the program. worked: beats of all instructions so far. lead: cycles from an
    instruction's start to that of its addresses.

    A run a cycle joins the stretch, but none in a cycle in which a burst is taken that leaves a
    rest; the first run of a stretch comes when the last burst of the one before is taken.
    """

    def __init__(self, lead: int = 0) -> None:
        self._lead = lead
        self.wanted = self.due = inf
        self.taken: list[int] = []
        self.worked = 0
        # Bursts to take, and the instruction that each completes.
        self._offers: deque[tuple[Burst, int]] = deque()
        # A run of the instruction whose bursts are taken, and from when it is part of the stretch.
        self._run, self._seen = 0, 0
        self._last = 0  # run of the newest instruction
        self._start: int | None = None  # `_seen` of its first one, while the one before has bursts
        self._ready: int | None = 0

    def run(self, number: int, work: Work, start: int) -> None:
        """Take instruction `number` of the engine at cycle `start`; when it is done depends on the
        memory.
        """
        assert isinstance(work, Transfer)
        seen, waits, final = start + self._lead + 2, bool(self._offers), work.bursts[-1]
        for burst in work.bursts:
            self._offers.append((burst, number if burst is final else INSIDE))
            self.worked += burst.beats
        self._last = final.last
        if waits:
            self._start, self._ready = seen, None
        else:
            self._run, self._seen = 0, max(seen, self.taken[-1] + 1 if self.taken else 0)
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
        burst, _ = self._offers[0]
        seen = self._seen + burst.needs - self._run
        self.wanted = max(seen, self.taken[-1] + 1) if self.taken else seen
        self._ready = None
        if burst.last == self._last and self._start is None:
            free = self._seen + burst.last - self._run  # if no burst delays it
            if burst.grown > burst.last or self.wanted >= free:
                self._ready = free
            else:
                self.due = free

    def take(self, at: int) -> tuple[int, int]:
        """Take the next burst at cycle `at`: its beats, and the instruction that it completes."""
        burst, completes = self._offers.popleft()
        self.taken.append(at)
        seen = self._run + at - self._seen  # in this cycle
        if burst.grown <= seen < burst.last:
            self._run, self._seen = seen + 1, at + 2
        elif burst.grown > burst.last:
            self._run, self._seen = burst.last + 1, at + 1
            if self._start is not None:
                self._run, self._seen, self._start = 0, max(at + 1, self._start), None
        self._plan()
        return burst.beats, completes
