"""A run of samples on a started engine: values outside the machine, and what is collected."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock

import numpy as np
from msgspec import Struct, field

from opu_fuse.bundle.memory_image import read_tensor, write_tensor
from opu_fuse.bundle.program import Bundle, HostSegment, MachineSegment, Tensor
from opu_fuse.bundle.result import GroupCounters, Retire, RunResult
from opu_fuse.errors import InternalError, RunError
from opu_fuse.host.run.segment import Hosts
from opu_fuse.process.progress import part
from opu_fuse.sim import ports
from opu_fuse.sim.compare.complete import INPUTS, surviving, whole_tensors
from opu_fuse.sim.runner import Runner

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
        """Store a value computed on the host; a map is also written to the memory window."""
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


class Session(Struct):
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

    def add(self, later: "Session") -> None:
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
