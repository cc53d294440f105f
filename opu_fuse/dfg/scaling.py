"""Integer parameters of products of two feature maps, and of per-channel scaling and shifting.

As in `integer.py`: the golden model executes them, the code generator writes them into registers
and parameter words.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opu_fuse.dfg.graph import Access, Dfg, Kind, Node
from opu_fuse.dfg.integer import Numeric, quant_of, require_shifts, scaled
from opu_fuse.errors import ModelError
from opu_fuse.fixedpoint import INT8_MIN, MAX_SHIFT, MIN_SHIFT

_INT16_MAX, _INT32_MAX = (1 << 15) - 1, (1 << 31) - 1
CLAMPS = ("relu", "clip")
"""Activations that the pre chain can do."""
_BIAS_MAX = _INT32_MAX + INT8_MIN * (1 << 15)
"""What the bias may take before the operand's zero point is folded into it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductParams:
    """Arguments of `fixedpoint.multiply_residual`; a is the first operand."""

    mult: int
    shift: int
    a_zero: int
    b_zero: int
    y_zero: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AffineParams:
    """Arguments of `fixedpoint.channel_affine`, per channel: mult int16[c], bias int32[c] (the
    operand's zero point included), shift int8[c].
    """

    mult: np.ndarray
    bias: np.ndarray
    shift: np.ndarray
    y_zero: int


def product_params(dfg: Dfg, index: int, numeric: Numeric, *, swap: bool = False) -> ProductParams:
    """Setting of a multiply of two computed values; a is operand 0 (operand 1 with swap).

    Raises ModelError where the scales lie too far apart.
    """
    node = dfg[index]
    a, b = (quant_of(dfg[i]) for i in (reversed(node.operands) if swap else node.operands))
    y = quant_of(node)
    # The unit's multiplier is as wide as the residual adder's, whatever `multiplier_bits`.
    ratio = a.per_tensor * b.per_tensor / y.per_tensor
    require_shifts(node, (ratio,), numeric)
    found = scaled(node, ratio, max(numeric.multiplier_bits, 16))
    zeros = {"a_zero": a.zero_point, "b_zero": b.zero_point, "y_zero": y.zero_point}
    return ProductParams(mult=found.mult, shift=found.shift, **zeros)


def is_affine(dfg: Dfg, index: int) -> bool:
    """True for `x * scale + shift` per channel with constants: batch_norm, and multiply or add of a
    computed value and a constant that is read per channel or as one number.
    """
    node = dfg[index]
    if node.op == "batch_norm":
        return True
    if node.op not in {"multiply", "add"} or node.owner is not None or len(node.operands) != 2:
        return False
    kinds = {
        (dfg[i].kind is Kind.CONST, access is Access.FULL)
        for i, access in zip(node.operands, node.access, strict=True)
    }
    return kinds == {(False, True), (True, False)} and Access.UNSUPPORTED not in node.access


def pre_slots(dfg: Dfg, nodes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Operators before the array, those together that one unit does: a channel affine and the clamp
    behind it, or one of them.
    """
    slots: list[tuple[int, ...]] = []
    for node in nodes:
        clamp = dfg[node].op in CLAMPS
        if clamp and slots and dfg[slots[-1][-1]].op not in CLAMPS:
            slots[-1] = (*slots[-1], node)
        else:
            slots.append((node,))
    return tuple(slots)


def affine_params(dfg: Dfg, index: int) -> AffineParams:
    """Per-channel multiplier, bias and shift of an `is_affine` node.

    Each channel has the finest shift whose multiplier fits int16 and whose bias fits int32. Raises
    ModelError where no shift does.
    """
    node = dfg[index]
    data = next(i for i in node.operands if dfg[i].kind is not Kind.CONST)
    x, y = quant_of(dfg[data]), quant_of(node)
    scale, offset = _real_affine(dfg, node)
    ratios, offsets = scale * (x.per_tensor / y.per_tensor), offset / y.per_tensor
    shift = np.array([_finest(node, *pair) for pair in zip(ratios, offsets, strict=True)], np.int8)
    mult = np.rint(np.ldexp(ratios, shift.astype(int))).astype(np.int64)
    bias = np.rint(np.ldexp(offsets, shift.astype(int))).astype(np.int64) - x.zero_point * mult
    return AffineParams(
        mult=mult.astype(np.int16), bias=bias.astype(np.int32), shift=shift, y_zero=y.zero_point
    )


def _real_affine(dfg: Dfg, node: Node) -> tuple[np.ndarray, np.ndarray]:
    """(scale, shift) as float64 [c]."""
    constants = [_real(dfg[i], node.shape[1]) for i in node.operands if dfg[i].kind is Kind.CONST]
    match node.op:
        case "batch_norm":
            return constants[0], constants[1]
        case "multiply":
            return constants[0], np.zeros_like(constants[0])
        case _:
            return np.ones_like(constants[0]), constants[0]


def _real(node: Node, channels: int) -> np.ndarray:
    assert node.const is not None
    data = node.const if node.quant is None else node.quant.dequantize(node.const)
    return np.broadcast_to(data.astype(np.float64).reshape(-1), (channels,))


def _finest(node: Node, ratio: float, offset: float) -> int:
    """The largest shift at which both fit."""
    fits = [
        math.floor(math.log2(limit / abs(value)))
        for value, limit in ((ratio, _INT16_MAX), (offset, _BIAS_MAX))
        if value
    ]
    shift = min([MAX_SHIFT, *fits])
    if shift < MIN_SHIFT:
        what = f"its scale {ratio:g} or offset {offset:g} (in steps of the result) is too large"
        raise ModelError(node.name, what, "choose scales nearer to each other, or --scales pow2")
    return shift
