"""Record of a unit: one kind of hardware that values pass, described once.

A record says which operators a unit runs and with what integer parameters, which registers and
memories it has, what it does to values, which of its instructions are illegal, how long it takes,
and which SystemVerilog module is its hardware. Instruction set, SystemVerilog package, legality,
cost, schedule, engines and pages of the documentation read these records; none of them names a
unit.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum, StrEnum
from typing import Any, Protocol

import numpy as np
from msgspec import Struct, field

from opu_fuse.model.operator_record import Pattern
from opu_fuse.normalisation import QUARTERS, Scaling
from opu_fuse.units.operator import Numeric, Operator, Settings
from opu_fuse.units.params import PostParams

Interval = tuple[int, int]
"""Words of a memory, [start, end)."""


class ModuleKind(StrEnum):
    """Function of a module of the HDFG."""

    MEM_RD = "mem_rd"
    PAD = "pad"
    IPA = "ipa"
    ADDER = "adder"
    MULTIPLIER = "multiplier"
    COMPARATOR = "comparator"
    PRELU = "prelu"
    POOL = "pool"
    RES_ADDER = "res_adder"
    UPSAMPLE = "upsample"
    SE = "se"
    TABLE = "table"
    NORM = "norm"
    MEM_WR = "mem_wr"
    NOP = "nop"


class Access(StrEnum):
    """How a module reads its second operand. `per_channel` accepts `per_tensor` too; `full` only a
    feature map.
    """

    PER_TENSOR = "per_tensor"
    PER_CHANNEL = "per_channel"
    FULL = "full"


class Space(StrEnum):
    """Memories an instruction can touch; all but DRAM are addressed in their own words."""

    DRAM = "dram"
    FEATURE = "feature"
    WEIGHT = "weight"
    PARAM = "param"
    RESIDUAL = "residual"
    PSUM = "psum"
    OUTPUT = "output"
    PRE = "pre"
    TABLE = "table"
    IMAGE = "image"
    NORM = "norm"


class Stage(IntEnum):
    """Function of a stage of the post chain; PRE for stages before the array. The spec decides
    which module has which code in `order` (`hw/spec/chain.py`).
    """

    REQUANT = 1
    ACT = 2
    POOL = 3
    RESIDUAL = 4
    TABLE = 5
    PRE = 6
    PRELU = 7
    NORM = 8


class Field(Struct, frozen=True):
    """A parameter register: its index in the map of its engine, name, width (negative: signed)."""

    index: int
    name: str
    bits: int
    doc: str


UNWRITTEN = 0xA5A5
"""Statistics that no pass wrote."""


class Reach(Protocol):
    """Words that an instruction touches, at the pixels where a stage reads."""

    def pixels(self, base: int, row_pitch: int, block_pitch: int) -> tuple[Interval, ...]:
        """A word for every pixel."""
        ...

    def blocks(self, base: int, block_pitch: int) -> tuple[Interval, ...]:
        """A word for every channel block."""
        ...

    def run(self, base: int, words: int) -> tuple[Interval, ...]:
        """Words that follow each other, if there is a pixel at all."""
        ...


class Statistics:
    """What a unit remembers of pixels, by their number in a pass, until a pass writes it again.

    maximum: int64 (QUARTERS * pixels,): a pixel may have a record for each quarter of its word,
    numbered in their order; scaling: fields of that shape. Before a pass has written them they
    hold what no pass computes.
    """

    def __init__(self, pixels: int) -> None:
        records = QUARTERS * pixels
        self.maximum = np.full(records, UNWRITTEN)
        self.scaling = Scaling(
            factor=np.full(records, UNWRITTEN),
            offset=np.full(records, UNWRITTEN),
            shift=np.zeros(records, np.int64),
        )


class Site(Protocol):
    """View of a stage on the functional engine while values pass it."""

    @property
    def ys(self) -> np.ndarray:
        """Rows of the values: of the tile before a pool, of the output after it."""
        ...

    @property
    def xs(self) -> np.ndarray: ...

    @property
    def lanes(self) -> int: ...

    def pixels(self, base: int, row_pitch: int, block_pitch: int) -> np.ndarray:
        """Word numbers (blocks, ys, xs)."""
        ...

    def blocks(self, base: int, block_pitch: int) -> np.ndarray:
        """Word numbers (blocks, 1, 1)."""
        ...

    def words(self, space: Space) -> np.ndarray:
        """All words of a memory, their lanes (words, lanes)."""
        ...

    def statistics(self) -> Statistics:
        """Of the unit's previous passes."""
        ...

    def parameters(self, record: np.dtype) -> np.ndarray:
        """The stage's record for every block and lane, (blocks, 1, 1, lanes)."""
        ...


class StageContext(Struct, frozen=True, kw_only=True):
    """Module and machine of a stage. module, machine: names; product: the module multiplies two
    maps; shifts: the machine has shifters for multipliers; lanes: of a word; pixels: of a bank of
    partial sums; pools: a stage of the chain has windows; halves: the chain takes half a word a
    cycle.
    """

    module: str
    machine: str
    product: bool
    shifts: bool
    lanes: int
    pixels: int
    pools: bool
    halves: bool


KNOWN = "operands and a result of known shape that represent real numbers"
"""In what form most operators run."""


class Capability(Struct, frozen=True, kw_only=True):
    """A bit of the control register CAP_MODULES and a constant `HAS_<stage>` of the SystemVerilog
    package: machines have units of this kind. Bits of others never change.
    """

    bit: int
    doc: str


def no_mistakes(p: PostParams, context: StageContext) -> Iterator[str]:
    """No mistakes: for a unit that supports every value of its registers."""
    del p, context
    return iter(())


def always(p: PostParams) -> bool:  # noqa: ARG001  one signature for all units
    """Every pass has results."""
    return True


class Unit(Struct, frozen=True, kw_only=True):
    """A kind of hardware.

    module: of SystemVerilog, `opu_` and the part of the machine whose area it is
    doc: a sentence
    runs: module kinds of a spec that are such a unit -> operators that they can run
    operands: how these kinds may read a second operand
    registers: what every unit has for itself (`bank` selects it)
    address_registers: those of them that the address generator reads, not the unit
    shared: registers that all units of the kind share
    takes: those of the shared ones that are ports of the unit
    prefix: of the registers' names

    For the compiler:

    forms: ONNX operator -> the form in which machines run it, in words
    pattern: of the operators that it runs (`dominator`)
    real_constants: constant operands become registers and parameters, which need no scale

    For users:

    capability: of machines that have it
    options: module kind -> the option of `explore` that leaves such modules out

    Only units of the post chain have these:

    stage: what they do in the chain
    windows: they fold tile positions into output pixels, so that a pass uses one
    memory: what they read
    passes: operator -> passes over the same partial sums before the one that has results, of units
        that compute statistics of a pixel from all its channels
    lanes_read: of operators of one word whose passes of statistics read its first lanes alone: how
    many each pass reads
    looks_up: those operators that read a table of the memory
    of_map: those operators whose statistics are of all pixels of a map together
    of_quarters: those with statistics of each quarter of a word
    record: constants of a channel, one parameter word a channel block for each of its bytes
    cycles: latency that they add, the register before the unit included
    run(value, own registers, site): what a stage does to int8 (blocks, ys, xs, lanes)
    reads(registers, reach): the words of its memory that it touches
    mistakes: what makes its registers illegal
    writes(own registers): whether a pass through it has results
    settings(operator, numeric): its registers for an operator; ModelError where the numbers cannot
        be expressed
    apply(value, registers, records): of units that map one value at a time, the function itself,
        for int8 values of any shape against which the records of the channels broadcast
    """

    module: str
    doc: str
    runs: Mapping[ModuleKind, tuple[str, ...]]
    pattern: Pattern = Pattern.ELEM_WISE
    forms: Mapping[str, str] = field(default_factory=dict)
    real_constants: bool = False
    capability: Capability | None = None
    options: Mapping[ModuleKind, str] = field(default_factory=dict)
    operands: Mapping[ModuleKind, tuple[Access, ...]] = field(default_factory=dict)
    stage: Stage | None = None
    prefix: str = ""
    registers: tuple[Field, ...] = ()
    address_registers: tuple[str, ...] = ()
    shared: tuple[Field, ...] = ()
    takes: tuple[str, ...] = ()
    windows: bool = False
    memory: Space | None = None
    passes: Mapping[str, int] = field(default_factory=dict)
    lanes_read: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    looks_up: frozenset[str] = frozenset()
    of_map: frozenset[str] = frozenset()
    of_quarters: frozenset[str] = frozenset()
    record: np.dtype | None = None
    cycles: int = 0
    run: Callable[[np.ndarray, PostParams, Site], np.ndarray] | None = None
    reads: Callable[[PostParams, Reach], tuple[Interval, ...]] | None = None
    mistakes: Callable[[PostParams, StageContext], Iterator[str]] = no_mistakes
    writes: Callable[[PostParams], bool] = always
    settings: Callable[[Operator, Numeric], Settings] | None = None
    apply: Callable[[np.ndarray, Any, np.ndarray | None], np.ndarray] | None = None

    @property
    def words(self) -> int:
        """Parameter words of a channel block."""
        return 0 if self.record is None else self.record.itemsize

    @property
    def part(self) -> str:
        """The part of a machine that it is in estimates of area."""
        return self.module.removeprefix("opu_")
