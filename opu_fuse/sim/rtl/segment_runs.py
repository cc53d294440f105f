"""A machine segment's run on RTL, in terms of the program file."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from opu_fuse.bundle.memory_image import segment_words
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.bundle.result import Retire
from opu_fuse.hw.isa.assembly import format_instruction
from opu_fuse.hw.isa.encoding import decode_with_positions
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.group_counters import group_counters
from opu_fuse.sim.rtl.machine_run import Counters, MachineStop, Retired, stop_error
from opu_fuse.sim.runner import SegmentRun


class Decoded(Struct, frozen=True, kw_only=True):
    """A decoded segment. numbers: word index of a C-type -> its number."""

    instructions: Sequence[Instruction]
    numbers: Mapping[int, int]


class Segments:
    """The machine segments of a program, decoded when they are first asked for."""

    def __init__(self, bundle: Bundle, hw: HwSpec) -> None:
        self._bundle, self._hw = bundle, hw
        self._decoded: dict[int, Decoded] = {}

    def decoded(self, number: int, segment: MachineSegment) -> Decoded:
        """number: of the segment in the program."""
        if number not in self._decoded:
            instructions, positions = decode_with_positions(segment_words(self._bundle, segment))
            numbers = {int(pc): n for n, pc in enumerate(positions)}
            self._decoded[number] = Decoded(instructions=instructions, numbers=numbers)
        return self._decoded[number]

    def stopped(self, number: int, segment: MachineSegment, stop: MachineStop) -> Exception:
        """The error that explains to the user why the machine faulted in a segment."""
        offender = _offender(self.decoded(number, segment), segment, stop.pc, self._hw)
        return stop_error(stop, f"{self._bundle.model}, segment {number}", offender)

    def ran(
        self, number: int, segment: MachineSegment, totals: Counters, retired: Sequence[Retired]
    ) -> SegmentRun:
        """A segment that reached its end."""
        program = self.decoded(number, segment)
        trace = tuple(
            Retire(
                segment=number,
                group=segment.groups[program.numbers[r.pc]],
                instruction=program.numbers[r.pc],
                engine=r.engine.name.lower(),
                start=r.start,
                end=r.end,
            )
            for r in retired
        )
        return SegmentRun(
            counters=engine_counters(totals, self._hw) | _instructions(trace),
            groups=group_counters(program.instructions, segment, trace, totals.cycles, self._hw),
            trace=trace,
        )


def _offender(program: Decoded, segment: MachineSegment, pc: int, hw: HwSpec) -> str:
    """The instruction a word belongs to: its own, or for a parameter the next one."""
    later = [at for at in program.numbers if at >= pc]
    if not later:
        return "after the last instruction"
    n = program.numbers[min(later)]
    return f"group {segment.groups[n]}, {format_instruction(program.instructions[n], hw)}"


def engine_counters(run: Counters, hw: HwSpec) -> dict[str, int]:
    """Named totals of one segment; dram_bytes_* include the fetched program."""
    bus = hw.dram.bus_bytes
    counters = {
        "cycles": run.cycles,
        "dram_bytes_read": run.read_beats * bus,
        "dram_bytes_written": run.write_beats * bus,
    }
    for engine in Engine:
        name = engine.name.lower()
        counters[f"busy_{name}"] = run.busy[engine]
        counters[f"stall_{name}"] = run.stall[engine]
    return counters


def _instructions(trace: Sequence[Retire]) -> dict[str, int]:
    """Retired instructions of every engine."""
    names = [engine.name.lower() for engine in Engine]
    return {f"instructions_{name}": sum(r.engine == name for r in trace) for name in names}
