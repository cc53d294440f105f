"""The machine of the cycle engine: one program from start to done, event by event.

Two kinds of facts. Times that follow from other times (a start from its tokens, the end of a
convolution from its start) are derived as soon as those are known, before the clock reaches them.
Bus traffic is simulated in order of time: the addresses of reads and writes, and the beats of the
current bursts. A fact derived in one cycle never changes an earlier cycle.
"""

from collections.abc import Sequence
from math import inf
from typing import Protocol

from opu_fuse.errors import RunError
from opu_fuse.hw.isa.table import SYNC_ENGINES, Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.unit_rates import (
    OPEN_INSTRUCTIONS,
    OPEN_UNITS,
    READ_REGISTER_CYCLES,
    STORE_SETUP_CYCLES,
)
from opu_fuse.sim.cycle.burst_queue import INSIDE, BurstQueue, Loads
from opu_fuse.sim.cycle.ddr_memory import DdrMemory
from opu_fuse.sim.cycle.fetch import Fetch
from opu_fuse.sim.cycle.instruction_costs import InstructionCost, Step
from opu_fuse.sim.cycle.issue import Counters, Issue
from opu_fuse.sim.cycle.memory import LOWEST_LATENCY, Memory
from opu_fuse.sim.cycle.units import ComputeUnit, PostUnit
from opu_fuse.sim.ddr import Ddr

END_CYCLES = 4
"""From the last retirement to done."""

_BEAT, _LAST_BEAT = -2, -3
"""Reads of fetch; those of load have the instruction that they complete, or INSIDE."""


class Unit(Protocol):
    """Executes instructions of one engine."""

    @property
    def worked(self) -> int:
        """Beats, words, steps or iterations so far."""
        ...

    def ready(self, work: InstructionCost) -> int | None:
        """Cycle from which the next instruction, which does `work`, may start; None: not known."""
        ...

    def run(self, number: int, work: InstructionCost, start: int) -> int | None:
        """Take instruction `number` of the engine at cycle `start`; the cycle in which it is done,
        None where the memory decides.
        """
        ...


class CycleMachine:
    """One run of one program at byte `base` of the memory window, on a memory with `latency` cycles
    and `bytes_per_cycle`, or with the timing of `dram`, which has a bandwidth of its own.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        hw: HwSpec,
        *,
        base: int,
        latency: int,
        bytes_per_cycle: float,
        dram: str | None = None,
    ) -> None:
        counters = Counters((1 << hw.counter_bits) - 1)
        depths = {
            Engine.LOAD: hw.queues.load,
            Engine.COMPUTE: hw.queues.compute,
            Engine.POST: hw.queues.post,
            Engine.STORE: hw.queues.store,
        }
        self.issues = {
            int(e): Issue(
                e,
                [step for step in steps if step.engine is e],
                counters,
                depth=depths[e],
                open_limit=OPEN_UNITS if e in (Engine.COMPUTE, Engine.POST) else OPEN_INSTRUCTIONS,
            )
            for e in SYNC_ENGINES
        }
        self.fetch = Fetch(steps, self.issues, hw, base)
        self._loads, self._stores = Loads(), BurstQueue(lead=STORE_SETUP_CYCLES)
        self.units: dict[int, Unit] = {
            Engine.LOAD: self._loads,
            Engine.COMPUTE: ComputeUnit(hw),
            Engine.POST: PostUnit(),
            Engine.STORE: self._stores,
        }
        self._latency = max(latency, LOWEST_LATENCY)
        self._bus = hw.dram.bus_bytes
        self.memory = (
            Memory(bytes_per_cycle, self._bus, self._latency)
            if dram is None
            else DdrMemory(Ddr(dram, hw, self._latency))
        )
        self._outstanding = hw.dram.outstanding
        self._open_reads = 0
        self._read_slot = 0  # cycle from which a read may be asked for
        self._answers: list[int] = []  # cycle from which a write burst leaves room for another

    def run(self) -> int:
        """Play the program to its end; its cycles."""
        memory = self.memory
        while True:
            read = self._next_read()
            write = self._next_write()
            at = min(read, write)
            if inf > self._loads.due <= min(at, memory.next):
                self._free(self._loads, Engine.LOAD)
            elif inf > self._stores.due <= min(at, memory.next):
                self._free(self._stores, Engine.STORE)
            elif memory.next <= at:
                if memory.next == inf:
                    break
                self._move()
            elif read <= write:
                self._ask_read(int(read))
            else:
                self._ask_write(int(write))
        return self._end()

    @property
    def read_beats(self) -> int:
        """Beats read, the program's included."""
        return self._loads.beats + self.fetch.beats

    @property
    def write_beats(self) -> int:
        """Beats written."""
        return self._stores.beats

    def _take(self, queue: BurstQueue, engine: int, at: int) -> tuple[int, int, int]:
        """Take the next burst; start the next instruction where this burst determines its cycle."""
        free_before = queue.free
        burst = queue.take(at)
        if free_before is None and queue.free is not None:
            self._settle(engine)
        return burst

    def _free(self, queue: BurstQueue, engine: int) -> None:
        """No burst was taken before `queue.due`: derive what its next free cycle lets start."""
        queue.settle()
        self._settle(engine)

    def _next_read(self) -> float:
        if self._open_reads == self._outstanding:
            return inf
        return max(min(self.fetch.wanted, self._loads.wanted), self._read_slot)

    def _ask_read(self, at: int) -> None:
        """The address of a read goes out; fetch goes first."""
        self._read_slot = at + 1
        self._open_reads += 1
        if self.fetch.wanted <= at:
            beats, place = self.fetch.take(at)
            parts = [(1, _BEAT)] * (beats - 1) + [(1, _LAST_BEAT)]
        else:
            beats, completes, place = self._take(self._loads, Engine.LOAD, at)
            parts = [(beats, completes)]
        self.memory.ask_read(at, place * self._bus, parts)

    def _next_write(self) -> float:
        over = len(self._stores.taken) - self._outstanding
        if over < 0:
            return self._stores.wanted
        return max(self._stores.wanted, self._answers[over]) if over < len(self._answers) else inf

    def _ask_write(self, at: int) -> None:
        """The address of a write goes out, its data follow."""
        beats, completes, place = self._take(self._stores, Engine.STORE, at)
        self.memory.ask_write(at, place * self._bus, beats, completes)

    def _move(self) -> None:
        """Advance the memory to its next change, and finish the transfers that end there."""
        memory = self.memory
        read, write = memory.move()
        if read is not None:
            self._finish_read(read, memory.reads.end)
        if write is not None:
            answer = memory.writes.end + self._latency
            self._answers.append(answer)
            if write != INSIDE:
                self.issues[Engine.STORE].dones.append(answer)
                self._settle(Engine.STORE)

    def _finish_read(self, tag: int, end: int) -> None:
        """A beat of fetch or a burst of load has arrived; its outstanding slot is reusable."""
        if tag != _BEAT:
            self._open_reads -= 1
            self._read_slot = max(self._read_slot, end)
        end += READ_REGISTER_CYCLES
        if tag in (_BEAT, _LAST_BEAT):
            self._settle(*self.fetch.arrive(end))
        elif tag != INSIDE:
            self._loads.arrive(end)
            self.issues[Engine.LOAD].dones.append(end)
            self._settle(Engine.LOAD)

    def _settle(self, *engines: int) -> None:
        """Derive all that follows from news of some engines."""
        waiting = list(engines)
        while waiting:
            engine = waiting.pop()
            issue = self.issues[engine]
            if self._start(issue):
                waiting += [e for e, i in self.issues.items() if len(i.dones) > len(i.ends)]
                if self.fetch.full == engine:
                    waiting += self.fetch.advance()
            for step in issue.retire():
                waiting += (engine, *step.signals)

    def _start(self, issue: Issue) -> bool:
        """Start what can start; True if something could."""
        unit = self.units[issue.engine]
        before = len(issue.starts)
        while (step := issue.next()) and (at := issue.start(unit.ready(step.work))) is not None:
            done = unit.run(len(issue.starts) - 1, step.work, at)
            if done is not None:
                issue.dones.append(done)
        return len(issue.starts) > before

    def _end(self) -> int:
        stuck = [i.waits_for() for i in self.issues.values() if len(i.ends) < len(i.steps)]
        if stuck:
            raise RunError(
                where="program",
                what="deadlock: " + "; ".join(stuck),
                help="this is a bug of the compiler that wrote the program; compile it again with "
                "a newer one",
            )
        last = [issue.ends[-1] for issue in self.issues.values() if issue.ends]
        return max([*last, self.fetch.own[-1][1]]) + END_CYCLES
