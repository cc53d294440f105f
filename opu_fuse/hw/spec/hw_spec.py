"""The hardware spec: one frozen tree of values that compiler, simulators and RTL follow.

The pydantic dataclasses below are the schema of the YAML files in `hw_specs/` (keys are the field
names). They refuse unknown keys and wrong types; whether the values make a machine is said by
`hw/spec/check.py`. Sizes of on-chip buffers are in their own words, DRAM sizes in bytes.
"""

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import yaml
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from opu_fuse.hw.spec.limits import FASTEST_CLOCK, MAX_LATENCY, MIN_SPEED, SLOWEST_CLOCK
from opu_fuse.number_text import counted
from opu_fuse.quant import Domain
from opu_fuse.summaries import summary
from opu_fuse.units import RUNS
from opu_fuse.units.base import Access, ModuleKind, Space
from opu_fuse.units.memory import Memory, Word

SPEC_HASH_BITS = 44
NOT_IN_HASH = (
    "description",
    "clock_on",
    *("array.window_cycles", "array.table_terms"),
    "post.residual_lanes",
    "post.residual_tables",
    "dram.bytes_per_cycle",
    "dram.latency",
)
"""Keys that no program depends on but for its time: set at run time, for people, or a rate."""

OF_THE_ARRAY = ("dataflow.operators.matmul", "dataflow.operators.transpose")
"""Operators that need nothing of a machine but its array: they are for the compiler to know."""

ADDED_LATER = ("buffers.image", "buffers.norm")
"""Keys that enter the spec hash only where a spec has them: other machines retain theirs."""

OPERATORS = tuple(RUNS)
"""DFG operators a spec may map to module kinds; virtual ones (flatten, reshape, identity) do no
work and are never mapped.
"""

_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)
Count = Annotated[int, Field(ge=1)]
QueueDepth = Annotated[int, Field(ge=1, le=65_536)]


class Fill(StrEnum):
    """Values a pad module can insert."""

    ANY = "any"
    ZERO = "zero"


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Mode:
    """One way to wire the array: input channels × output channels × output pixels per cycle."""

    ic: Count
    oc: Count
    px: Count = 1


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Array:
    """The inner-product array: `units` adder trees over `multipliers` int8 products each.

    depthwise: the array can also run one filter per channel, several taps at a time, a window in
    `window_cycles` (in 2, units share DSP slices). table_terms: those of each unit's products that
    use look-up tables instead of DSP slices.
    """

    units: Count
    multipliers: Count
    modes: Annotated[tuple[Mode, ...], Field(min_length=1, max_length=16)]
    depthwise: bool = False
    window_cycles: Annotated[int, Field(ge=1, le=2)] = 1
    table_terms: Annotated[int, Field(ge=0)] = 0

    @property
    def slice_terms(self) -> int:
        """Products of a unit that are built from DSP slices."""
        return self.multipliers - self.table_terms

    @property
    def row_bytes(self) -> int:
        """Bytes of the longest weight row: what the array holds at a time."""
        return self.units * self.multipliers

    @property
    def window_side(self) -> int:
        """Rows and columns of the largest window of one `depthwise` instruction."""
        return math.isqrt(self.multipliers)

    @property
    def macs(self) -> int:
        """Multiply-accumulates per cycle."""
        return self.units * self.multipliers


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Buffer:
    """words: all flat words; banks: equal parts that the scheduler uses round robin (2 = double
    buffering).
    """

    words: Count
    banks: Annotated[int, Field(ge=1, le=4)] = 2

    @property
    def bank_words(self) -> int:
        return self.words // self.banks


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class WeightBuffer(Buffer):
    """width: bytes per word; a weight row takes row_bytes / width cycles to enter the array."""

    width: Count


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Buffers:
    """Words: feature, residual, output and table W int8, partial sums W int32, param and pre W
    bytes, weight `width` bytes. pre: parameters of the modules before the array; table: entries of
    unary functions, 256 words each; norm: exponentials of softmax, 256 words each; None on machines
    without such modules. image: rows of images
    for im2row on load (`hw/im2row_window.py`); None: load has no im2row.
    """

    feature: Buffer
    weight: WeightBuffer
    param: Buffer
    residual: Buffer
    psum: Buffer
    output: Buffer
    pre: Buffer | None = None
    table: Buffer | None = None
    image: Buffer | None = None
    norm: Buffer | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Post:
    """lanes: channels the post chain takes per cycle; residual_lanes: those that units with a
    second operand take, None for as many; residual_tables: their products use look-up tables
    instead of DSP slices; keep: its words can go into the feature buffer, too.
    """

    lanes: Count
    residual_lanes: Count | None = None
    residual_tables: bool = False
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Queues:
    """Instruction queue depths in 32-bit words."""

    load: QueueDepth
    compute: QueueDepth
    post: QueueDepth
    store: QueueDepth


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Dram:
    """Memory port. bytes_per_cycle (one budget for reads and writes) and latency (cycles) describe
    the memory, not the machine.
    """

    bus_bytes: Count
    capacity: Count
    max_burst: Annotated[int, Field(ge=1, le=256)]
    outstanding: Annotated[int, Field(ge=1, le=64)]
    bytes_per_cycle: Annotated[float, Field(ge=MIN_SPEED)]
    latency: Annotated[int, Field(ge=0, le=MAX_LATENCY)]

    @property
    def is_slow(self) -> bool:
        """Whether the memory has fewer bytes a cycle than its bus."""
        return self.bytes_per_cycle < self.bus_bytes

    @property
    def rate(self) -> float:
        """Bytes a cycle that a long transfer gets: of the memory, of the bus, and of as many bursts
        as may be outstanding until the first one arrives.
        """
        most, burst = min(self.bytes_per_cycle, self.bus_bytes), self.max_burst * self.bus_bytes
        return min(most, self.outstanding * burst / (self.latency + burst / most))


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Numeric:
    """Multiplier widths; multiplier_bits 0 means powers of two only ("fraction lengths")."""

    multiplier_bits: Annotated[int, Field(ge=0, le=32)]
    average_bits: Annotated[int, Field(ge=16, le=32)]


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Limits:
    """Largest value per axis a module can do; None: as far as the registers reach.

    kernel, stride, dilation, window: rows or columns. padding: rows or columns per side, of an
    explicit pad and of the padding attribute of the operator that the module runs. asymmetric:
    sides may differ. fill: values a pad inserts.
    """

    kernel: Count | None = None
    stride: Count | None = None
    dilation: Count | None = None
    window: Count | None = None
    padding: Annotated[int, Field(ge=0)] | None = None
    asymmetric: bool = True
    fill: Fill = Fill.ANY


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Module:
    """One module instance of the HDFG.

    domain_in, domain_out: domains of the input and output values (a requantiser is on every edge
        acc -> act)
    operand: how the second operand is read, None without one
    unit: the hardware, shared with the modules that name the same one and used once per pass
    uses: operators it can run per pass
    bypass: data may pass it unused
    exit: a group may end here
    tap: its value can be stored in addition to the exit value
    """

    kind: ModuleKind
    domain_in: Domain = Domain.ACT
    domain_out: Domain = Domain.ACT
    operand: Access | None = None
    unit: Annotated[str, Field(min_length=1)] | None = None
    uses: Count = 1
    bypass: bool = False
    exit: bool = False
    tap: bool = False
    limits: Limits = Field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Dataflow:
    """The HDFG as written: modules by name, successors by name (their order is the search order),
    operator -> kinds.
    """

    root: str
    modules: Mapping[str, Module]
    edges: Mapping[str, tuple[str, ...]]
    operators: Mapping[str, tuple[ModuleKind, ...]]


@dataclass(frozen=True, kw_only=True, config=_CONFIG)  # no slots: it remembers its hash
class HwSpec:
    """One machine. build: the RTL can be generated for it (False: partitioning only). clock_on: the
    device on which the clock was measured, None where it is assumed.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    description: str
    build: bool
    clock_mhz: Annotated[float, Field(ge=SLOWEST_CLOCK, le=FASTEST_CLOCK)]
    word_channels: Count
    array: Array
    buffers: Buffers
    post: Post
    queues: Queues
    counter_bits: Annotated[int, Field(ge=1, le=16)]
    dram: Dram
    numeric: Numeric
    dataflow: Dataflow
    clock_on: Annotated[str, Field(min_length=1)] | None = None

    def __hash__(self) -> int:
        return self.spec_hash

    def __repr__(self) -> str:
        return summary(
            self,
            self.name,
            f"{self.macs:,} MAC/cycle",
            f"{self.clock_mhz:g} MHz",
            counted(len(self.dataflow.modules), "module"),
            f"{self.on_chip_bytes:,} bytes on chip",
            "" if self.build else "partitioning only",
        )

    def _repr_svg_(self) -> str:
        """The drawing of `hw draw`, for notebooks."""
        from opu_fuse.hw.spec.draw import draw_svg

        return draw_svg(self, legend=True)

    @property
    def clock(self) -> str:
        """The clock and what is known of it."""
        known = f"measured on {self.clock_on}" if self.clock_on else "assumed"
        return f"{self.clock_mhz:g} MHz, {known}"

    @property
    def word_bytes(self) -> int:
        """Bytes of a feature word in DRAM: word_channels padded to a power of two."""
        return 1 << (self.word_channels - 1).bit_length()

    @property
    def cycles_per_word(self) -> int:
        """Cycles that a word takes in the post chain, `post.lanes` channels in each."""
        return self.word_channels // self.post.lanes

    @property
    def halves_words(self) -> bool:
        """Whether a word takes two cycles in the post chain, each with as many channels, a power of
        two: then a norm can normalise each quarter of it.
        """
        lanes = self.post.lanes
        return self.cycles_per_word == 2 and not lanes & (lanes - 1)

    @property
    def residual_lanes(self) -> int:
        """Channels that units with a second operand take per cycle."""
        return self.post.residual_lanes or self.post.lanes

    @property
    def row_words(self) -> int:
        """Weight buffer words of the longest weight row."""
        return -(-self.array.row_bytes // self.buffers.weight.width)

    @property
    def word_parts(self) -> int:
        """Parts of a word that depthwise visits one after the other: a weight row for each."""
        return -(-self.word_channels // self.array.units)

    def mode_row_words(self, mode: Mode) -> int:
        """Weight buffer words of a weight row of one mode."""
        return -(-mode.ic * mode.oc // self.buffers.weight.width)

    def buffer(self, space: Space) -> Buffer | None:
        """The size of an on-chip memory, None where the machine has none."""
        return getattr(self.buffers, space.value)

    def word_size(self, memory: Memory, lanes: int) -> int:
        """Bytes of a word of a memory. lanes: of a byte for each lane, with gaps or without."""
        if memory.word is Word.ROWS:
            return self.buffers.weight.width
        return 4 * self.word_channels if memory.word is Word.SUMS else lanes

    def has(self, *kinds: ModuleKind) -> bool:
        """Whether the data flow has a module of one of these kinds."""
        return any(module.kind in kinds for module in self.dataflow.modules.values())

    @property
    def macs(self) -> int:
        """Multiply-accumulates per cycle."""
        return self.array.macs

    @property
    def on_chip_bytes(self) -> int:
        """Bytes of all buffers together."""
        w, b = self.word_channels, self.buffers
        widths = {"weight": b.weight.width, "psum": 4 * w}
        result = ((f.name, getattr(b, f.name)) for f in dataclasses.fields(b))
        return sum(buffer.words * widths.get(name, w) for name, buffer in result if buffer)

    @functools.cached_property
    def spec_hash(self) -> int:
        """44-bit identity: SHA-256 over everything but `NOT_IN_HASH` and `OF_THE_ARRAY`."""
        tree = self.to_tree()
        for key in (*NOT_IN_HASH, *OF_THE_ARRAY, *ADDED_LATER):
            *folders, leaf = key.split(".")
            node = tree
            for folder in folders:
                node = node[folder]
            if key not in ADDED_LATER or node[leaf] is None:
                node.pop(leaf, None)
        text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()) & ((1 << SPEC_HASH_BITS) - 1)

    def to_tree(self) -> dict[str, Any]:
        """Nested dicts and lists of plain values, every default written out."""
        return _plain(self)

    def to_yaml(self) -> str:
        """The resolved spec as YAML; loading it gives an equal spec."""
        return _yaml(self)


@functools.cache
def _yaml(spec: HwSpec) -> str:
    return yaml.safe_dump(spec.to_tree(), sort_keys=False, allow_unicode=True, width=100)


def _plain(value: Any) -> Any:
    """Records and mappings to dicts, tuples to lists, enums to their text."""
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, StrEnum) else value
