"""A compiled program in a cocotb bench, compared with the functional engine as it runs."""

from collections.abc import Mapping
from typing import Any, Protocol

import cocotb
import numpy as np
from cocotb.task import bridge, resume
from cocotb.triggers import Event, select
from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.bundle.memory_image import initial_image
from opu_fuse.bundle.program import Bundle, MachineSegment, Port
from opu_fuse.bundle.result import RunResult
from opu_fuse.cosim.driver import OpuDriver
from opu_fuse.cosim.expected import expect
from opu_fuse.cosim.retired import RetireMonitor
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.engine import run_on
from opu_fuse.sim.rtl.machine_run import Retired
from opu_fuse.sim.rtl.segment_runs import Segments
from opu_fuse.sim.runner import SegmentRun


class Compiled(Protocol):
    """Interface of `opu_fuse.Program`."""

    @property
    def bundle(self) -> Bundle: ...

    @property
    def hw(self) -> HwSpec: ...


class Memory(Protocol):
    """Interface of an `AxiRam` of cocotbext-axi: bytes by bus address, without taking time."""

    def read(self, address: int, length: int) -> Any: ...

    def write(self, address: int, data: bytes) -> object: ...


class ProgramBench:
    """A program, a machine that runs it, and the memory between them.

    program: of `opu_fuse.compile` or `Program.load`; opu: driver of the machine; memory, base:
    address of its memory window, a multiple of 4096; machine: handle of the `opu_top` instance,
    simulated together with `opu_retired.sv`, None where the bench cannot look inside.

    Everything that the machine stores is compared with the functional engine: with `machine` when
    the store retires, else at the end of the segment. The first difference ends the run.
    """

    def __init__(
        self,
        program: Compiled,
        opu: OpuDriver,
        memory: Memory,
        *,
        base: int = 0,
        machine: Any = None,
    ) -> None:
        self.program, self.opu = program, opu
        self._bundle, self._hw = program.bundle, program.hw
        self._memory, self._base, self._machine = memory, base, machine
        self._segments = Segments(program.bundle, program.hw)
        self.window = initial_image(program.bundle)
        """The memory window as the host sees it, uint8."""

    @property
    def inputs(self) -> tuple[Port, ...]:
        """Names, types and shapes of the network's inputs."""
        return self._bundle.inputs

    async def load(self) -> None:
        """Check that it is this machine, set its window, write constants and program words to
        memory.
        """
        await self.opu.probe(self._hw)
        await self.opu.configure(self._base, self._bundle.window_bytes)
        self._memory.write(self._base, self.window.tobytes())

    async def run(self, inputs: Mapping[str, np.ndarray] | None = None) -> RunResult:
        """All segments in their order, those of the host here, between them. inputs: as for
        `Program.run`.

        Raises RunError when the machine stops with an error, and for the first value that differs:
        it names tensor, index, group and instruction.
        """
        whole = bridge(run_on)
        return await whole(_Runner(self), self._bundle, inputs, engine="cosim")

    async def run_segment(self, number: int, segment: MachineSegment, sample: int) -> SegmentRun:
        """One segment on the window as it is now."""
        maps = slice(self._bundle.constants.size, self._bundle.program_offset)
        program = self._segments.decoded(number, segment)
        expected = expect(self._bundle, self._hw, program, segment, self.window)
        self._memory.write(self._base + maps.start, self.window[maps].tobytes())
        differs, failed = list[Exception](), Event()

        def stored(record: Retired) -> None:
            if record.engine is not Engine.STORE or differs:
                return
            difference = expected.at_retirement(record, self.read)
            if difference is not None:
                differs.append(difference)
                failed.set()

        monitor = None if self._machine is None else RetireMonitor(self._machine, stored)
        try:
            await self.opu.start(segment.program_offset, segment.words)
            waiting = cocotb.start_soon(self.opu.wait())
            await select(waiting, failed.wait())
            if differs:
                await self.opu.command("stop")
                await waiting
                raise differs[0]
            stop = await waiting
        finally:
            if monitor is not None:
                monitor.close()
        if stop is not None:
            raise self._segments.stopped(number, segment, stop)
        self.window[maps] = self.read(maps.start, maps.stop - maps.start)
        difference = expected.at_end(self.window)
        if difference is not None:
            raise difference
        retired = () if monitor is None else monitor.records
        ran = self._segments.ran(number, segment, await self.opu.counters(), retired)
        return ran if sample == 0 else replace(ran, trace=())

    def read(self, offset: int, length: int) -> np.ndarray:
        """uint8 bytes of the window, as they are in memory."""
        return np.frombuffer(bytes(self._memory.read(self._base + offset, length)), np.uint8)


class _Runner(Struct, frozen=True):
    """The bench as `engine.run_on` wants it, from the thread in which that runs."""

    bench: ProgramBench

    @property
    def window(self) -> np.ndarray:
        return self.bench.window

    def run(self, number: int, segment: MachineSegment, sample: int) -> SegmentRun:
        return resume(self.bench.run_segment)(number, segment, sample)

    def close(self) -> None:
        """The machine is its owner's."""
