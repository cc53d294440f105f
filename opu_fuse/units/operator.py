"""Operators of the model as units see them, and the registers that a unit has for one."""

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from msgspec import Struct, field

from opu_fuse.errors import ModelError
from opu_fuse.fixedpoint import MAX_SHIFT, Multiplier, multiplier, shared_multipliers
from opu_fuse.quant import QuantParams

Registers = Mapping[str, int]


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
