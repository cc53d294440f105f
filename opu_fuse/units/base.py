"""Record of a unit: one kind of hardware that values pass, described once.

A record says which operators a unit runs and with what integer parameters, which registers and
memories it has, what it does to values, which of its instructions are illegal, how long it takes,
and which SystemVerilog module is its hardware. Instruction set, SystemVerilog package, legality,
cost, schedule, engines and pages of the documentation read these records; none of them names a
unit.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum, StrEnum
from typing import Any, Protocol

import numpy as np
from msgspec import Struct, field

from opu_fuse.errors import ModelError
from opu_fuse.fixedpoint import MAX_SHIFT, Multiplier, multiplier, shared_multipliers
from opu_fuse.model.operator_record import Pattern
from opu_fuse.normalisation import Scaling
from opu_fuse.quant import QuantParams
from opu_fuse.units.params import PostParams

Registers = Mapping[str, int]
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


class Numeric(Protocol):
    """Widths of the machine's multipliers (`HwSpec.numeric`)."""

    @property
    def multiplier_bits(self) -> int: ...

    @property
    def average_bits(self) -> int: ...


class Operand(Struct, frozen=True, kw_only=True):
    """A value of the model as a unit sees it. negative: a sum subtracts it."""

    name: str
    shape: tuple[int, ...]
    quant: QuantParams | None
    const: np.ndarray | None = None
    negative: bool = False

    @property
    def quantised(self) -> QuantParams:
        """The annotation; ModelError without."""
        if self.quant is None:
            raise ModelError(
                self.name,
                "its value is not rounded to int8",
                "quantise it (add a QuantizeLinear after it)",
            )
        return self.quant


NEARER = (
    "choose scales nearer to each other in the model, or hand over the float model and take "
    "--scales pow2"
)
POWERS_OF_TWO = (
    "quantise the model with scales that are powers of two, hand over the float model, or compile "
    "for a machine with multipliers"
)
"""Scales like these are the model's own: others are not chosen for a machine that only shifts."""
UNWRITTEN = 0xA5A5
"""Statistics that no pass wrote."""
SATURATING = 256.0
"""From this ratio on every whole number but 0 leaves the range of int8: a larger one gives the same
bits.
"""
_VANISHING = 2.0**-33
"""Up to this ratio every sum of 32 bits is less than half a step."""


def held(slope: float, most: float) -> float:
    """A slope of int8 values whose result is clamped to int8, as a register holds it: beyond `most`
    one that gives the same bits.
    """
    return slope if abs(slope) <= most else math.copysign(SATURATING, slope)


class Operator(Struct, frozen=True, kw_only=True):
    """An operator of the model as a unit sees it. operands: the pipeline's value first."""

    name: str
    op: str
    attrs: Mapping[str, Any]
    operands: tuple[Operand, ...]
    result: Operand

    @property
    def x(self) -> QuantParams:
        return self.operands[0].quantised

    @property
    def y(self) -> QuantParams:
        return self.result.quantised

    def scaled(self, ratio: float, bits: int) -> Multiplier:
        """`fixedpoint.multiplier` of a sum of 32 bits that is clamped to int8: a ratio beyond its
        reach is replaced by one that gives the same bits. ModelError where there is none.
        """
        try:
            return multiplier(ratio, bits)
        except ValueError as error:
            if SATURATING <= ratio < np.inf:
                return multiplier(SATURATING, bits)
            if 0.0 < ratio <= _VANISHING:
                return multiplier(2.0**-MAX_SHIFT, bits)
            raise self._too_far(error, bits) from error

    def shared(self, ratios: tuple[float, ...], numeric: Numeric) -> tuple[tuple[int, ...], int]:
        """`fixedpoint.shared_multipliers`; ModelError when one shift cannot serve all."""
        try:
            return shared_multipliers(ratios, numeric.multiplier_bits)
        except ValueError as error:
            raise self._too_far(error, numeric.multiplier_bits) from error

    def require_shifts(self, ratios: tuple[float, ...], numeric: Numeric) -> None:
        """ModelError when a machine without multipliers would need one."""
        free = [r for r in ratios if np.frexp(r)[0] != 0.5]
        if free and not numeric.multiplier_bits:
            what = f"ratio {free[0]} is not a power of two, the machine only shifts"
            raise ModelError(
                self.name,
                f"{what} (multiplier_bits 0)",
                POWERS_OF_TWO,
            )

    def require_tied(self) -> QuantParams:
        """The annotation of an operator that only moves int8 values; ModelError unless its operands
        have the same one.
        """
        y = self.y
        for x in (operand.quantised for operand in self.operands):
            if (x.scale, x.zero_point) != (y.scale, y.zero_point):
                what = f"{self.op} changes the scale from {x.per_tensor} to {y.per_tensor}"
                raise ModelError(
                    self.name,
                    f"{what} (or the zero point)",
                    "quantise its input and output with one scale, as our own quantiser does",
                )
        return y

    def _too_far(self, error: ValueError, bits: int) -> ModelError:
        return ModelError(self.name, str(error), NEARER if bits else POWERS_OF_TWO)


class Settings(Struct, frozen=True, kw_only=True):
    """Registers of a unit for one operator. by_count: those that depend on how many rows and
    columns of a window are inside its map; per_channel: the unit's record for every channel;
    passes: registers of the passes before the last one, which have no results.
    """

    registers: Registers
    by_count: Mapping[tuple[int, int], Registers] = field(default_factory=dict)
    per_channel: tuple[int, ...] | tuple[tuple[int, ...], ...] | None = None
    passes: tuple[Registers, ...] = ()


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
    """What a unit remembers of the pixels (ys, xs) of a pass until the next one.

    maximum: int64 (ys, xs); scaling: fields of that shape. Before a pass has written them they
    hold what no pass computes.
    """

    def __init__(self) -> None:
        unwritten = np.full((1, 1), UNWRITTEN)
        self.maximum: np.ndarray = unwritten
        self.scaling = Scaling(factor=unwritten, offset=unwritten, shift=unwritten * 0)


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
        """Of the unit's previous pass."""
        ...

    def parameters(self, record: np.dtype) -> np.ndarray:
        """The stage's record for every block and lane, (blocks, 1, 1, lanes)."""
        ...


class StageContext(Struct, frozen=True, kw_only=True):
    """Module and machine of a stage. module, machine: names; product: the module multiplies two
    maps; shifts: the machine has shifters for multipliers; lanes: of a word; pixels: of a bank of
    partial sums; pools: a stage of the chain has windows.
    """

    module: str
    machine: str
    product: bool
    shifts: bool
    lanes: int
    pixels: int
    pools: bool


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
