"""Interface of an engine for `engine.run`: a memory window, and machine segments run on it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from msgspec import Struct, field

from opu_fuse.bundle.program import MachineSegment
from opu_fuse.bundle.result import GroupCounters, Retire
from opu_fuse.errors import RunError

WAVE_FORMATS = (".fst", ".vcd")


class SegmentRun(Struct, frozen=True, kw_only=True):
    """One execution of one machine segment.

    counters: named totals; groups: counters of the groups in the segment; trace: retire records
    in order. tensors, masks: captured int8 tensors by value name (see `RunResult`), all images of
    the batch along the first axis, the masks of one; {} when the engine cannot look inside.
    """

    counters: Mapping[str, int]
    groups: tuple[GroupCounters, ...] = ()
    trace: tuple[Retire, ...] = ()
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)
    masks: Mapping[str, np.ndarray] = field(default_factory=dict)


class Runner(Protocol):
    """One started engine; created for one bundle, used for all samples, closed at the end.

    window: uint8 memory window; the caller writes inputs before `run` and reads results after it.
    """

    @property
    def window(self) -> np.ndarray: ...

    def run(self, number: int, segment: MachineSegment, sample: int) -> SegmentRun:
        """Execute segment `number` of the bundle for the batch number `sample`; RunError when the
        machine stops with an error.
        """
        ...

    def close(self) -> None:
        """End whatever was started; may be called more than once."""
        ...


class RtlOptions(Struct, frozen=True, kw_only=True):
    """How the RTL engine runs.

    waves: file to write; latency (cycles) and bytes_per_cycle of the memory: None takes the spec's;
    dram: name of a DDR memory, which has a bandwidth of its own (docs/cycle-engine.md);
    cache: folder of built simulators, None takes the user's cache folder; defines: of the RTL, as
    OPU_EXACT_WIDTHS for the datapaths that are synthesised (docs/synthesis.md).
    """

    waves: Path | None = None
    latency: int | None = None
    bytes_per_cycle: float | None = None
    dram: str | None = None
    cache: Path | None = None
    defines: tuple[str, ...] = ()


def require_waves(path: Path) -> None:
    """Raises RunError where waves cannot be written to that path."""
    if path.suffix not in WAVE_FORMATS:
        raise RunError(
            str(path), f"waves of type {path.suffix!r}", f"use {' or '.join(WAVE_FORMATS)}"
        )
    if not path.resolve().parent.is_dir():
        raise RunError(str(path), "the folder for the waves does not exist", "make it first")
