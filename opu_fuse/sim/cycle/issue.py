"""Issue: an engine starts instructions from its queue, consumes and signals tokens, and retires.

It follows the RTL's `opu_frontend` and `opu_counters`. All times are cycles. A time that is not yet
known is None, or absent from its list.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from opu_fuse.hw.isa.table import Engine
from opu_fuse.sim.cycle.instruction_costs import Step


class Counters:
    """Dependency counters: cycles at which tokens were signalled and consumed.

    Both are keyed by (source engine, drain engine). limit: most tokens a counter holds.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.signalled: dict[tuple[int, int], list[int]] = {}
        self.consumed: dict[tuple[int, int], list[int]] = {}
        for source in Engine:
            for drain in Engine:
                self.signalled[source, drain], self.consumed[source, drain] = [], []


class Issue:
    """One engine's instructions in program order, with the cycles known so far of each.

    arrived: its last word enters the queue. headed: it is at the head of the queue. starts: it
    starts. dones: the unit finishes it. ends: it retires. granted: its last token is ready, and the
    engine that signalled it. held: total cycles in which retirement stalled on a full counter.
    """

    def __init__(
        self, engine: int, steps: Sequence[Step], counters: Counters, *, depth: int, open_limit: int
    ) -> None:
        self.engine, self.steps = engine, steps
        self.arrived: list[int] = []
        self.headed: list[int] = []
        self.granted: list[tuple[int, int]] = []
        self.starts: list[int] = []
        self.dones: list[int] = []
        self.ends: list[int] = []
        self.held = 0
        self._counters, self._depth, self._open_limit = counters, depth, open_limit
        self._words = list(accumulate(step.words for step in steps))

    def next(self) -> Step | None:
        """The instruction that starts next."""
        return self.steps[len(self.starts)] if len(self.starts) < len(self.steps) else None

    def start(self, ready: int | None) -> int | None:
        """Start the next instruction if everything that decides its cycle is known: then that
        cycle. ready: cycle from which the unit takes it.
        """
        number, before = len(self.starts), len(self.starts) - self._open_limit
        if number >= len(self.arrived) or ready is None or before >= len(self.ends):
            return None
        step = self.steps[number]
        token, source = 0, 0
        for other in step.waits:
            signalled, consumed = self._tokens(other)
            if len(signalled) <= len(consumed):
                return None
            if signalled[len(consumed)] >= token:
                token, source = signalled[len(consumed)] + 1, other
        headed = self.arrived[number] + 1
        if number:
            headed = max(headed, self.starts[-1] + step.words)
        at = max(headed, token, ready, self.ends[before] + 1 if before >= 0 else 0)
        for other in step.waits:
            self._tokens(other)[1].append(at)
        self.headed.append(headed)
        self.granted.append((token, source))
        self.starts.append(at)
        return at

    def _tokens(self, source: int) -> tuple[list[int], list[int]]:
        key = source, self.engine
        return self._counters.signalled[key], self._counters.consumed[key]

    def retire(self) -> tuple[Step, ...]:
        """Retire what is done, as far as the counters have room."""
        before = len(self.ends)
        if before == len(self.dones):
            return ()
        for number in range(before, len(self.dones)):
            at = self.dones[number]
            if self.ends:
                at = max(at, self.ends[-1] + 1)
            step, free = self.steps[number], at
            for drain in step.signals:
                key = self.engine, drain
                full = len(self._counters.signalled[key]) - self._counters.limit
                if full >= 0:
                    if full >= len(self._counters.consumed[key]):
                        return tuple(self.steps[before:number])
                    free = max(free, self._counters.consumed[key][full] + 1)
            self.held += free - at
            for drain in step.signals:
                self._counters.signalled[self.engine, drain].append(free)
            self.ends.append(free)
        return tuple(self.steps[before : len(self.ends)])

    def waits_for(self) -> str:
        """Why the engine makes no progress, for an error message."""
        name = Engine(self.engine).name.lower()
        if len(self.dones) > len(self.ends):
            return f"{name} cannot signal from instruction {self.steps[len(self.ends)].number}"
        if len(self.starts) == len(self.arrived):
            return f"{name} gets no further words"
        step = self.steps[len(self.starts)]
        tokens = " and ".join(Engine(other).name.lower() for other in step.waits) or "nothing"
        return f"{name} waits for {tokens} at instruction {step.number}"

    def room(self, word: int) -> int | None:
        """Cycle from which the queue has room for word number `word` (from 1) of the engine; None:
        not known yet.
        """
        word -= self._depth
        if word <= 0:
            return 0
        holder = bisect_left(self._words, word)  # the instruction whose word has to leave
        later = self._words[holder] - word
        if later == 0:
            return self.starts[holder] + 1 if holder < len(self.starts) else None
        if holder > len(self.starts):
            return None
        before = self.starts[holder - 1] if holder else 0
        return before + self.steps[holder].words - later + 1
