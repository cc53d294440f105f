"""Plan of a sweep: axes in a YAML file (or a mapping), and the points they span."""

import hashlib
import itertools
import json
import math
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
)
from pydantic.dataclasses import dataclass as checked

from opu_fuse import zoo
from opu_fuse.errors import SpecError, UserError
from opu_fuse.frontend.choice_names import Scales
from opu_fuse.fuse.norm_operators import norms_of
from opu_fuse.fuse.strategies.strategy_names import DEFAULT_STRATEGY, REWRITING, StrategyName
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.limits import MAX_LATENCY, MAX_SPEED, MIN_SPEED
from opu_fuse.hw.spec.load_spec import find_spec, load_hw, load_hw_text
from opu_fuse.hw.spec.yaml_tree import parse_tree
from opu_fuse.layout.batch import MOST_IMAGES
from opu_fuse.sim.array_files import file_errors, read_text
from opu_fuse.sweeping.source import source_digest

Setting = tuple[float | None, int | None]
"""Memory of a run: bytes per cycle, latency in cycles; None: the spec's."""
Value = Any
"""Value of a key of a spec, as in YAML."""

_CONFIG = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
MOST_POINTS = 100_000
"""Most points of a sweep. Every machine is held in memory."""


@checked(frozen=True, kw_only=True, config=_CONFIG)
class Range:
    """start, start + step, … as far as stop, which is included."""

    start: float
    stop: float
    step: Annotated[float, Field(gt=0)]

    def __post_init__(self) -> None:
        """Raises ValueError, what and help, for no values and for more than a sweep has points."""
        if self.start > self.stop:
            what = f"start {self.start:.15g} is more than stop {self.stop:.15g}"
            raise ValueError(what, "swap them")
        if self._steps >= MOST_POINTS:
            what = f"{len(self):,} values, and a sweep has at most {MOST_POINTS:,} points"
            raise ValueError(what, "take a larger step")

    @property
    def _steps(self) -> float:
        """Finite, however long the range is."""
        return min((self.stop - self.start) / self.step + 1e-9, 1e15)

    def __len__(self) -> int:
        return int(self._steps) + 1

    def __iter__(self) -> Iterator[float]:
        values = (self.start + i * self.step for i in range(len(self)))
        return (int(value) if value.is_integer() else value for value in values)


_RANGE, _VALUES = "<range>", "<values>"


def _form(entry_value: Any) -> str:
    keys = {"start", "stop", "step"}
    return _RANGE if isinstance(entry_value, dict) and keys & entry_value.keys() else _VALUES


def _listed(entry_value: Any) -> tuple[Any, ...]:
    return tuple(entry_value) if isinstance(entry_value, list) else (entry_value,)


_at_least_one = (BeforeValidator(_listed), Field(min_length=1))
_Axis = Annotated[
    Annotated[Range, Tag(_RANGE)] | Annotated[tuple[Value, ...], *_at_least_one, Tag(_VALUES)],
    Discriminator(_form),
]
"""A value, a list of them or a range."""


@checked(frozen=True, kw_only=True, config=_CONFIG)
class ModelEntry:
    """model: an ONNX or TFLite file, or a network of the zoo, which can have another `image` size;
    shapes, dims: sizes of dynamic dimensions.
    """

    model: str
    image: Annotated[int, Field(ge=1)] | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)


@checked(frozen=True, kw_only=True, config=_CONFIG)
class SpecEntry:
    """A machine, and values for some of its keys (`buffers.feature.words`); all their combinations
    are machines of the sweep.
    """

    spec: str
    set: dict[str, _Axis] = field(default_factory=dict)

    @property
    def machines(self) -> int:
        return math.prod(map(len, self.set.values()))


_Speed = Annotated[float, Field(ge=MIN_SPEED, le=MAX_SPEED)]
_Latency = Annotated[int, Field(ge=0, le=MAX_LATENCY)]


@checked(frozen=True, kw_only=True, config=_CONFIG)
class MemoryAxes:
    """Settings of the memory at the port, a value or a list of each; their product. None: the
    spec's.
    """

    bytes_per_cycle: Annotated[tuple[_Speed | None, ...], *_at_least_one] = (None,)
    latency: Annotated[tuple[_Latency | None, ...], *_at_least_one] = (None,)

    @property
    def settings(self) -> tuple[Setting, ...]:
        return tuple(itertools.product(self.bytes_per_cycle, self.latency))


_Images = Annotated[int, Field(ge=1, le=MOST_IMAGES)]


@checked(frozen=True, kw_only=True, config=_CONFIG)
class SweepFile:
    """The schema of SWEEP.yaml. batches: images that a program runs together."""

    models: Annotated[tuple[str | ModelEntry, ...], Field(min_length=1)]
    specs: Annotated[tuple[str | SpecEntry, ...], Field(min_length=1)]
    strategies: Annotated[tuple[StrategyName, ...], Field(min_length=1)] = (DEFAULT_STRATEGY,)
    scales: Annotated[tuple[Scales, ...], Field(min_length=1)] = (Scales.POW2,)
    batches: Annotated[tuple[_Images, ...], Field(min_length=1)] = (1,)
    memory: MemoryAxes = field(default_factory=MemoryAxes)

    @property
    def points(self) -> int:
        machines = sum(1 if isinstance(s, str) else s.machines for s in self.specs)
        axes = (self.models, self.strategies, self.scales, self.batches, self.memory.settings)
        return machines * math.prod(map(len, axes))


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model of a sweep. path: of a file, None for networks of the zoo.

    content: hash or name that identifies its points.
    """

    entry: ModelEntry
    path: Path | None

    @property
    def name(self) -> str:
        return self.path.stem if self.path else self.entry.model

    @cached_property
    def content(self) -> str:
        if self.path is None:
            return f"zoo {self.entry.model}"
        with file_errors(self.path):
            return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def quantised_key(self, scales: str, *, rewriting: bool, norms: Iterable[str] = ()) -> str:
        """Key of its quantised form, equal in every sweep. norms: those that the machine runs."""
        sizes = (self.entry.image, self.entry.shapes, self.entry.dims)
        return _hash(self.content, *sizes, scales, rewriting, *sorted(norms))


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A spec with some keys set to other values."""

    base: HwSpec
    values: Mapping[str, Value]

    @cached_property
    def tree(self) -> dict[str, Any]:
        """Raises UserError for keys that a spec does not have."""
        tree = self.base.to_tree()
        for key, value in self.values.items():
            node: Any = tree
            *folders, leaf = key.split(".")
            for name in folders:
                node = node.get(name) if isinstance(node, dict) else None
            if not isinstance(node, dict) or leaf not in node:
                raise SpecError(
                    self.base.name, f"has no key {key!r} to set", "write it as in the spec's YAML"
                )
            node[leaf] = value
        return tree

    @cached_property
    def text(self) -> str:
        """YAML, which is JSON here."""
        return json.dumps(self.tree)

    def spec(self) -> HwSpec:
        """Raises SpecError where the values do not go together."""
        return load_hw_text(self.text, f"{self.base.name} with {self.label}")

    @property
    def label(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.values.items())


@dataclass(frozen=True, kw_only=True)
class Task:
    """The points that one compilation serves: they differ in their memory only."""

    model: Model
    machine: Machine
    strategy: StrategyName
    scales: Scales
    settings: tuple[Setting, ...]
    batch: int = 1

    @property
    def model_key(self) -> str:
        rewriting = self.strategy in REWRITING
        return self.model.quantised_key(self.scales, rewriting=rewriting, norms=self.norms)

    @cached_property
    def norms(self) -> frozenset[str]:
        """ONNX operators that the machine normalises with; of values that do not go together, which
        a row will say, those of the base.
        """
        try:
            return norms_of(self.machine.spec())
        except SpecError:
            return norms_of(self.machine.base)

    def points(self) -> dict[str, Setting]:
        """Key of every point. Equal content has equal keys, whatever the file is called."""
        about = _hash(source_digest(), self.model_key, self.machine.text, self.strategy, self.batch)
        return {_hash(about, *setting): setting for setting in self.settings}


def read_plan(source: str | Path | Mapping[str, Any]) -> list[Task]:
    """The tasks of a YAML file or of a mapping. Relative paths start at the folder of the file.

    Raises UserError for what the schema does not have, too many points, unknown models, specs and
    keys.
    """
    if isinstance(source, Mapping):
        where, folder, tree = "sweep", Path(), dict(source)
    else:
        where, folder = str(source), Path(source).parent
        tree = parse_tree(read_text(Path(source)), where).value
    try:
        # JSON mode: here pydantic's strict schema takes lists for tuples and text for enums.
        plan = _adapter.validate_json(json.dumps(tree))
    except ValidationError as error:
        # An entry is tried as a name, then as a mapping: report the error with the longest path.
        deepest = max(error.errors(), key=lambda e: (len(e["loc"]), e["type"] == _UNKNOWN_KEY))
        key_path = ".".join(str(part) for part in deepest["loc"] if part not in _BRANCHES)
        what, help_ = _error_text(deepest)
        raise UserError(where, f"{key_path}: {what}", help_) from None
    if plan.points > MOST_POINTS:
        what = f"{plan.points:,} points are more than the {MOST_POINTS:,} of a sweep"
        raise UserError(where, what, "make several sweeps of it, or take fewer values")
    return list(_tasks(plan, folder))


_adapter = TypeAdapter(SweepFile)
_UNKNOWN_KEY = "unexpected_keyword_argument"
_PLAIN = {_UNKNOWN_KEY: "there is no such key", "missing": "is missing", "too_short": "is empty"}
_BRANCHES = {"str", ModelEntry.__name__, SpecEntry.__name__, _RANGE, _VALUES}
"""What pydantic calls the forms that an entry may have, in the path of keys to a mistake."""


def _error_text(error: Mapping[str, Any]) -> tuple[str, str]:
    """(what is wrong, what would help) for an error of pydantic."""
    if error["type"] == "value_error":
        return error["ctx"]["error"].args
    what: str = _PLAIN.get(error["type"]) or error["msg"]
    value, location = error["input"], error["loc"]
    if error["type"] not in _PLAIN and not isinstance(value, list | dict):
        what += f", not {reprlib.repr(value)}"
    help_ = "see docs/sweep.md for the axes"
    if _RANGE in location:
        help_ = "write a range as {start: 100, stop: 200, step: 50}"
    elif "memory" in location[:1]:
        help_ = f"bytes_per_cycle is {MIN_SPEED} to {MAX_SPEED:g}, latency 0 to {MAX_LATENCY}"
    return what, help_


def _tasks(plan: SweepFile, folder: Path) -> Iterator[Task]:
    """Model by model, so that what belongs to a model is needed at one time."""
    models = [model_of(m, folder) for m in plan.models]
    machines = [machine for s in plan.specs for machine in _machines(s, folder)]
    settings = plan.memory.settings
    axes = (models, plan.scales, plan.strategies, plan.batches, machines)
    for model, scales, strategy, batch, machine in itertools.product(*axes):
        yield Task(
            model=model,
            machine=machine,
            strategy=strategy,
            scales=scales,
            settings=settings,
            batch=batch,
        )


def model_of(entry: str | ModelEntry | Mapping[str, Any], folder: Path) -> Model:
    """Raises UserError for what the schema does not have, a file or a network of the zoo that is
    missing, and the image of a file.
    """
    if isinstance(entry, str):
        entry = ModelEntry(model=entry)
    if not isinstance(entry, ModelEntry):
        try:
            entry = ModelEntry(**entry)
        except ValidationError as error:
            first = error.errors()[0]
            key_path, (what, help_) = ".".join(map(str, first["loc"])), _error_text(first)
            raise UserError("models", f"{key_path}: {what}", help_) from None
    name = entry.model
    if is_file(name):
        if entry.image is not None:
            what = f"image {entry.image} is for networks of the zoo, and this is a file"
            raise UserError(name, what, "leave image out")
        model = Model(entry=entry, path=folder / name)
        _ = model.content  # a file that is missing is reported before anything runs
        return model
    zoo.description(name)  # raises where there is none
    return Model(entry=entry, path=None)


def is_file(name: str) -> bool:
    """No network of the zoo has a dot."""
    return "/" in name or bool(Path(name).suffix)


def _machines(entry: str | SpecEntry, folder: Path) -> Iterator[Machine]:
    if isinstance(entry, str):
        entry = SpecEntry(spec=entry)
    base = load_hw(find_spec(entry.spec, folder))
    for values in itertools.product(*entry.set.values()):
        machine = Machine(base=base, values=dict(zip(entry.set, values, strict=True)))
        _ = machine.tree
        yield machine


def _hash(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]
