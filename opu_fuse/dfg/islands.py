"""Float islands: operators of a quantised model whose numbers are not int8, so that no machine can
hold them.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.dfg.graph import PRODUCTS, Access, Dfg, Kind, Node
from opu_fuse.dfg.integer import ACCUMULATING, is_tied, owned_bias, quant_of
from opu_fuse.fixedpoint import INT8_MAX, INT8_MIN, shared_multipliers
from opu_fuse.model.composites import const_array
from opu_fuse.model.qdq_pairs import type_of_zero
from opu_fuse.quant import ASKED, FLOAT_KEY, INFINITE, META_KEY, NEEDLESS, QuantParams
from opu_fuse.units import REAL_CONSTANTS

_FORMS = {Kind.CONST: "int8 or uint8, with one scale or one for each output channel,"}
_MOVERS = frozenset(
    {"concat", "split", "shuffle", "max_pool", "pad", "upsample", "permute", "transpose"}
)


def float_reason(dfg: Dfg, index: int) -> str | None:
    """Why a call of a quantised model must run in floating point; None when its operands and result
    are integers.

    Case 0: the user wants it so, or nothing needs it rounded.
    Case 1: a conv or dense layer is an accumulator as long as its owned bias is rounded; both go
    together.
    Case 2: a result without rounding. Case 3: an operand that is not int8, weights and biases
    included. Case 4: an operator that only moves channels, but from one scale to another. Case 5: a
    sum of two maps whose scales no pair of multipliers holds together. Case 6: a product of two
    maps of which one has a zero point: no constant makes up for it.
    """
    node = dfg[index]
    if node.owner is not None:  # Case 1
        return float_reason(dfg, node.owner)
    if (asked := left_float(node)) is not None:  # Case 0
        return asked
    bias = owned_bias(dfg, index) if node.op in ACCUMULATING else None
    parts = [dfg[u] for u in dfg.users[index] if dfg[u].kind is Kind.TUPLE_GET]
    if any(r.quant is None for r in parts or (bias or node,)):  # Case 2
        why = _rounded_how(node) or _what_follows(dfg, bias or node)
        return f"the result of {node.name} is not rounded to int8 in the model ({why})"
    operands = (*node.operands, *((bias.operands[1],) if bias else ()))
    leaves = _leaves(dfg, operands)
    of_maps = node.op in {"add", "multiply"} and set(node.access) == {Access.FULL}
    if node.op in REAL_CONSTANTS and not of_maps:
        leaves = [i for i in leaves if dfg[i].kind is not Kind.CONST]
    added = bias and bias.operands[1]
    forms = ("int32" if i == added else _FORMS.get(dfg[i].kind, "int8") for i in leaves)
    reasons = (
        _not_integer(dfg[i], form, is_map=of_maps and i != added)
        for i, form in zip(leaves, forms, strict=True)
    )
    unfit = next(filter(None, reasons), None)  # Case 3
    if unfit is None and _moves(node) and not _keeps_scale(node, leaves, parts, dfg):
        return f"{node.name} only moves values, but those are rounded to different scales"  # Case 4
    if unfit is None and node.op in PRODUCTS and len(node.operands) == 2:  # Case 6
        unfit = next(filter(None, (_moved_zero(node, dfg[i]) for i in leaves)), None)
    if unfit is None and node.op == "add" and len(leaves) == 2:  # Case 5
        unfit = _scales_differ_too_much(node, [quant_of(dfg[i]) for i in leaves])
    return unfit


def _moves(node: Node) -> bool:
    return node.op in _MOVERS and not node.is_turned_layer


def _moved_zero(node: Node, operand: Node) -> str | None:
    zero = quant_of(operand).zero_point
    if not zero:
        return None
    return f"{node.name} multiplies {operand.name}, which has zero point {zero}, machines take 0"


def left_float(node: Node) -> str | None:
    """Why an operator is not to be rounded, in whichever form the model is; None where it is."""
    marks = {n.metadata_props.get(FLOAT_KEY) for n in (node.ir_node, *node.body) if n} - {None}
    if NEEDLESS in marks:
        return f"{node.name} only moves values that nothing quantised computes or reads"
    if INFINITE in marks:
        return f"{node.name} reads or writes minus infinity, which int8 has not"
    return f"{node.name} remains in floats, as asked" if marks else None


def is_asked(node: Node) -> bool:
    """Whether the user wants it in floats."""
    marks = {n.metadata_props.get(FLOAT_KEY) for n in (node.ir_node, *node.body) if n}
    return ASKED in marks


def _scales_differ_too_much(node: Node, operands: Sequence[QuantParams]) -> str | None:
    """Why the two scales of a sum differ too much, None where they fit.

    Both multipliers share one shift: next to a large one, a small one has few significant bits. A
    result may be off by less than a step; with powers of two it must be exact.
    """
    ratios = tuple(x.per_tensor / quant_of(node).per_tensor for x in operands)
    why = f"{node.name} adds steps of {ratios[0]:g} and {ratios[1]:g} of its own"
    try:
        mults, shift = shared_multipliers(ratios, 0)
    except ValueError:
        return f"{why}, more than 16 bits hold"
    reach = [max(INT8_MAX - x.zero_point, x.zero_point - INT8_MIN) for x in operands]
    off = float(np.abs(np.ldexp(mults, -shift) - ratios) @ reach)
    if not all(np.frexp(r)[0] == 0.5 for r in ratios):
        allowed = 1.0
    else:  # less than half a step changes no whole number of steps
        allowed = 0.5 if max(ratios) >= 1.0 else 0.0
    return f"{why}: 16 bits do not hold both" if off and off >= allowed else None


def _what_follows(dfg: Dfg, node: Node) -> str:
    """Text about the readers of a result that lacks a QuantizeLinear.

    A quantiser that treats a layer and its successor as one operator rounds only the end; machines
    round after both.
    """
    readers = [dfg[user] for user in dfg.users[node.index]]
    if len(readers) == 1 and readers[0].quant is not None:
        return f"no QuantizeLinear before the {readers[0].title} that reads it, only after that"
    return "no QuantizeLinear follows"


def _rounded_how(node: Node) -> str | None:
    """Why no machine can do the Q/DQ pairs after a result; None without any."""
    uses = [] if node.ir_node is None else node.ir_node.outputs[0].uses()
    pairs = [u.node for u in uses if u.node.op_type == "QuantizeLinear"]
    if not pairs:
        return None
    wrong = next((w for pair in pairs if (w := _unlike_int8(pair))), None)
    if wrong is None and len({_numbers(pair) for pair in pairs}) > 1:
        wrong = "to several scales, a map has one"
    return f"it is rounded {wrong or 'otherwise'}"


def _unlike_int8(pair: ir.Node) -> str | None:
    """Why a QuantizeLinear or DequantizeLinear has no int8 map of a machine."""
    zero = pair.inputs[2] if len(pair.inputs) > 2 else None
    kind = type_of_zero(pair) if zero is None else zero.dtype
    if kind is not None and kind not in {ir.DataType.INT8, ir.DataType.UINT8}:
        what = f"{kind.bitwidth} bits" if kind.is_integer() else kind.name
        return f"to {what}, machines hold int8"
    scale = const_array(pair.inputs[1])
    if scale is None:
        return "to a scale that is computed"
    return "with a scale for each channel, give it one per tensor" if scale.size > 1 else None


def _numbers(pair: ir.Node) -> tuple[bytes, ...]:
    """Scale and zero point."""
    values = [const_array(v) for v in pair.inputs[1:]]
    return tuple(v.tobytes() for v in values if v is not None)


def _keeps_scale(node: Node, sources: list[int], parts: list[Node], dfg: Dfg) -> bool:
    """Sources, results and the values between have one annotation."""
    first, *others = (n.quant for n in (*(dfg[i] for i in sources), *(parts or (node,))))
    inner = [v.meta[META_KEY] for n in node.body[:-1] for v in n.outputs if META_KEY in v.meta]
    return all(is_tied(first, q) for q in (*others, *inner))


def _leaves(dfg: Dfg, operands: tuple[int, ...]) -> list[int]:
    """Operands with tuples replaced by their elements."""
    return [j for i in operands for j in (dfg[i].operands if dfg[i].kind is Kind.TUPLE else (i,))]


def _not_integer(node: Node, form: str, *, is_map: bool) -> str | None:
    """Why a value is no integer that a machine reads, None if it is.

    is_map: a constant would be read as a map, which may have a zero point.
    """
    if node.quant is None:
        pair = node.ir_node if node.op == "host:DequantizeLinear" else None
        wrong = None if pair is None else _unlike_int8(pair)
        how = "" if wrong is None else f" (it is rounded {wrong})"
        return f"{node.name} is not quantised to {form} in the model{how}"
    has_zero = node.kind is Kind.CONST and node.quant.bits == 8 and node.quant.zero_point != 0
    if has_zero and not is_map:
        return f"constant {node.name} has zero point {node.quant.zero_point}, machines take 0"
    return None
