"""RESIDUAL: sum or difference of two maps, their product (squeeze-and-excite), or the larger."""

from collections.abc import Iterator
from enum import IntEnum

import numpy as np
from msgspec import Struct

from opu_fuse import fixedpoint
from opu_fuse.model.operator_record import Pattern
from opu_fuse.units.base import (
    KNOWN,
    Access,
    Capability,
    Field,
    Interval,
    ModuleKind,
    Reach,
    Site,
    Space,
    Stage,
    StageContext,
    Unit,
)
from opu_fuse.units.operator import Numeric, Operator, Settings
from opu_fuse.units.params import PostParams, ResidualRegisters
from opu_fuse.units.spread import spread_pixels


class ResidualKind(IntEnum):
    """Values of `res_kind`."""

    ADD = 0
    MULTIPLY = 1
    MAXIMUM = 2
    """Joins parts of a maximum pool whose windows reach into two tiles; no operator runs as it."""


_FACTORS = {
    ResidualKind.ADD: ("res_a_mult", "res_b_mult"),
    ResidualKind.MULTIPLY: ("res_a_mult",),
    ResidualKind.MAXIMUM: (),
}
_SUMS = (ResidualKind.ADD, ResidualKind.MAXIMUM)
_PRODUCTS = (ResidualKind.MULTIPLY,)
PRODUCT_BITS = 16
"""Bits of the multiplier after a product, whatever `multiplier_bits`: the adder's are as wide."""


class Product(Struct, frozen=True, kw_only=True):
    """Arguments of `fixedpoint.multiply_residual`; a is the pipeline's operand."""

    mult: int
    shift: int
    a_zero: int
    b_zero: int
    y_zero: int


def product(operator: Operator, bits: int) -> Product:
    """Product of two maps, or of a map and its gate. bits: width of the multiplier. Raises
    ModelError where it cannot hold the ratio of the scales.
    """
    a, b = (operand.quantised for operand in operator.operands)
    y = operator.y
    result = operator.scaled(a.per_tensor * b.per_tensor / y.per_tensor, bits)
    return Product(
        mult=result.mult,
        shift=result.shift,
        a_zero=a.zero_point,
        b_zero=b.zero_point,
        y_zero=y.zero_point,
    )


def _settings(operator: Operator, numeric: Numeric) -> Settings:
    """Add and multiply of two maps; a is the pipeline's, b comes from memory."""
    a, b = (operand.quantised for operand in operator.operands)
    y = operator.y
    zeros = {
        "res_a_zero": a.zero_point,
        "res_b_zero": b.zero_point,
        "res_y_zero": y.zero_point,
    }
    if operator.op == "multiply":
        operator.require_shifts((a.per_tensor * b.per_tensor / y.per_tensor,), numeric)
        factor = product(operator, max(numeric.multiplier_bits, PRODUCT_BITS))
        own = {"res_a_mult": factor.mult, "res_shift": factor.shift}
        kind = ResidualKind.MULTIPLY
    else:
        ratios = (a.per_tensor / y.per_tensor, b.per_tensor / y.per_tensor)
        operator.require_shifts(ratios, numeric)
        (a_mult, b_mult), shift = operator.shared(ratios, numeric)
        own = {"res_a_mult": a_mult, "res_b_mult": b_mult, "res_shift": shift}
        own["res_negative"] = sum(
            operand.negative << i for i, operand in enumerate(operator.operands)
        )
        kind = ResidualKind.ADD
    broadcast = _is_pixel(operator)
    registers = {"res_kind": int(kind), "res_broadcast": int(broadcast), **own, **zeros}
    return Settings(registers=registers)


def _is_pixel(operator: Operator) -> bool:
    """Whether the second operand is one pixel, broadcast to all."""
    gate, whole = (
        shape[2:] or (1, 1) for shape in (operator.operands[1].shape, operator.result.shape)
    )
    return gate == (1, 1) != whole


def combine(a: np.ndarray, b: np.ndarray, p: ResidualRegisters) -> np.ndarray:
    """The unit's function of two int8 arrays, by its registers."""
    if p["res_kind"] == ResidualKind.MAXIMUM:
        return np.maximum(a, b)
    zeros = {"a_zero": p["res_a_zero"], "b_zero": p["res_b_zero"], "y_zero": p["res_y_zero"]}
    if p["res_kind"] == ResidualKind.MULTIPLY:
        return fixedpoint.multiply_residual(
            a, b, mult=p["res_a_mult"], shift=p["res_shift"], **zeros
        )
    a_mult, b_mult = p["res_a_mult"], p["res_b_mult"]
    return fixedpoint.add_residual(
        a,
        b,
        a_mult=-a_mult if p["res_negative"] & 1 else a_mult,
        b_mult=-b_mult if p["res_negative"] & 2 else b_mult,
        shift=p["res_shift"],
        **zeros,
    )


def _run(value: np.ndarray, p: PostParams, site: Site) -> np.ndarray:
    if not value.size:  # absent iterations do not read
        return value
    if p["res_broadcast"]:
        words = site.blocks(p["res"], p["res_block_pitch"])
    else:
        words = site.pixels(p["res"], p["res_row_pitch"], p["res_block_pitch"])
    other = site.words(Space.RESIDUAL).take(words, axis=0)
    pixels, slot = spread_pixels(p["spread"])
    if pixels > 1:
        width = site.lanes // pixels
        other = np.tile(other[..., slot * width : (slot + 1) * width], pixels)
    return combine(value, other, p)


def _reads(p: PostParams, reach: Reach) -> tuple[Interval, ...]:
    if p["res_broadcast"]:
        return reach.blocks(p["res"], p["res_block_pitch"])
    return reach.pixels(p["res"], p["res_row_pitch"], p["res_block_pitch"])


def _mistakes(p: PostParams, context: StageContext) -> Iterator[str]:
    """A module does what its kind says; without multipliers factors are powers of two."""
    kinds = _PRODUCTS if context.product else _SUMS
    if p["res_kind"] not in kinds:
        does = " or ".join(kind.name.lower() for kind in kinds)
        yield f"has res_kind = {p['res_kind']}, but {context.module} does {does}"
        return
    for name in _FACTORS[ResidualKind(p["res_kind"])] if context.shifts else ():
        if p[name] & (p[name] - 1):
            yield f"has {name} = {p[name]}, {context.machine} only shifts"


RESIDUAL = Unit(
    module="opu_residual",
    doc="the sum, the product or the maximum of two maps",
    runs={ModuleKind.RES_ADDER: ("add",), ModuleKind.SE: ("multiply",)},
    pattern=Pattern.BROADCAST,
    forms={
        "Add": KNOWN,
        "Sub": f"{KNOWN}, both operands computed, of the result's shape, not one pixel",
        "Mul": KNOWN,
    },
    capability=Capability(bit=2, doc="a residual adder or product"),
    options={ModuleKind.RES_ADDER: "residual", ModuleKind.SE: "gates"},
    operands={
        ModuleKind.RES_ADDER: (Access.FULL,),
        ModuleKind.SE: (Access.PER_CHANNEL, Access.FULL),
    },
    stage=Stage.RESIDUAL,
    prefix="res",
    registers=(
        Field(35, "res_a_mult", 16, "multiplier of the chain's operand"),
        Field(36, "res_b_mult", 16, "multiplier of the residual buffer's operand"),
        Field(37, "res_shift", 6, "right shift of the sum"),
        Field(38, "res_a_zero", -8, "zero point of the chain's operand"),
        Field(39, "res_b_zero", -8, "zero point of the residual operand"),
        Field(40, "res_y_zero", -8, "zero point of the sum"),
        Field(41, "res_kind", 2, "0 sum, 1 product (multiplier res_a_mult), 2 maximum"),
        Field(18, "res", 22, "residual buffer word of pixel (0, 0), block 0"),
        Field(19, "res_row_pitch", 16, "residual words from row to row"),
        Field(20, "res_block_pitch", 22, "residual words from block to block"),
        Field(42, "res_broadcast", 1, "1: one residual word a block, the same for every pixel"),
        Field(57, "res_negative", 2, "of a sum, 1: minus the chain's operand, 2: minus the other"),
    ),
    address_registers=("res", "res_row_pitch", "res_block_pitch", "res_broadcast"),
    memory=Space.RESIDUAL,
    cycles=9,
    run=_run,
    reads=_reads,
    mistakes=_mistakes,
    settings=_settings,
)
