"""Running a program: inputs in, segments in their order, outputs out."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from threading import Lock

import numpy as np
from msgspec import Struct, field

from opu_fuse.bundle.memory_image import initial_image, read_tensor, segment_words, write_tensor
from opu_fuse.bundle.program import Bundle, HostSegment, MachineSegment, Tensor
from opu_fuse.bundle.result import GroupCounters, Retire, RunResult
from opu_fuse.choices import require_choice
from opu_fuse.errors import InternalError, ProgramError, RunError
from opu_fuse.host.run.segment import Hosts, hosts_of, may_fork
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.input_arrays import Arrays
from opu_fuse.process.progress import part, report
from opu_fuse.sim import ports
from opu_fuse.sim.compare.complete import INPUTS, surviving, whole_tensors
from opu_fuse.sim.cycle.run import MemoryOptions, run_cycle
from opu_fuse.sim.engine_names import EngineLike, EngineName
from opu_fuse.sim.functional.capture import Capture, Totals
from opu_fuse.sim.functional.machine import Executed, Machine
from opu_fuse.sim.runner import RtlOptions, Runner, SegmentRun


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
    runner = _runner(bundle, hw, EngineName(engine), shuffle, capture, rtl)
    threads = _threads(bundle, samples[1]) if EngineName(engine) is EngineName.NATIVE else 1
    others = [
        _runner(bundle, hw, EngineName(engine), shuffle, capture, rtl) for _ in range(1, threads)
    ]
    try:
        return _run_samples(bundle, [runner, *others], samples, str(engine), capture=capture)
    finally:
        runner.close()


def _threads(bundle: Bundle, samples: int) -> int:
    """Threads that run samples at the same time, one for each processor. One where a host operator
    may run in a fork: in that no other thread would go on.
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
    inputs: Mapping[str, np.ndarray] | None,
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
    session = _Session(bundle, runners[0], hosts_of(bundle), capture)
    idle = SimpleQueue[Runner]()
    for runner in runners:
        idle.put(runner)

    def images(first: int) -> list[Mapping[str, np.ndarray]]:
        here = range(first, min(first + bundle.batch, count))
        return [{name: a[n, ...] for name, a in arrays.items()} for n in here]

    def alone(number: int, first: int) -> _Session:
        """One batch, on whichever machine is idle."""
        runner = idle.get()
        own = _Session(bundle, runner, session.hosts, capture, lock=session.lock)
        own.batch(number, images(first))
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


_Images = Sequence[np.ndarray] | np.ndarray
"""A value of every image."""


class _Values(Struct):
    """Values of one batch outside the machine, an array for every image. images: that the program
    runs together. host: by name; a map changes its layout once at most. seen: int8 values, captured
    ones included.
    """

    window: np.ndarray
    maps: Mapping[str, Tensor]
    images: int
    host: dict[str, _Images] = field(default_factory=dict)
    seen: dict[str, _Images] = field(default_factory=dict)

    def put(self, name: str, values: _Images) -> None:
        """Store a value computed on the host; a map also goes to the memory window."""
        if name in self.maps:
            for value in values:
                _must_be_int8(name, value)
                ports.require_shape(f"value {name}", value, self.maps[name].shape)
            values = [value.reshape(self.maps[name].shape) for value in values]
            missing = [np.zeros_like(values[0])] * (self.images - len(values))
            write_tensor(self.window, self.maps[name], np.stack([*values, *missing]))
        self.host[name] = values
        if values[0].dtype == np.int8:
            self.seen[name] = values

    def get(self, name: str) -> _Images:
        if name not in self.host:
            self.host[name] = list(read_tensor(self.window, self.maps[name], self.images))
        return self.host[name]


class _Session(Struct):
    """One run: what is collected over its samples."""

    bundle: Bundle
    runner: Runner
    hosts: Hosts
    capture: bool
    outputs: dict[str, list[np.ndarray]] = field(default_factory=dict)
    tensors: dict[str, list[np.ndarray]] = field(default_factory=dict)
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)
    groups: dict[int, Counter[str]] = field(default_factory=dict)
    trace: list[Retire] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)
    """Host segments of several threads run one by one: ONNX Runtime has threads of its own."""

    def add(self, later: "_Session") -> None:
        """What a session of the samples that come next has collected."""
        for own, others in ((self.outputs, later.outputs), (self.tensors, later.tensors)):
            for name, arrays in others.items():
                own.setdefault(name, []).extend(arrays)
        for index, counters in later.groups.items():
            self.groups.setdefault(index, Counter()).update(counters)
        self.counters.update(later.counters)
        self.masks |= later.masks
        self.trace += later.trace

    def batch(self, number: int, inputs: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Run all segments once. inputs: one mapping per image, at most `batch` of them."""
        maps = {t.name: t for t in self.bundle.tensors}
        values = _Values(self.runner.window, maps, self.bundle.batch)
        for port in self.bundle.inputs:
            inside = port.value in maps
            arrays = [ports.to_value(port, x[port.name], inside_int8=inside) for x in inputs]
            values.put(port.value, arrays)
            if port.unrounded:
                as_given = replace(port, scale=None, turn=None, table=None)
                raw = [ports.to_value(as_given, x[port.name], inside_int8=False) for x in inputs]
                values.put(port.unrounded, raw)
        values.seen.update(self._written_outside(INPUTS))
        for index, segment in enumerate(self.bundle.segments):
            if isinstance(segment, HostSegment):
                feeds = {value: values.get(value) for _, value in segment.inputs}
                with self.lock:
                    results = [
                        self.hosts.run(segment, {value: of[n] for value, of in feeds.items()})
                        for n in range(len(inputs))
                    ]
                for name in results[0]:
                    values.put(name, [result[name] for result in results])
                values.seen.update(self._written_outside(index))
            else:
                values.seen.update(self._machine_segment(index, segment, number))
        for port in self.bundle.outputs:
            for value in values.get(port.value)[: len(inputs)]:
                array = ports.from_value(port, value, inside_int8=port.value in maps)
                self.outputs.setdefault(port.name, []).append(array)
        for name, captured in values.seen.items() if self.capture else ():
            for value in captured[: len(inputs)]:
                one = value.ndim and value.shape[0] == 1  # or it has no axis of samples yet
                self.tensors.setdefault(name, []).append(value if one else value[np.newaxis])

    def _machine_segment(
        self, index: int, segment: MachineSegment, sample: int
    ) -> Mapping[str, np.ndarray]:
        """Run it; its captured tensors, of every image."""
        with part(*_share(self.bundle, index)):
            done = self.runner.run(index, segment, sample)
        self.counters.update(done.counters)
        for g in done.groups:
            total = self.groups.setdefault(g.index, Counter())
            total.update(
                instructions=g.instructions,
                dram_bytes_read=g.dram_bytes_read,
                dram_bytes_written=g.dram_bytes_written,
                cycles=g.cycles,
            )
        if sample == 0:
            self.trace += done.trace
            self.masks |= done.masks
        if not self.capture or done.tensors:
            return done.tensors
        complete = surviving(whole_tensors(self.bundle), index)
        return {t.name: read_tensor(self.runner.window, t, self.bundle.batch) for t in complete}

    def _written_outside(self, segment: int) -> Mapping[str, np.ndarray]:
        """Tensors that the inputs or a host segment complete, as stored in memory."""
        if not self.capture:
            return {}
        wholes = (w for w in whole_tensors(self.bundle) if w.segment == segment)
        window, images = self.runner.window, self.bundle.batch
        return {w.tensor.name: read_tensor(window, w.tensor, images) for w in wholes}

    def result(self, engine: str, samples: int) -> RunResult:
        """Everything collected, samples along the first axis."""
        return RunResult(
            engine=engine,
            outputs={name: _joined(name, result) for name, result in self.outputs.items()},
            tensors={name: _joined(name, result) for name, result in self.tensors.items()},
            masks=self.masks,
            counters=dict(self.counters),
            groups=tuple(GroupCounters(index=i, **self.groups[i]) for i in sorted(self.groups)),
            trace=tuple(self.trace),
            samples=samples,
            batch=self.bundle.batch,
        )


def _share(bundle: Bundle, index: int) -> tuple[float, float]:
    """From which share of a program's instructions to which its segment `index` is."""
    sizes = [len(s.groups) if isinstance(s, MachineSegment) else 0 for s in bundle.segments]
    whole, begun = max(sum(sizes), 1), sum(sizes[:index])
    return begun / whole, (begun + sizes[index]) / whole


def _joined(name: str, arrays: list[np.ndarray]) -> np.ndarray:
    if len(arrays) == 1:
        return arrays[0]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:  # it depends on the data
        what = f"has another shape for every sample ({', '.join(map(str, sorted(shapes)))})"
        raise RunError(f"output {name}", what, "run the samples one by one")
    batched = arrays[0].ndim and arrays[0].shape[0] == 1
    return np.concatenate(arrays) if batched else np.stack(arrays)


def _must_be_int8(name: str, value: np.ndarray) -> None:
    if value.dtype != np.int8:
        raise InternalError(
            "run", f"{name} is int8 in the machine, the host computed {value.dtype}"
        )
