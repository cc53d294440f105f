"""The cycle engine: how long a program takes, without computing anything.

The program's own instructions pass through models of fetch, issue, the engines and the memory,
which follow the RTL (docs/cycle-engine.md). The engine has no data: no inputs and no outputs.
"""

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from opu_fuse.bundle.memory_image import segment_words
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.bundle.result import Retire, RunResult, Stall
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.process.garbage_collection import no_collection
from opu_fuse.sim.cycle.counters import engine_counters, gaps
from opu_fuse.sim.cycle.instruction_costs import steps_of
from opu_fuse.sim.cycle.machine import CycleMachine
from opu_fuse.sim.ddr import require_dram
from opu_fuse.sim.group_counters import group_counters

ENGINE_NAME = "cycle"


class MemoryOptions(Struct, frozen=True, kw_only=True):
    """The memory at the port: latency (cycles) and bytes_per_cycle, None: the spec's; dram: name of
    a DDR memory, which has a bandwidth of its own (docs/cycle-engine.md).
    """

    latency: int | None = None
    bytes_per_cycle: float | None = None
    dram: str | None = None


def run_cycle(bundle: Bundle, hw: HwSpec, options: MemoryOptions | None = None) -> RunResult:
    """Time one run of a program: counters, groups, retire records and stalls.

    Host segments take no time. Raises ProgramError for words that are no program, RunError
    where the machine stops.
    """
    options = options or MemoryOptions()
    if options.dram is not None:
        require_dram(options.dram, options.bytes_per_cycle, bundle.window_bytes)
    with no_collection():
        results = [
            _segment(bundle, number, segment, hw, options)
            for number, segment in enumerate(bundle.segments)
            if isinstance(segment, MachineSegment)
        ]
    counters: Counter[str] = Counter()
    for run in results:
        counters.update(run.counters)
    return RunResult(
        engine=ENGINE_NAME,
        outputs={},
        counters=dict(counters),
        groups=tuple(group for run in results for group in run.groups),
        trace=tuple(r for run in results for r in run.trace),
        stalls=tuple(stall for run in results for stall in run.stalls),
        samples=bundle.batch,
        batch=bundle.batch,
    )


def _segment(
    bundle: Bundle, number: int, segment: MachineSegment, hw: HwSpec, options: MemoryOptions
) -> RunResult:
    """One machine segment."""
    instructions, steps = steps_of(segment_words(bundle, segment), hw, bundle.window_bytes)
    memory = hw.dram
    latency = memory.latency if options.latency is None else options.latency
    speed = memory.bytes_per_cycle if options.bytes_per_cycle is None else options.bytes_per_cycle
    machine = CycleMachine(
        steps,
        hw,
        base=segment.program_offset,
        latency=latency,
        bytes_per_cycle=speed,
        dram=options.dram,
    )
    cycles = machine.run()
    trace = tuple(_retired(machine, number, segment))
    counters = engine_counters(machine, cycles)
    counters["dram_bytes_read"] = machine.read_beats * memory.bus_bytes
    counters["dram_bytes_written"] = machine.write_beats * memory.bus_bytes
    return RunResult(
        engine=ENGINE_NAME,
        outputs={},
        counters=counters,
        groups=group_counters(instructions, segment, trace, cycles, hw),
        trace=trace,
        stalls=tuple(
            Stall(segment=number, engine=_name(engine), start=start, end=end, reason=reason)
            for engine, issue in machine.issues.items()
            for start, end, reason in gaps(issue)
        ),
    )


def _retired(machine: CycleMachine, number: int, segment: MachineSegment) -> Iterator[Retire]:
    """Retire records in the order of the RTL's: by cycle, then by engine."""
    retired = [
        (end, engine, start, step.number)
        for engine, issue in machine.issues.items()
        for step, start, end in zip(issue.steps, issue.starts, issue.ends, strict=True)
    ]
    retired += [(at, int(Engine.FETCH), at, step.number) for step, at in machine.fetch.own]
    for end, engine, start, instruction in sorted(retired):
        yield Retire(
            segment=number,
            group=segment.groups[instruction],
            instruction=instruction,
            engine=_name(engine),
            start=start,
            end=end,
        )


def _name(engine: int) -> str:
    return Engine(engine).name.lower()
