"""The RTL as an engine: machine segments of a program file on the simulated machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opu_fuse.bundle.image import initial_image, segment_words
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.bundle.result import Retire
from opu_fuse.hw.asm import format_instruction
from opu_fuse.hw.encoding import decode_with_positions
from opu_fuse.hw.instruction import Instruction
from opu_fuse.hw.isa import Engine
from opu_fuse.hw.spec import HwSpec
from opu_fuse.sim.rtl_process import MachineStop, ProgramRun, RtlMachine, stop_error
from opu_fuse.sim.runner import RtlOptions, SegmentRun
from opu_fuse.sim.timed import group_counters


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """A decoded segment. numbers: word index of a C-type -> its number."""

    instructions: Sequence[Instruction]
    numbers: Mapping[int, int]


class RtlRunner:
    """One simulated machine as a `Runner`: built and started once, used for all that follows.

    Raises RunError when a tool is missing or the machine stops with an error.
    """

    def __init__(self, bundle: Bundle, hw: HwSpec, options: RtlOptions) -> None:
        self._bundle, self._hw = bundle, hw
        self._programs: dict[int, _Program] = {}
        self._machine = RtlMachine(
            hw,
            initial_image(bundle),
            latency=options.latency,
            bytes_per_cycle=options.bytes_per_cycle,
            waves=options.waves,
            cache=options.cache,
        )

    @property
    def window(self) -> np.ndarray:
        """uint8 memory window, shared with the simulation."""
        return self._machine.window

    def run(self, number: int, segment: MachineSegment, sample: int) -> SegmentRun:
        program = self._program(number, segment)
        found = self._machine.run(segment.program_offset, segment.words)
        if isinstance(found, MachineStop):
            where = f"{self._bundle.model}, segment {number}"
            raise stop_error(found, where, _offender(program, segment, found.pc, self._hw))
        trace = tuple(
            Retire(
                segment=number,
                group=segment.groups[program.numbers[r.pc]],
                instruction=program.numbers[r.pc],
                engine=r.engine.name.lower(),
                start=r.start,
                end=r.end,
            )
            for r in found.retired
        )
        return SegmentRun(
            counters=_counters(found, self._hw, trace),
            groups=group_counters(program.instructions, segment, trace, found.cycles, self._hw),
            trace=trace if sample == 0 else (),
        )

    def close(self) -> None:
        """End the simulation; `window` must not be used any more."""
        self._machine.close()

    def _program(self, number: int, segment: MachineSegment) -> _Program:
        if number not in self._programs:
            words = segment_words(self._bundle, segment)
            instructions, positions = decode_with_positions(words)
            self._programs[number] = _Program(
                instructions=instructions,
                numbers={int(pc): n for n, pc in enumerate(positions)},
            )
        return self._programs[number]


def _offender(program: _Program, segment: MachineSegment, pc: int, hw: HwSpec) -> str:
    """The instruction a word belongs to: its own, or for a parameter the next one."""
    later = [at for at in program.numbers if at >= pc]
    if not later:
        return "behind the last instruction"
    n = program.numbers[min(later)]
    return f"group {segment.groups[n]}, {format_instruction(program.instructions[n], hw)}"


def _counters(run: ProgramRun, hw: HwSpec, trace: Sequence[Retire]) -> dict[str, int]:
    """Named totals of one segment; dram_bytes_* include the fetched program."""
    bus = hw.dram.bus_bytes
    counters = {
        "cycles": run.cycles,
        "dram_bytes_read": run.read_beats * bus,
        "dram_bytes_written": run.write_beats * bus,
    }
    for engine in Engine:
        name = engine.name.lower()
        counters[f"instructions_{name}"] = sum(r.engine == name for r in trace)
        counters[f"busy_{name}"] = run.busy[engine]
        counters[f"stall_{name}"] = run.stall[engine]
    return counters
