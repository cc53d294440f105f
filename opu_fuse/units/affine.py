"""Scaling and shifting by constants: on accumulators part of REQUANT, before the array a unit. That
unit also multiplies by a gate, one computed value a channel.
"""

import math

import numpy as np
from msgspec import Struct

from opu_fuse.errors import ModelError
from opu_fuse.fixedpoint import INT8_MIN, MAX_SHIFT, MIN_SHIFT
from opu_fuse.model.operator_record import Pattern
from opu_fuse.units.base import (
    Access,
    Field,
    ModuleKind,
    Stage,
    Unit,
)
from opu_fuse.units.operator import (
    NEARER,
    Operand,
    Operator,
    Registers,
)
from opu_fuse.units.residual import PRODUCT_BITS, product

AFFINES = np.dtype([("bias", "<i4"), ("mult", "<i2"), ("shift", "i1"), ("zero", "i1")])
"""Constants of a channel: `rne((x * mult + bias) / 2**shift)`."""
_INT16_MAX, _INT32_MAX = (1 << 15) - 1, (1 << 31) - 1
_BIAS_MAX = _INT32_MAX + INT8_MIN * (1 << 15)
"""Largest bias before the operand's zero point is folded into it."""


class AffineParams(Struct, frozen=True, kw_only=True, eq=False):
    """Arguments of `fixedpoint.channel_affine`, per channel: mult int16[c], bias int32[c] (the
    operand's zero point included), shift int8[c].
    """

    mult: np.ndarray
    bias: np.ndarray
    shift: np.ndarray
    y_zero: int


def affine_params(operator: Operator) -> AffineParams:
    """Per-channel multiplier, bias and shift of `x * scale + shift` with constants.

    Each channel has the finest shift whose multiplier fits int16 and whose bias fits int32. Raises
    ModelError where no shift does.
    """
    data = next(operand for operand in operator.operands if operand.const is None)
    x, y = data.quantised, operator.y
    scale, offset = _real_affine(operator)
    ratios, offsets = scale * (x.per_tensor / y.per_tensor), offset / y.per_tensor
    shift = np.array([_finest(operator, *p) for p in zip(ratios, offsets, strict=True)], np.int8)
    mult = np.rint(np.ldexp(ratios, shift.astype(int))).astype(np.int64)
    bias = np.rint(np.ldexp(offsets, shift.astype(int))).astype(np.int64) - x.zero_point * mult
    return AffineParams(
        mult=mult.astype(np.int16), bias=bias.astype(np.int32), shift=shift, y_zero=y.zero_point
    )


def _real_affine(operator: Operator) -> tuple[np.ndarray, np.ndarray]:
    """(scale, shift) as float64 [c]."""
    channels = operator.result.shape[1]
    constants = [_real(o, channels) for o in operator.operands if o.const is not None]
    match operator.op:
        case "batch_norm":
            return constants[0], constants[1]
        case "multiply":
            return constants[0], np.zeros_like(constants[0])
        case _:
            return np.ones_like(constants[0]), constants[0]


def _real(operand: Operand, channels: int) -> np.ndarray:
    assert operand.const is not None
    data = operand.const if operand.quant is None else operand.quant.dequantize(operand.const)
    return np.broadcast_to(data.astype(np.float64).reshape(-1), (channels,))


def _finest(operator: Operator, ratio: float, offset: float) -> int:
    """The largest shift at which both fit."""
    fits = [
        math.floor(math.log2(limit / abs(value)))
        for value, limit in ((ratio, _INT16_MAX), (offset, _BIAS_MAX))
        if value
    ]
    shift = min([MAX_SHIFT, *fits])
    if shift < MIN_SHIFT:
        what = f"its scale {ratio:g} or offset {offset:g} (in steps of the result) is too large"
        raise ModelError(operator.name, what, NEARER)
    return shift


def gate_registers(operator: Operator) -> Registers:
    """Registers of a product with a gate before the array. The pipeline's map is the first operand.
    The integers are those of the product after the array. Raises ModelError where no multiplier
    holds the ratio of the scales.
    """
    result = product(operator, PRODUCT_BITS)
    return {
        "gate": 1,
        "gate_x_zero": result.a_zero,
        "gate_zero": result.b_zero,
        "gate_mult": result.mult,
        "gate_shift": result.shift,
        "pre_zero": result.y_zero,
    }


_READS = (Access.PER_TENSOR, Access.PER_CHANNEL)

AFFINE = Unit(
    module="opu_pre",
    doc="scale and shift per channel, then a clamp",
    runs={ModuleKind.ADDER: ("add",), ModuleKind.MULTIPLIER: ("multiply", "batch_norm")},
    operands={ModuleKind.ADDER: _READS, ModuleKind.MULTIPLIER: _READS},
    pattern=Pattern.BROADCAST,
    forms={"BatchNormalization": "constant parameters, four dimensions and a real result"},
    real_constants=True,
    stage=Stage.PRE,
    registers=(
        Field(28, "pre_zero", -8, "zero point after the unit"),
        Field(29, "pre_lo", -8, "lower clamp of the unit"),
        Field(30, "pre_hi", -8, "upper clamp of the unit"),
    ),
    shared=(
        Field(32, "gate", 1, "1: the unit multiplies by a gate, one parameter word a block"),
        Field(33, "gate_x_zero", -8, "zero point of the features"),
        Field(34, "gate_zero", -8, "zero point of the gate"),
        Field(35, "gate_mult", 16, "multiplier of the product"),
        Field(36, "gate_shift", 6, "right shift of the product, at most 47"),
    ),
)
