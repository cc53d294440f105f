"""The native engine as a `Runner`."""

import numpy as np

from opu_fuse.bundle.memory_image import initial_image, segment_words
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.bundle.result import GroupCounters, Retire
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.native.machine import NativeMachine
from opu_fuse.sim.runner import SegmentRun

_NAMES = {int(e): e.name.lower() for e in Engine}


class NativeRunner:
    """A machine in C; it shows no tensors but those that remain in the memory window.

    Raises RunError where the library cannot be compiled.
    """

    def __init__(self, bundle: Bundle, hw: HwSpec) -> None:
        self._bundle = bundle
        self.window = initial_image(bundle)
        self._machine = NativeMachine(hw, self.window)

    def run(self, number: int, segment: MachineSegment, sample: int) -> SegmentRun:
        retired = self._machine.run(segment_words(self._bundle, segment))
        engines = retired["engine"]
        moved = retired["moved"].astype(np.int64)
        read, written = (np.where(engines == e, moved, 0) for e in (Engine.LOAD, Engine.STORE))
        counters = {
            f"instructions_{name}": int(np.count_nonzero(engines == e))
            for e, name in _NAMES.items()
        }
        counters |= {"dram_bytes_read": int(read.sum()), "dram_bytes_written": int(written.sum())}
        return SegmentRun(
            counters=counters,
            groups=_groups(segment, read, written),
            trace=_trace(number, segment, retired) if sample == 0 else (),
        )

    def close(self) -> None:
        """Nothing was started."""


def _groups(
    segment: MachineSegment, read: np.ndarray, written: np.ndarray
) -> tuple[GroupCounters, ...]:
    """Per group of the segment, by index; prologue and end are in no group."""
    groups = np.asarray(segment.groups)
    indices, place, counts = np.unique(groups, return_inverse=True, return_counts=True)
    sums = [np.zeros(len(indices), np.int64) for _ in range(2)]
    for total, each in zip(sums, (read, written), strict=True):
        np.add.at(total, place, each)
    return tuple(
        GroupCounters(
            index=int(index),
            instructions=int(count),
            dram_bytes_read=int(was_read),
            dram_bytes_written=int(was_written),
        )
        for index, count, was_read, was_written in zip(indices, counts, *sums, strict=True)
        if index >= 0
    )


def _trace(number: int, segment: MachineSegment, retired: np.ndarray) -> tuple[Retire, ...]:
    engines = [_NAMES[engine] for engine in retired["engine"].tolist()]
    return tuple(
        Retire(segment=number, group=group, instruction=n, engine=engine, start=0, end=0)
        for n, (group, engine) in enumerate(zip(segment.groups, engines, strict=True))
    )
