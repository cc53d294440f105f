"""Running a program: inputs in, segments in their order, outputs out."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np

from opu_fuse.bundle.memory_image import initial_image, segment_words
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.bundle.result import Retire, RunResult
from opu_fuse.choices import require_choice
from opu_fuse.errors import ProgramError, RunError
from opu_fuse.host.run.segment import hosts_of, may_fork
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.input_arrays import Arrays
from opu_fuse.process.progress import part, report
from opu_fuse.sim import ports
from opu_fuse.sim.compare.complete import whole_tensors
from opu_fuse.sim.cycle.run import MemoryOptions, run_cycle
from opu_fuse.sim.engine_names import EngineLike, EngineName
from opu_fuse.sim.functional.capture import Capture, Totals
from opu_fuse.sim.functional.machine import Executed, Machine
from opu_fuse.sim.runner import RtlOptions, Runner, SegmentRun
from opu_fuse.sim.session import Session


def run(
    bundle: Bundle,
    hw: HwSpec,
    inputs: Arrays | None = None,
    *,
    engine: EngineLike = EngineName.FUNCTIONAL,
    shuffle: int | None = None,
    capture: bool = False,
    rtl: RtlOptions | None = None,
    memory: MemoryOptions | None = None,
) -> RunResult:
    """Run a program on one engine.

    inputs: model input name -> array of the model's dtype and shape, or (N, …) for N samples, which
    run as many together as the program takes (images that are missing in the last run are zeros);
    none: seeded noise with a warning. shuffle (functional): seed of a random order among those
    the counters allow. capture: return the int8 tensors inside as well; RTL and native engine show
    those whose bytes are not reused. rtl: how the RTL runs. memory: what the cycle engine runs
    with; it takes no inputs and gives no outputs.

    Raises ProgramError for a program of another machine, RunError for inputs that do not fit the
    model and when the machine stops with an error, UserError for an unknown engine.
    """
    require_machine(bundle, hw)
    require_choice("engine", engine, EngineName)
    if EngineName(engine) is EngineName.CYCLE:
        if inputs is not None or capture or shuffle is not None or rtl is not None:
            what = "the cycle engine has no data: `memory` is its only option"
            raise RunError(f"engine={engine}", what, "leave out inputs, capture, shuffle and rtl")
        return run_cycle(bundle, hw, memory)
    if memory is not None:
        what = "memory belongs to the cycle engine; the RTL takes `rtl`"
        raise RunError(f"engine={engine}", what, "leave out memory, or run with engine=cycle")
    samples = ports.samples_of(bundle, inputs)
    threads = _threads(bundle, samples[1]) if EngineName(engine) is EngineName.NATIVE else 1
    runners = [
        _runner(bundle, hw, EngineName(engine), shuffle, capture, rtl) for _ in range(threads)
    ]
    try:
        return _run_samples(bundle, runners, samples, str(engine), capture=capture)
    finally:
        for runner in runners:
            runner.close()


def _threads(bundle: Bundle, samples: int) -> int:
    """Threads that run samples at the same time, one for each processor. One where a host operator
    may run in a fork: in that no other thread runs.
    """
    batches = -(-samples // bundle.batch)
    return 1 if may_fork(bundle) else max(1, min(batches, len(os.sched_getaffinity(0))))


def require_machine(bundle: Bundle, hw: HwSpec) -> None:
    """Raises ProgramError where a program was compiled for another machine."""
    if bundle.spec_hash != hw.spec_hash:
        raise ProgramError(
            bundle.model,
            f"was compiled for machine {bundle.spec_hash:011x}, {hw.name} is {hw.spec_hash:011x}",
            f"compile the model for {hw.name}",
        )


def run_on(
    runner: Runner,
    bundle: Bundle,
    inputs: Arrays | None,
    *,
    engine: str,
    capture: bool = False,
) -> RunResult:
    """Run a program as `run` does, on an engine that the caller started and continues to use.

    engine: its name.
    """
    samples = ports.samples_of(bundle, inputs)
    return _run_samples(bundle, [runner], samples, engine, capture=capture)


def _run_samples(
    bundle: Bundle,
    runners: Sequence[Runner],
    samples: tuple[Mapping[str, np.ndarray], int],
    engine: str,
    *,
    capture: bool,
) -> RunResult:
    """runners: equal ones, each for a thread of its own."""
    arrays, count = samples
    session = Session(bundle, runners[0], hosts_of(bundle), capture)
    idle = SimpleQueue[Runner]()
    for runner in runners:
        idle.put(runner)

    def images(first: int) -> list[Mapping[str, np.ndarray]]:
        here = range(first, min(first + bundle.batch, count))
        return [{name: a[n, ...] for name, a in arrays.items()} for n in here]

    def alone(number: int, first: int) -> Session:
        """One batch, on whichever machine is idle."""
        runner = idle.get()
        own = Session(bundle, runner, session.hosts, capture, lock=session.lock)
        try:
            own.batch(number, images(first))
        finally:
            idle.put(runner)
        return own

    firsts = range(0, count, bundle.batch)
    if len(runners) == 1:
        for number, first in enumerate(firsts):
            end = min(first + bundle.batch, count)
            with part(first / count, end / count):
                report(f"sample {end} of {count}", 0.0)
                session.batch(number, images(first))
        return session.result(engine, count)
    with ThreadPoolExecutor(len(runners)) as pool:
        begun = [pool.submit(alone, *numbered) for numbered in enumerate(firsts)]
        try:
            for first, one in zip(firsts, begun, strict=True):
                report(f"sample {first + 1} of {count}", first / count)
                session.add(one.result())
        finally:
            pool.shutdown(cancel_futures=True)
    return session.result(engine, count)


def _runner(
    bundle: Bundle,
    hw: HwSpec,
    engine: EngineName,
    shuffle: int | None,
    capture: bool,
    rtl: RtlOptions | None,
) -> Runner:
    if rtl is not None and engine is not EngineName.RTL:
        what = "rtl belongs to the RTL engine"
        raise RunError(f"engine={engine}", what, "leave out rtl, or run with engine=rtl")
    if engine is EngineName.FUNCTIONAL:
        return FunctionalRunner(bundle, hw, shuffle=shuffle, capture=capture)
    if shuffle is not None:
        what = "shuffle belongs to the functional engine"
        raise RunError(f"engine={engine}", what, "leave out shuffle, or run with engine=functional")
    if engine is EngineName.NATIVE:
        from opu_fuse.sim.native.runner import NativeRunner

        return NativeRunner(bundle, hw)
    from opu_fuse.sim.rtl.engine import RtlRunner

    return RtlRunner(bundle, hw, rtl or RtlOptions())


class FunctionalRunner:
    """The functional machine as a `Runner`."""

    def __init__(
        self, bundle: Bundle, hw: HwSpec, *, shuffle: int | None = None, capture: bool = False
    ) -> None:
        self._bundle, self._hw, self._shuffle, self._capture = bundle, hw, shuffle, capture
        self.window = initial_image(bundle)
        self._machine = Machine(hw, self.window)
        self._programs: dict[int, list[Instruction]] = {}

    def run(self, number: int, segment: MachineSegment, sample: int) -> SegmentRun:
        if number not in self._programs:
            self._programs[number] = decode(segment_words(self._bundle, segment))
        program = self._programs[number]
        totals = Totals(segment.groups)
        inside = None
        if self._capture:
            wholes = [w for w in whole_tensors(self._bundle) if w.segment == number]
            inside = Capture(self._bundle, self._hw, segment, program, self.window, wholes)
        trace: list[Retire] = []

        def observe(executed: Executed) -> None:
            totals(executed)
            if inside is not None:
                inside(executed)
            if sample == 0:
                trace.append(_retired(number, segment, executed))

        shuffle = None if self._shuffle is None else self._shuffle + sample
        self._machine.run(program, shuffle=shuffle, observer=observe)
        return SegmentRun(
            counters=totals.counters(),
            groups=totals.groups(),
            trace=tuple(trace),
            tensors=inside.tensors if inside else {},
            masks=inside.masks if inside else {},
        )

    def close(self) -> None:
        """Nothing was started."""


def _retired(number: int, segment: MachineSegment, executed: Executed) -> Retire:
    return Retire(
        segment=number,
        group=segment.groups[executed.number],
        instruction=executed.number,
        engine=executed.instruction.engine.name.lower(),
        start=0,
        end=0,
    )
