"""A machine whose registers and memory this process can reach: programs run on it as on any engine
(`opu_fuse.sim.runner`), host segments between them in this process.
"""

from contextlib import ExitStack
from typing import Protocol

import numpy as np

from opu_fuse.bundle.memory_image import initial_image
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.devices.control import Control
from opu_fuse.devices.device import Device
from opu_fuse.errors import RunError
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.input_arrays import Arrays
from opu_fuse.program import Program
from opu_fuse.program_run import ProgramRun
from opu_fuse.sim.engine import run_on
from opu_fuse.sim.rtl.segment_runs import Segments, engine_counters
from opu_fuse.sim.runner import SegmentRun

PAGE = 4096


class Memory(Protocol):
    """Memory that processor and machine share.

    bytes: as the processor maps it, uint8; address: of its first byte on the machine's bus.
    """

    @property
    def bytes(self) -> np.ndarray: ...

    @property
    def address(self) -> int: ...

    def to_device(self) -> None:
        """Make what the processor wrote visible to the machine (cache clean)."""
        ...

    def to_processor(self) -> None:
        """Make what the machine wrote visible to the processor (cache invalidate)."""
        ...


class MappedDevice(Device):
    """A machine behind registers and shared memory. where: its name in messages; timeout: seconds
    that a machine segment may take; opened: what ends with it.
    """

    def __init__(
        self,
        control: Control,
        memory: Memory,
        where: str,
        *,
        timeout: float = 10.0,
        opened: ExitStack | None = None,
    ) -> None:
        self._control, self._memory, self._where, self._timeout = control, memory, where, timeout
        self._opened = opened or ExitStack()
        self._loaded: _Loaded | None = None

    def run(self, program: Program, inputs: Arrays | None = None) -> ProgramRun:
        """Run a program, as `Program.run` does. Constants and instructions are written to memory
        when another program ran before it.

        inputs: input name -> array; none: seeded noise with a warning. Raises RunError where the
        machine is another one, the memory is too small, or the machine stops or does not end.
        """
        if self._loaded is None or self._loaded.bundle is not program.bundle:
            self._loaded = _Loaded(
                program.bundle, program.hw, self._control, self._memory, self._where, self._timeout
            )
        result = run_on(self._loaded, program.bundle, inputs, engine=self._where)
        return ProgramRun.of(result, program.bundle, program.hw)

    def close(self) -> None:
        """Forget the program and close what was opened for the device."""
        self._loaded = None
        self._opened.close()


class _Loaded:
    """A program in the memory of a machine (`opu_fuse.sim.runner.Runner`)."""

    def __init__(
        self,
        bundle: Bundle,
        hw: HwSpec,
        control: Control,
        memory: Memory,
        where: str,
        timeout: float,
    ) -> None:
        size = bundle.window_bytes
        if size > memory.bytes.size:
            what = f"the program needs {size:,} bytes of memory, there are {memory.bytes.size:,}"
            raise RunError(where, what, "reserve more memory for the machine")
        if memory.address % PAGE:
            what = f"its memory begins at {memory.address:#x}"
            raise RunError(where, what, f"use an address that is a multiple of {PAGE}")
        control.probe(hw)
        control.configure(memory.address, size)
        self.bundle, self.window = bundle, memory.bytes[:size]
        self.window[:] = initial_image(bundle)
        self._hw, self._control, self._memory, self._timeout = hw, control, memory, timeout
        self._segments = Segments(bundle, hw)

    def run(self, number: int, segment: MachineSegment, sample: int) -> SegmentRun:
        """sample: for traces, which a device has not."""
        del sample
        self._memory.to_device()
        stop = self._control.run(segment.program_offset, segment.words, self._timeout)
        self._memory.to_processor()
        if stop is not None:
            raise self._segments.stopped(number, segment, stop)
        return SegmentRun(counters=engine_counters(self._control.counters(), self._hw))

    def close(self) -> None:
        """The machine retains its state."""
