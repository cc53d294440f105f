"""What a run gives back, the same for every engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire:
    """One retired instruction. group: -1 for prologue and end; instruction: C-type number in its segment; engine: lower-case
    name; start, end: cycles since `start` was written (0 on the functional engine)."""

    segment: int
    group: int
    instruction: int
    engine: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """outputs: model output name -> array in the model's dtype and shape. tensors: captured int8 tensors, value name -> array of
    the model value's shape. counters: named totals (cycles, dram_bytes_read, dram_bytes_written, busy_<engine>, …)."""

    engine: str
    outputs: Mapping[str, np.ndarray]
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    trace: tuple[Retire, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first difference between two runs."""

    tensor: str
    index: tuple[int, ...]
    group: int
    instruction: int
    expected: int
    got: int
    mismatches: int
    elements: int
