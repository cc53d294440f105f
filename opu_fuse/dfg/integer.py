"""Integer parameters of every operator, derived from the annotations.

The golden model executes them, the code generator writes them into registers and parameter words:
both call the functions here, so that there is one derivation. `numeric` is the spec's `numeric`
section: `multiplier_bits` and `average_bits`. All raise ModelError, naming the node, when the
annotations cannot be expressed.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.errors import ModelError
from opu_fuse.fixedpoint import INT8_MAX, INT8_MIN, Multiplier, multiplier, shared_multipliers
from opu_fuse.quant import QuantParams

ACC_LIMIT = 1 << 31
ACCUMULATING = frozenset({"conv", "dense", "transposed_conv"})
"""Operators that sum products of int8 weights, and may own a bias."""


class Numeric(Protocol):
    """Widths of the machine's multipliers (`HwSpec.numeric`)."""

    @property
    def multiplier_bits(self) -> int: ...

    @property
    def average_bits(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequantParams:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ActParams:
    """Arguments of `fixedpoint.activate`."""

    x_zero: int
    pos: int
    neg: int
    shift: int
    y_zero: int
    lo: int
    hi: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualParams:
    """Arguments of `fixedpoint.add_residual`; a is the first operand."""

    a_mult: int
    b_mult: int
    shift: int
    a_zero: int
    b_zero: int
    y_zero: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageParams:
    """`fixedpoint.average` over a window.

    row_counts, col_counts: positions that count, for every output row and column (all equal unless
    padding is left out); mults: (count, Multiplier) for every product of a row count and a column
    count, ascending.
    """

    x_zero: int
    y_zero: int
    row_counts: tuple[int, ...]
    col_counts: tuple[int, ...]
    mults: tuple[tuple[int, Multiplier], ...]

    def multiplier_for(self, rows: int, cols: int) -> Multiplier:
        """The multiplier of windows in which rows x cols positions count."""
        return dict(self.mults)[rows * cols]


def requant_params(dfg: Dfg, conv: int, numeric: Numeric) -> RequantParams:
    """Requantiser of a conv, transposed_conv or dense node, its owned bias (if any) included. The
    weights must be int8.
    """
    node = dfg[conv]
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
    mults = [scaled(node, ratio, numeric.multiplier_bits) for ratio in ratios.tolist()]
    return RequantParams(
        bias=bias,
        mult=np.array([m.mult for m in mults], np.int64)[which],
        shift=np.array([m.shift for m in mults], np.int64)[which],
        zero_point=y.zero_point,
        pad_value=x.zero_point,
    )


def _check_reach(node: Node, rows: np.ndarray, bias: np.ndarray) -> None:
    """ModelError when a sum of products with the int8 weights `rows`, and bias, may leave int32."""
    if rows.shape[1] * INT8_MIN**2 + np.abs(bias).max(initial=0) < ACC_LIMIT:
        return
    reach = np.abs(rows.astype(np.int64)).sum(axis=1) * -INT8_MIN + np.abs(bias)
    if reach.max(initial=0) >= ACC_LIMIT:
        what = f"its accumulator can reach {reach.max()}, 32 bits hold {ACC_LIMIT - 1}"
        raise ModelError(node.name, what, "use smaller biases or larger weight scales")


def act_params(dfg: Dfg, index: int, numeric: Numeric) -> ActParams:
    """Comparator setting of a relu, clip or leaky_relu (alpha = 2**-k) node."""
    node = dfg[index]
    x, y = quant_of(dfg[node.operands[0]]), quant_of(node)
    ratio, lo, hi = x.per_tensor / y.per_tensor, INT8_MIN, INT8_MAX
    slopes = (ratio, ratio)
    match node.op:
        case "relu":
            lo = y.zero_point
        case "clip":
            lo, hi = _quantized_limit(node.attrs["min"], y), _quantized_limit(node.attrs["max"], y)
        case "leaky_relu":
            slopes = (ratio, ratio * node.attrs["alpha"])
        case _:
            raise ModelError(
                node.name, f"{node.op} is no activation", "use relu, clip or leaky_relu"
            )
    (pos, neg), shift = _shared(node, slopes, numeric)
    return ActParams(
        x_zero=x.zero_point, pos=pos, neg=neg, shift=shift, y_zero=y.zero_point, lo=lo, hi=hi
    )


def residual_params(
    dfg: Dfg, index: int, numeric: Numeric, *, swap: bool = False
) -> ResidualParams:
    """Residual adder setting of an add of two feature maps; a is operand 0 (operand 1 with
    swap).
    """
    node = dfg[index]
    a, b = (quant_of(dfg[i]) for i in (reversed(node.operands) if swap else node.operands))
    y = quant_of(node)
    ratios = (a.per_tensor / y.per_tensor, b.per_tensor / y.per_tensor)
    require_shifts(node, ratios, numeric)
    (a_mult, b_mult), shift = _shared(node, ratios, numeric)
    zeros = {"a_zero": a.zero_point, "b_zero": b.zero_point, "y_zero": y.zero_point}
    return ResidualParams(a_mult=a_mult, b_mult=b_mult, shift=shift, **zeros)


def average_params(dfg: Dfg, index: int, numeric: Numeric) -> AverageParams:
    """Average pooling setting; with uncounted padding there is one multiplier per number of counted
    positions.
    """
    node = dfg[index]
    x, y = quant_of(dfg[node.operands[0]]), quant_of(node)
    rows, cols = window_counts(dfg, index)
    counts = sorted({r * c for r in set(rows) for c in set(cols)})
    if counts[0] == 0:
        raise ModelError(
            node.name, "a pooling window lies wholly in the padding", "use less padding"
        )
    ratio = x.per_tensor / y.per_tensor
    mults = tuple((n, scaled(node, ratio / n, numeric.average_bits)) for n in counts)
    zeros = {"x_zero": x.zero_point, "y_zero": y.zero_point}
    return AverageParams(row_counts=rows, col_counts=cols, mults=mults, **zeros)


def window_counts(dfg: Dfg, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions that count in an average: per output row, per output column."""
    node = dfg[index]
    size, result, attrs = dfg[node.operands[0]].shape[2:], node.shape[2:], node.attrs

    def along(axis: int) -> tuple[int, ...]:
        kernel, stride, step = (attrs[a][axis] for a in ("kernel", "strides", "dilations"))
        if attrs["count_include_pad"]:
            return (kernel,) * result[axis]
        first = [o * stride - attrs["pads"][axis] for o in range(result[axis])]
        return tuple(sum(0 <= f + k * step < size[axis] for k in range(kernel)) for f in first)

    return along(0), along(1)


def pad_fill(dfg: Dfg, index: int) -> int:
    """The int8 value that an explicit pad inserts."""
    node = dfg[index]
    fill = np.array(node.attrs["value"], np.float32)
    return int(tied_quant(dfg, index).quantize(fill))


def tied_quant(dfg: Dfg, index: int) -> QuantParams:
    """The annotation of an operator that only moves int8 values; ModelError unless its operands
    (all that a concat joins) have the same one.
    """
    node = dfg[index]
    y = quant_of(node)
    untied = next((x for x in _moved(dfg, node) if not is_tied(quant_of(x), y)), None)
    if untied is not None:
        x = quant_of(untied)
        what = (
            f"{node.op} changes the scale from {x.per_tensor} to {y.per_tensor} (or the zero point)"
        )
        raise ModelError(
            node.name,
            what,
            "quantise its input and output with one scale, as our own quantiser does",
        )
    return y


def is_tied(x: QuantParams | None, y: QuantParams | None) -> bool:
    """True when the same integers stand for the same numbers."""
    return None not in {x, y} and (x.scale, x.zero_point) == (y.scale, y.zero_point)  # type: ignore[union-attr]  # None is ruled out before


def _moved(dfg: Dfg, node: Node) -> tuple[Node, ...]:
    """Operands, those of a concat instead of its tuple."""
    first = dfg[node.operands[0]]
    return tuple(dfg[i] for i in (first.operands if first.kind is Kind.TUPLE else node.operands))


def owned_bias(dfg: Dfg, conv: int) -> Node | None:
    """The bias node that a conv or dense node owns: it stands right behind it and its constant."""
    return next((dfg[u] for u in dfg.users[conv] if dfg[u].owner == conv), None)


def quant_of(node: Node) -> QuantParams:
    """The annotation of a node; ModelError without."""
    if node.quant is None:
        raise ModelError(
            node.name,
            "its value is not rounded to int8",
            "quantise it (a QuantizeLinear behind it)",
        )
    return node.quant


def int8_weight(node: Node) -> np.ndarray:
    """Data of a weight constant; ModelError unless it is int8 with zero point 0."""
    quant = quant_of(node)
    if node.const is None or node.const.dtype != np.int8 or quant.zero_point != 0:
        raise ModelError(
            node.name,
            "weights must be constant int8 with zero point 0",
            "quantise them symmetrically",
        )
    return node.const


def filters(dfg: Dfg, conv: int) -> np.ndarray:
    """Weights of a conv, transposed_conv or dense node, one filter per output channel: int8 (oc,
    ic/group, kh, kw) or (oc, ic). Those of a transposed_conv are as in the model (not mirrored).
    """
    node = dfg[conv]
    weight = int8_weight(dfg[node.operands[1]])
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


def scaled(node: Node, ratio: float, bits: int) -> Multiplier:
    """`fixedpoint.multiplier` for a node; ModelError when it cannot hold the ratio."""
    try:
        return multiplier(ratio, bits)
    except ValueError as error:
        raise ModelError(
            node.name, str(error), "choose scales nearer to each other, or --scales pow2"
        ) from error


def require_shifts(node: Node, ratios: tuple[float, ...], numeric: Numeric) -> None:
    """ModelError when a machine without multipliers would need one."""
    free = [r for r in ratios if np.frexp(r)[0] != 0.5]
    if free and not numeric.multiplier_bits:
        raise ModelError(
            node.name,
            f"ratio {free[0]} is not a power of two, the machine only shifts (multiplier_bits 0)",
            "quantise with --scales pow2, or compile for another machine",
        )


def _shared(
    node: Node, ratios: tuple[float, float], numeric: Numeric
) -> tuple[tuple[int, ...], int]:
    try:
        return shared_multipliers(ratios, numeric.multiplier_bits)
    except ValueError as error:
        raise ModelError(
            node.name, str(error), "choose scales nearer to each other, or --scales pow2"
        ) from error


def _quantized_limit(limit: float, y: QuantParams) -> int:
    """A bound of clip as int8 of the result (infinite bounds become the ends of the range)."""
    scaled = np.rint(np.float32(limit) / np.float32(y.per_tensor)) + y.zero_point
    return int(np.clip(scaled, INT8_MIN, INT8_MAX))
