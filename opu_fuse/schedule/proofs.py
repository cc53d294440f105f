"""The proofs a program must pass before it is written (they read decoded words, not the schedule).

The same: the words hold the instructions that were emitted. No deadlock: queues and counters are
bounded channels with one producer and one consumer each, so whether the program finishes does not
depend on timing; one untimed execution decides. No race: every two accesses to the same words of
which one writes are ordered by one engine's queue or by tokens (vector clocks).
"""

from collections import deque
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from opu_fuse.errors import InternalError
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import SYNC_ENGINES, Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.schedule.dependencies import NONE, Clock, latest_conflicts


def prove_same(program: Sequence[Instruction], emitted: Sequence[Instruction]) -> None:
    """program: decoded. Raises InternalError naming the first instruction that became another."""
    pairs = zip_longest(program, emitted)
    wrong = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    if wrong is not None:
        raise InternalError("encoding proof", f"instruction {wrong} is not what was emitted")


def prove_no_deadlock(
    program: Sequence[Instruction], positions: Sequence[int] | np.ndarray, hw: HwSpec
) -> None:
    """positions[i]: word index of instruction i's C-type, so that queue depths count U-types
    too. Raises InternalError.
    """
    queues = _Queues(program, positions, hw)
    while queues.fetch() | queues.execute():
        pass
    if not queues.finished():
        raise InternalError("deadlock proof", queues.describe())


class _Queues:
    """Untimed machine: words in queues and tokens in counters, nothing else.

    An instruction occupies its words until it starts; a word enters as soon as there is room, so
    an instruction longer than its queue passes through it in pieces.
    """

    def __init__(
        self, program: Sequence[Instruction], positions: Sequence[int] | np.ndarray, hw: HwSpec
    ) -> None:
        self._program = program
        self._words = np.diff(positions, prepend=NONE).tolist()
        self._room = {engine: getattr(hw.queues, engine.name.lower()) for engine in SYNC_ENGINES}
        self._queued: dict[Engine, deque[int]] = {e: deque() for e in SYNC_ENGINES}
        self._waiting: dict[Engine, int] = dict.fromkeys(SYNC_ENGINES, 0)  # words queued
        self._held: dict[Engine, int | None] = dict.fromkeys(SYNC_ENGINES)
        self._tokens = {(a, b): 0 for a in SYNC_ENGINES for b in SYNC_ENGINES if a is not b}
        self._full = (1 << hw.counter_bits) - 1
        self._next = 0

    def fetch(self) -> bool:
        """Pass on instructions while the queue of each has room for its C-type (its U-types are
        consumed as they come).
        """
        start = self._next
        while self._next < len(self._program):
            engine = self._program[self._next].engine
            if engine in self._queued:
                queue = self._queued[engine]
                words = self._words[self._next]
                if queue and self._waiting[engine] + 1 + words > self._room[engine]:
                    break
                queue.append(self._next)
                self._waiting[engine] += words
            self._next += 1
        return self._next > start

    def execute(self) -> bool:
        """Start and retire whatever can; an engine whose signal meets a full counter is blocked."""
        moved = False
        for engine in SYNC_ENGINES:
            while self._step(engine):
                moved = True
        return moved

    def _step(self, engine: Engine) -> bool:
        held = self._held[engine]
        if held is not None:
            targets = self._program[held].signals
            if any(self._tokens[engine, t] == self._full for t in targets):
                return False
            for target in targets:
                self._tokens[engine, target] += 1
            self._held[engine] = None
            return True
        if not self._queued[engine]:
            return False
        head = self._program[self._queued[engine][0]]
        if any(self._tokens[source, engine] == 0 for source in head.waits):
            return False
        for source in head.waits:
            self._tokens[source, engine] -= 1
        first = self._queued[engine].popleft()
        self._waiting[engine] -= self._words[first]
        self._held[engine] = first
        return True

    def finished(self) -> bool:
        return (
            self._next == len(self._program)
            and not any(self._queued.values())
            and all(h is None for h in self._held.values())
        )

    def describe(self) -> str:
        heads = [
            f"{engine.name.lower()} at instruction {queue[0]} (waits on "
            + (", ".join(w.name.lower() for w in self._program[queue[0]].waits) or "nothing")
            + ")"
            for engine, queue in self._queued.items()
            if queue
        ]
        return f"fetch stops at instruction {self._next}; " + "; ".join(heads)


def prove_no_race(
    program: Sequence[Instruction], hw: HwSpec, conflicts: Sequence[Clock] | None = None
) -> None:
    """Raises InternalError naming the first two instructions whose order nothing holds.

    conflicts: its `latest_conflicts`, when they are known.
    """
    signals: dict[tuple[Engine, Engine], deque[int]] = {}
    conflicts = latest_conflicts(program, hw) if conflicts is None else conflicts
    known: list[Clock] = []
    last = [NONE] * len(Engine)
    for position, instruction in enumerate(program):
        engine = instruction.engine
        before = last[engine]
        clock = list(known[before]) if before != NONE else [NONE] * len(Engine)
        clock[engine] = before
        for source in instruction.waits:
            tokens = signals.get((source, engine))
            if not tokens:
                raise InternalError(
                    "race proof",
                    f"instruction {position} waits for a token of {source.name.lower()} that "
                    "comes later",
                )
            at = tokens.popleft()
            clock = list(map(max, clock, known[at]))
            clock[source] = max(clock[source], at)
        for other, at in enumerate(conflicts[position]):
            if at > clock[other]:
                raise InternalError(
                    "race proof",
                    f"instruction {position} ({engine.name.lower()}.{instruction.opcode}) and "
                    f"instruction {at} "
                    f"({Engine(other).name.lower()}.{program[at].opcode}) touch the same words, "
                    "or need the same write port, in no fixed order",
                )
        known.append(clock)
        last[engine] = position
        for target in instruction.signals:
            signals.setdefault((engine, target), deque()).append(position)
