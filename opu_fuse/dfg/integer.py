"""Integer parameters of every operator, derived from the annotations.

The golden model executes them, the code generator writes them into registers and parameter words:
both call the functions here, so that there is one derivation. `numeric` is the spec's `numeric`
section: `multiplier_bits` and `average_bits`. All raise ModelError, naming the node, when the
annotations cannot be expressed.
"""

import numpy as np
from msgspec import Struct

from opu_fuse.dfg.graph import PRODUCTS, Dfg, Kind, Node
from opu_fuse.errors import ModelError
from opu_fuse.fixedpoint import INT8_MIN
from opu_fuse.quant import QuantParams
from opu_fuse.units import BY_STAGE
from opu_fuse.units.base import Stage
from opu_fuse.units.operator import (
    Numeric,
    Operand,
    Operator,
    Settings,
)

ACC_LIMIT = 1 << 31
"""Accumulators are int32."""
_LARGEST_WEIGHT = 256
"""Between an integer of 8 bits and its zero point."""
ACCUMULATING = frozenset({"conv", "dense", "transposed_conv"})
"""Operators that sum products of int8 weights, and may own a bias."""


class RequantParams(Struct, frozen=True, kw_only=True, eq=False):
    """Accumulator -> int8, per output channel: int64 arrays of one length.

    bias: what is added to the plain sum of products x*w (the model's bias and -x_zero * sum(w),
    int32 range); mult, shift: `fixedpoint.requantize`; zero_point: of the result; pad_value: int8
    that padding inserts (the operand's zero point).
    """

    bias: np.ndarray
    mult: np.ndarray
    shift: np.ndarray
    zero_point: int
    pad_value: int


def product_params(dfg: Dfg, index: int, numeric: Numeric) -> RequantParams:
    """Requantiser of a matmul or turned layer, whose operands have zero point 0
    (`islands.float_reason`).
    """
    node = dfg[index]
    x, w, y = (quant_of(dfg[i]) for i in (*node.operands, index))
    if dfg[node.operands[0]].shape[1] * INT8_MIN**2 >= ACC_LIMIT:
        what = f"it sums {dfg[node.operands[0]].shape[1]} products, 32 bits hold {ACC_LIMIT - 1}"
        raise ModelError(node.name, what, "sum fewer channels at a time")
    own = operator(dfg, index)
    m = own.scaled(x.per_tensor * w.per_tensor / y.per_tensor, numeric.multiplier_bits)
    ones = np.ones(node.shape[1], np.int64)
    return RequantParams(
        bias=0 * ones,
        mult=m.mult * ones,
        shift=m.shift * ones,
        zero_point=y.zero_point,
        pad_value=0,
    )


def requant_params(dfg: Dfg, conv: int, numeric: Numeric) -> RequantParams:
    """Requantiser of a conv, transposed_conv, dense or matmul node or of a turned layer, its owned
    bias (if any) included.
    """
    node = dfg[conv]
    if node.op in PRODUCTS:
        return product_params(dfg, conv, numeric)
    last = owned_bias(dfg, conv) or node
    x, w = quant_of(dfg[node.operands[0]]), dfg[node.operands[1]]
    y, weight = quant_of(last), filters(dfg, conv)
    rows = weight.reshape(weight.shape[0], -1)
    bias = np.zeros(len(rows), np.int64)
    if last is not node:
        bias = bias + int32_bias(dfg[last.operands[1]])
    if x.zero_point:
        bias -= x.zero_point * rows.sum(axis=1, dtype=np.int64)
    _check_reach(node, rows, bias)
    scales = np.broadcast_to(np.asarray(quant_of(w).scale, np.float64), (len(rows),))
    ratios, which = np.unique(x.per_tensor * scales / y.per_tensor, return_inverse=True)
    own = operator(dfg, conv)
    mults = [own.scaled(ratio, numeric.multiplier_bits) for ratio in ratios.tolist()]
    return RequantParams(
        bias=bias,
        mult=np.array([m.mult for m in mults], np.int64)[which],
        shift=np.array([m.shift for m in mults], np.int64)[which],
        zero_point=y.zero_point,
        pad_value=x.zero_point,
    )


def _check_reach(node: Node, rows: np.ndarray, bias: np.ndarray) -> None:
    """ModelError when a sum of products with the weights `rows`, and bias, may leave int32."""
    largest = -INT8_MIN if rows.dtype == np.int8 else _LARGEST_WEIGHT
    if rows.shape[1] * -INT8_MIN * largest + np.abs(bias).max(initial=0) < ACC_LIMIT:
        return
    reach = np.abs(rows.astype(np.int64)).sum(axis=1) * -INT8_MIN + np.abs(bias)
    if reach.max(initial=0) >= ACC_LIMIT:
        what = f"its accumulator can reach {reach.max()}, 32 bits hold {ACC_LIMIT - 1}"
        raise ModelError(node.name, what, "use smaller biases or larger weight scales")


def operator(dfg: Dfg, index: int, *, swap: bool = False) -> Operator:
    """A node as units see it, a concat without its tuple; swap: its second operand is the
    pipeline's.
    """
    node = dfg[index]
    minus = node.attrs.get("minus")
    operands = [_operand(v, negative=i == minus) for i, v in enumerate(_moved(dfg, node))]
    return Operator(
        name=node.name,
        op=node.op,
        attrs=node.attrs,
        operands=tuple(reversed(operands) if swap else operands),
        result=_operand(node),
    )


def _operand(node: Node, *, negative: bool = False) -> Operand:
    return Operand(
        name=node.name, shape=node.shape, quant=node.quant, const=node.const, negative=negative
    )


def settings(
    dfg: Dfg, index: int, stage: Stage, numeric: Numeric, *, swap: bool = False
) -> Settings:
    """Registers of the unit that runs a node as a stage of the post chain. Raises ModelError where
    the numbers cannot be expressed.
    """
    unit = BY_STAGE[stage]
    assert unit.settings is not None, f"{stage.name} runs no operator by itself"
    return unit.settings(operator(dfg, index, swap=swap), numeric)


def pad_fill(dfg: Dfg, index: int) -> int:
    """The int8 value that an explicit pad inserts."""
    node = dfg[index]
    fill = np.array(node.attrs["value"], np.float32)
    return int(tied_quant(dfg, index).quantize(fill))


def tied_quant(dfg: Dfg, index: int) -> QuantParams:
    """The annotation of an operator that only moves int8 values; ModelError unless its operands
    (all that a concat joins) have the same one.
    """
    return operator(dfg, index).require_tied()


def is_tied(x: QuantParams | None, y: QuantParams | None) -> bool:
    """True when the same integers represent the same numbers."""
    return None not in {x, y} and (x.scale, x.zero_point) == (y.scale, y.zero_point)  # type: ignore[union-attr]  # None is ruled out before


def _moved(dfg: Dfg, node: Node) -> tuple[Node, ...]:
    """Operands, those of a concat instead of its tuple."""
    first = dfg[node.operands[0]]
    return tuple(dfg[i] for i in (first.operands if first.kind is Kind.TUPLE else node.operands))


def owned_bias(dfg: Dfg, conv: int) -> Node | None:
    """The bias node that a conv or dense node owns: it follows the node and its constant."""
    return next((dfg[u] for u in dfg.users[conv] if dfg[u].owner == conv), None)


def quant_of(node: Node) -> QuantParams:
    """The annotation of a node; ModelError without."""
    return _operand(node).quantised


def integer_weight(node: Node) -> np.ndarray:
    """Data of a weight constant, without zero point; ModelError unless it is int8 or int16."""
    quant = quant_of(node)
    kinds = (np.int8, np.int16)
    if node.const is None or node.const.dtype not in kinds or quant.zero_point != 0:
        raise ModelError(
            node.name,
            "weights must be constant int8 or int16 with zero point 0",
            "quantise them to int8 or uint8 in the model",
        )
    return node.const


def filters(dfg: Dfg, conv: int) -> np.ndarray:
    """Weights of a conv, transposed_conv or dense node, one filter per output channel: (oc,
    ic/group, kh, kw) or (oc, ic), int8 or int16 (`quant.weight_parts`). Those of a transposed_conv
    are as in the model (not mirrored).
    """
    node = dfg[conv]
    weight = integer_weight(dfg[node.operands[1]])
    if node.op != "transposed_conv" or node.attrs["group"] > 1:
        return weight
    return weight.transpose(1, 0, 2, 3)


def int32_bias(node: Node) -> np.ndarray:
    """Data of a bias constant as int64; ModelError unless it is int32."""
    if node.const is None or node.const.dtype != np.int32:
        raise ModelError(
            node.name,
            "a bias must be constant int32 in accumulator scale",
            "quantise it with scale sx*sw",
        )
    return node.const.astype(np.int64)
