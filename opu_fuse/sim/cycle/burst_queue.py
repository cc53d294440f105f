"""Bursts of load or store on their way to the bus, and what load does without it."""

from collections import deque
from math import inf

from opu_fuse.hw.unit_rates import LOAD_SETUP_CYCLES, UNFOLD_CYCLES
from opu_fuse.sim.cycle.bursts import Burst, Transfer
from opu_fuse.sim.cycle.instruction_costs import Im2Row, InstructionCost

INSIDE = -1
"""Instruction that a burst inside of one completes."""


class BurstQueue:
    """wanted: cycle from which the next burst may be taken, inf without one. due: cycle at which
    `free` is known if no burst is taken before, else inf. free: cycle from which the next transfer
    may start, None while that is not known. taken: cycles in which bursts were taken, all of the
    program. beats: of all instructions so far. lead: cycles from an instruction's start to that of
    its addresses.

    A run a cycle joins the stretch, but none in a cycle in which a burst is taken that leaves a
    rest; the first run of a stretch comes when the last burst of the one before is taken.
    """

    def __init__(self, lead: int = 0) -> None:
        self._lead = lead
        self.wanted = self.due = inf
        self.taken: list[int] = []
        self.beats = 0
        self.free: int | None = 0
        # Bursts to take, the place of their transfer, and the instruction that each completes.
        self._offers: deque[tuple[Burst, int, int]] = deque()
        # A run of the instruction whose bursts are taken, and from when it is part of the stretch.
        self._run, self._seen = 0, 0
        self._last = 0  # run of the newest instruction
        self._start: int | None = None  # `_seen` of its first one, while the one before has bursts

    @property
    def worked(self) -> int:
        """Cycles of work of all instructions so far."""
        return self.beats

    def run(self, number: int, work: InstructionCost, start: int) -> int | None:
        """Take instruction `number` of the engine at cycle `start`; the cycle in which it is done,
        None where the memory decides.
        """
        assert isinstance(work, Transfer)
        seen, waits, final = start + self._lead + 2, bool(self._offers), work.bursts[-1]
        for burst in work.bursts:
            self._offers.append((burst, work.at, number if burst is final else INSIDE))
            self.beats += burst.beats
        self._last = final.last
        if waits:
            self._start, self.free = seen, None
        else:
            self._run, self._seen = 0, max(seen, self.taken[-1] + 1 if self.taken else 0)
            self._plan()
        return None

    def ready(self, work: InstructionCost) -> int | None:  # noqa: ARG002  one signature for all units
        """Cycle from which the next instruction may start; None: not known yet."""
        return self.free

    def settle(self) -> None:
        """No burst was taken before `due`."""
        self.free, self.due = int(self.due), inf

    def _plan(self) -> None:
        """The next burst, and what is known of the next instruction."""
        self.due = inf
        if not self._offers:
            self.wanted = inf
            return
        burst = self._offers[0][0]
        seen = self._seen + burst.needs - self._run
        self.wanted = max(seen, self.taken[-1] + 1) if self.taken else seen
        self.free = None
        if burst.last == self._last and self._start is None:
            free = self._seen + burst.last - self._run  # if no burst delays it
            if burst.grown > burst.last or self.wanted >= free:
                self.free = free
            else:
                self.due = free

    def take(self, at: int) -> tuple[int, int, int]:
        """Take the next burst at cycle `at`: its beats, the instruction that it completes, and its
        place in the window in beats.
        """
        burst, place, completes = self._offers.popleft()
        self.taken.append(at)
        seen = self._run + at - self._seen  # in this cycle
        if burst.grown <= seen < burst.last:
            self._run, self._seen = seen + 1, at + 2
        elif burst.grown > burst.last:
            self._run, self._seen = burst.last + 1, at + 1
            if self._start is not None:
                self._run, self._seen, self._start = 0, max(at + 1, self._start), None
        self._plan()
        return burst.beats, completes, place + burst.offset


class Loads(BurstQueue):
    """Load: transfers, and im2row, which starts when all that was started before is done; nothing
    starts before it is.
    """

    def __init__(self) -> None:
        super().__init__(lead=LOAD_SETUP_CYCLES)
        self._open = 0  # transfers that are not done
        self._done = 0  # the last instruction was
        self._im2row_done = 0  # the last im2row was
        self._words = 0  # of im2row

    @property
    def worked(self) -> int:
        """Beats, and words of im2row."""
        return self.beats + self._words

    def run(self, number: int, work: InstructionCost, start: int) -> int | None:
        """As `BurstQueue.run`; im2row is done in the cycle that is returned."""
        if not isinstance(work, Im2Row):
            self._open += 1
            return super().run(number, work, start)
        self._words += work.words
        self._done = self._im2row_done = start + work.words + UNFOLD_CYCLES
        return self._done

    def ready(self, work: InstructionCost) -> int | None:
        """Cycle from which `work` may start; None: not known yet."""
        if isinstance(work, Im2Row):
            return None if self._open else self._done
        return None if self.free is None else max(self.free, self._im2row_done)

    def arrive(self, at: int) -> None:
        """The last word of a transfer has come: it is done in cycle `at`."""
        self._open -= 1
        self._done = at
