"""Results of a run and of a check, in the same form for every engine."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from opu_fuse.number_text import counted
from opu_fuse.summaries import summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire:
    """One retired instruction.

    group: -1 for prologue and end; instruction: C-type number in its segment; engine: lower-case
    name; start, end: cycles since `start` was written (0 on the functional engine).
    """

    segment: int
    group: int
    instruction: int
    engine: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Cycles [start, end) in which an engine had nothing to do (cycle engine).

    reason: "words" (its next instruction is not fetched), or the engine whose token is missing.
    """

    segment: int
    engine: str
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounters:
    """Counters of one group, over all samples of a run.

    cycles: its part of the segment's, where groups overlap (`sim/group_counters.py`; 0 on the
    functional engine).
    """

    index: int
    instructions: int
    dram_bytes_read: int
    dram_bytes_written: int
    cycles: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Results of a run of N samples.

    outputs: model output name -> array in the model's dtype and shape, N leading
    tensors: captured int8 tensors, value name -> array of the model value's shape, samples along
        the first axis
    masks: name -> bool array of one sample's shape, for tensors that the machine computes only in
        part (a window that skips positions)
    counters: named totals over all samples (cycles, dram_bytes_read, dram_bytes_written,
        instructions_<engine>, busy_<engine>, …)
    groups: by index, over all samples
    trace, stalls: of the first run of the program
    samples: N
    batch: samples that run together
    """

    engine: str
    outputs: Mapping[str, np.ndarray]
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)
    masks: Mapping[str, np.ndarray] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[GroupCounters, ...] = ()
    trace: tuple[Retire, ...] = ()
    stalls: tuple[Stall, ...] = ()
    samples: int = 1
    batch: int = 1

    def __repr__(self) -> str:
        return summary(self, "", *self._facts())

    def _facts(self) -> Iterator[str]:
        """What a line about the run says."""
        yield f"{self.engine} engine"
        yield counted(self.samples, "sample")
        yield counted(len(self.groups), "group")
        if cycles := self.counters.get("cycles", 0):
            yield f"{cycles:,} cycles"
        for name, array in self.outputs.items():
            yield f"{name} {array.dtype}{list(array.shape)}"
        if self.tensors:
            yield f"{counted(len(self.tensors), 'tensor')} captured"

    @property
    def runs(self) -> int:
        """How often the program ran."""
        return -(-self.samples // self.batch)

    @property
    def segment_starts(self) -> dict[int, int]:
        """Cycle at which every machine segment begins when they follow each other."""
        ends: dict[int, int] = {}
        for r in self.trace:
            ends[r.segment] = max(ends.get(r.segment, 0), r.end)
        order = sorted(ends)
        lengths = (ends[segment] for segment in order[:-1])
        return dict(zip(order, accumulate(lengths, initial=0), strict=True)) if order else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first difference between two runs.

    index: in the tensor's own shape; group: that makes the tensor (-1: host or input);
    instruction: C-type number of the post.run that wrote the element (-1: none); mismatches,
    elements: of this tensor.
    """

    tensor: str
    index: tuple[int, ...]
    group: int
    instruction: int
    expected: float
    got: float
    mismatches: int
    elements: int

    def __repr__(self) -> str:
        return summary(self, "", str(self))

    def __str__(self) -> str:
        made_by = f"group {self.group}" if self.group >= 0 else "input or host"
        if self.instruction >= 0:
            made_by += f", instruction {self.instruction}"
        where = f"{self.tensor}{list(self.index)} ({made_by})"
        count = f"{self.mismatches} of {self.elements} values differ"
        return f"{where}: expected {self.expected}, got {self.got}; {count}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputMatch:
    """Comparison of an output with that of the user's model.

    snr_db: decibels, None where nothing differs and for types other than floats
    differing, elements: values, of all samples
    max_abs_diff: infinite where one is no number and the other is
    limit: bound of max_abs_diff, None without one
    """

    name: str
    snr_db: float | None
    differing: int
    elements: int
    max_abs_diff: float
    limit: float | None

    def __repr__(self) -> str:
        differ = f"{self.differing:,} of {self.elements:,} values differ"
        snr = "" if self.snr_db is None else f"SNR {self.snr_db:.1f} dB"
        return summary(self, self.name, differ, snr)

    @property
    def passed(self) -> bool:
        """False when it differs by more than a bound allows."""
        return self.limit is None or self.max_abs_diff <= self.limit

    def __str__(self) -> str:
        off = f"differs by {self.max_abs_diff:.4g} from the user's model"
        return f"output {self.name} {off}, at most {self.limit:.4g} is allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfModel:
    """Comparison of the outputs with those of the model that was compiled, run by ONNX Runtime.

    model: name of its file, "" where none is known
    why: nothing was compared, "" where it was
    noise: the inputs were random, so that the signal-to-noise ratio says nothing about real ones
    """

    model: str = ""
    outputs: tuple[OutputMatch, ...] = ()
    why: str = ""
    noise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A comparison of quantised tensors.

    reference: what was held to be right
    tensors, elements: compared
    mismatches, max_abs_diff: over all of them
    first: in group order, the first difference that is larger than allowed, or of an output
    uncompared: quantised tensors of the reference that the run does not show (none where no group
        is: then outputs are compared alone)
    dull: compared tensors with fewer than 32 distinct values (`sim.compare.is_dull`) or 5 % and
        more of them saturated, which prove little
    outputs: of the model, compared
    loose: tensors that may differ by a step from what their operands give (`sim.compare.bounds`),
        counted by reason; the others may not differ at all
    of_model: comparison with the user's own model; None where nobody asked
    """

    reference: str
    tensors: int
    elements: int
    mismatches: int
    max_abs_diff: int
    first: Difference | None
    uncompared: tuple[str, ...] = ()
    dull: tuple[str, ...] = ()
    outputs: int = 0
    loose: Mapping[str, int] = field(default_factory=dict)
    of_model: OfModel | None = None

    def __repr__(self) -> str:
        verdict = "passed" if self.passed else "failed" if self.compared else "nothing compared"
        differ = f"{self.mismatches:,} of {self.elements:,} values differ"
        return summary(
            self,
            verdict,
            f"{differ} in {counted(self.tensors, 'tensor')} from {self.reference}",
            f"largest difference {self.max_abs_diff}" if self.mismatches else "",
        )

    @property
    def compared(self) -> bool:
        """False when there are quantised tensors, but the run shows none of them."""
        return self.tensors > 0 or (self.outputs > 0 and not self.uncompared)

    @property
    def passed(self) -> bool:
        """True when something was compared and nothing differs by more than is allowed."""
        return self.compared and self.first is None and self.beyond is None

    @property
    def beyond(self) -> OutputMatch | None:
        """The first output that is further from the user's model than allowed."""
        outputs = () if self.of_model is None else self.of_model.outputs
        return next((output for output in outputs if not output.passed), None)


def with_head_cycle(trace: Iterable[Retire]) -> Iterator[tuple[Retire, int]]:
    """Every record with the cycle in which the instruction became the first on its engine: several
    are open at a time, and those before it go first.
    """
    free: dict[tuple[int, str], int] = {}
    for r in trace:
        yield r, min(max(r.start, free.get((r.segment, r.engine), 0)), r.end)
        free[r.segment, r.engine] = r.end
