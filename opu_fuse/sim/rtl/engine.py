"""The RTL as an engine: machine segments of a program file on the simulated machine."""

import numpy as np
from msgspec.structs import replace

from opu_fuse.bundle.memory_image import initial_image
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.ddr import require_dram
from opu_fuse.sim.rtl.machine_run import MachineStop
from opu_fuse.sim.rtl.process import RtlMachine
from opu_fuse.sim.rtl.segment_runs import Segments
from opu_fuse.sim.runner import RtlOptions, SegmentRun

_LONG_CYCLES = 3_000_000
"""Predicted cycles of a program from which a simulator built for speed repays its longer
build: at 1,024 multipliers it takes 2 us a cycle less.
"""


class RtlRunner:
    """One simulated machine as a `Runner`: built and started once, used for all that follows.

    Raises RunError when a tool is missing or the machine stops with an error.
    """

    def __init__(self, bundle: Bundle, hw: HwSpec, options: RtlOptions) -> None:
        if options.dram is not None:
            require_dram(options.dram, options.bytes_per_cycle, bundle.window_bytes)
        self._segments = Segments(bundle, hw)
        self._machine = RtlMachine(
            hw,
            initial_image(bundle),
            latency=options.latency,
            bytes_per_cycle=options.bytes_per_cycle,
            dram=options.dram,
            waves=options.waves,
            cache=options.cache,
            defines=options.defines,
            fast=sum(group.cycles for group in bundle.groups) >= _LONG_CYCLES,
        )

    @property
    def window(self) -> np.ndarray:
        """uint8 memory window, shared with the simulation."""
        return self._machine.window

    def run(self, number: int, segment: MachineSegment, sample: int) -> SegmentRun:
        outcome = self._machine.run(
            segment.program_offset, segment.words, instructions=len(segment.groups)
        )
        if isinstance(outcome, MachineStop):
            raise self._segments.stopped(number, segment, outcome)
        ran = self._segments.ran(number, segment, outcome, outcome.retired)
        return ran if sample == 0 else replace(ran, trace=())

    def close(self) -> None:
        """End the simulation; `window` must not be used any more."""
        self._machine.close()
