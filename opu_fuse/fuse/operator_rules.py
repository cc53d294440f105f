"""Can a machine hold this operator at all? The rules before any module is looked at (see
`legality.py` for their form).

Every predicate gets the scope and the node.
"""

import functools
from collections.abc import Mapping

from opu_fuse.dfg.graph import Access, Kind, Node
from opu_fuse.dfg.islands import float_reason
from opu_fuse.fuse.host_reasons import HOST_REASONS
from opu_fuse.fuse.refusal import UNASKED, Refusal, Rule, Words, first_refusal
from opu_fuse.fuse.scope import AFFINE_KINDS, Scope, data_operands, leaves
from opu_fuse.hw.check_graph import RUNS
from opu_fuse.units.base import ModuleKind

_WINDOW = "one four-dimensional operand of known shape, explicit pads and no ceil_mode"
_KNOWN = "operands and a result of known shape that stand for real numbers"

FORMS: Mapping[str, str] = {
    "Conv": "constant weights (o, i, h, w), a constant bias and explicit pads",
    "ConvTranspose": "constant weights (i, o, h, w), a constant bias, explicit pads, dilations 1, "
    "and one group, or one for each channel with one filter in it (depthwise)",
    "BatchNormalization": "constant parameters, four dimensions and a real result",
    "Split": f"{_KNOWN}, along channels",
    "Gemm": "an operand of one row, (1, n), not transposed, or of rows that a Reshape makes of one "
    "image, (1, h, w, n), constant weights, a constant bias",
    "MatMul": "an operand of one row, (1, n), or of one image, (1, l, n) or (1, h, w, n), and "
    "constant weights (n, m)",
    "Add": _KNOWN,
    "Sub": f"{_KNOWN}, both operands computed, of the result's shape, not one pixel",
    "Mul": _KNOWN,
    "Relu": _KNOWN,
    "Clip": f"{_KNOWN}, and constant bounds",
    "LeakyRelu": _KNOWN,
    "PRelu": f"{_KNOWN}, and constant slopes, one a channel",
    "MaxPool": _WINDOW,
    "AveragePool": _WINDOW,
    "GlobalMaxPool": _WINDOW,
    "GlobalAveragePool": _WINDOW,
    "Pad": "mode constant, four dimensions, constant pads that add something, batch left alone",
    "Concat": _KNOWN,
    "Resize": "mode nearest, whole factors for rows and columns, and coordinates and rounding by "
    "which each pixel is repeated that many times",
    "Reshape": f"{_KNOWN}, each value staying in its channel and place, or all in one row",
}
"""In which form machines know an ONNX operator: in words, what `dfg/lower.py` decides in code."""

_DYNAMIC = frozenset({"ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"})
"""Of models quantised at run time: there are no scales to compile with."""
TWO_OPERANDS = frozenset({"add", "multiply"})
"""Operators whose second operand decides which kind of module they need."""


def operator_refusal(scope: Scope, node: Node) -> Refusal | None:
    """The first of the operator rules that does not hold."""
    found = scope.operators.get(node.index, UNASKED)
    if found is UNASKED:
        form = scope.forms[node.index]
        known = form in scope.held and integer_values(scope, node) is None
        found = None if known else first_refusal(_RULES.get(node.op, COMMON_RULES), scope, node)
        scope.operators[node.index] = found
        if found is None:
            scope.held.add(form)
    return found


@functools.lru_cache(maxsize=4096)
def feature_size(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(channels, rows, columns) of a shape the machine holds: (1, c, h, w) or (1, n); None for
    others.
    """
    if len(shape) == 4 and shape[0] == 1 and min(shape) > 0:
        return shape[1:]
    return (shape[1], 1, 1) if len(shape) == 2 and shape[0] == 1 and shape[1] > 0 else None


def known_form(scope: Scope, node: Node) -> Words | None:  # noqa: ARG001  one signature for all rules
    """{op}: machines run it only with {form}

    Change: give {node} that form
    """
    if not node.is_host:
        return None
    op = node.op.removeprefix("host:")
    form = FORMS.get(op)
    return None if form is None else {"node": node.name, "op": op, "form": form}


def known_operator(scope: Scope, node: Node) -> Words | None:
    """{op}: no module of this machine runs it

    Change: set `dataflow.operators.{key}` to {kinds}
    Change: add a module of kind {missing} to `dataflow.modules` and map {key} to it in
    `dataflow.operators`
    Change: compile the float model (the scales of {dynamic} are chosen anew for each image)
    Change: replace {foreign} by operators that the machine runs (it {why})
    Change: replace {unknown} by operators that the machine runs
    """
    if scope.modules.runners(scope.runs_as(node)):
        return None
    key, can = node.op.removeprefix("host:"), RUNS.get(node.op)
    op = "+".join(node.attrs["functions"]) if key == "table" else key
    wanted = kind_for(scope, node)
    if can is None or (wanted is None and op in TWO_OPERANDS):
        if op in _DYNAMIC:
            return {"op": op, "dynamic": op}
        why = HOST_REASONS.get(op)
        return {"op": op, "unknown": op} if why is None else {"op": op, "foreign": op, "why": why}
    can = can if wanted is None else (wanted,)
    present = {m.kind for m in scope.modules.by_name.values()}
    kinds = [str(kind) for kind in can if kind in present]
    words: Words = {"op": op, "key": key}
    return {**words, "kinds": f"[{', '.join(kinds)}]"} if kinds else {**words, "missing": can[0]}


def kind_for(scope: Scope, node: Node) -> ModuleKind | None:
    """The kind of module that suits the operands of a sum or product; None where none does, and for
    other operators.
    """
    if node.op not in TWO_OPERANDS or len(node.operands) != 2:
        return None
    constants = [scope.dfg[i].kind is Kind.CONST for i in node.operands]
    if not any(constants) and set(node.access) == {Access.FULL}:
        return ModuleKind.RES_ADDER if node.op == "add" else ModuleKind.SE
    operand = node.access[constants.index(True)] if constants.count(True) == 1 else None
    if operand not in {Access.PER_TENSOR, Access.PER_CHANNEL}:
        return None
    return AFFINE_KINDS[node.op]


def integer_values(scope: Scope, node: Node) -> Words | None:
    """{why}, so it stays in floating point

    Change: quantise it in the model (QuantizeLinear, DequantizeLinear)
    Change: hand over the float model, which is then quantised throughout
    """
    why = float_reason(scope.dfg, node.index) if scope.dfg.quantised else None
    return None if why is None else {"why": why}


def feature_maps(scope: Scope, node: Node) -> Words | None:
    """{name} has shape {shape}; the machine holds (1, c, h, w) and (1, n)

    Change: reshape {name} to one of these
    """
    nodes = scope.dfg.nodes
    results = scope.dfg.users[node.index] if node.op == "split" else (node.index,)
    for i in (*leaves(scope.dfg, node), *results):
        value = nodes[i]
        if value.kind is not Kind.CONST and feature_size(value.shape) is None:
            return {"name": value.name, "shape": value.shape}
    return None


def computed_data(scope: Scope, node: Node) -> Words | None:
    """{node} reads nothing but constants; the machine reads maps that are computed

    Change: make the result of {node} a constant of the model
    """
    return None if data_operands(scope.dfg, node) else {"node": node.name}


def channel_concat(scope: Scope, node: Node) -> Words | None:  # noqa: ARG001  one signature for all rules
    """{node} joins along axis {axis}; the machine joins channels (axis 1)

    Change: join along axis 1
    """
    return (
        {"node": node.name, "axis": node.attrs["axis"]}
        if node.op == "concat" and node.attrs["axis"] != 1
        else None
    )


def spatial_pad(scope: Scope, node: Node) -> Words | None:  # noqa: ARG001  one signature for all rules
    """{node} pads channels; the machine pads rows and columns

    Change: let the layer before {node} have {count} more filters, of zeros
    """
    count = sum(node.attrs["channels"]) if node.op == "pad" else 0
    return {"node": node.name, "count": count} if count else None


COMMON_RULES = (known_form, known_operator, feature_maps, integer_values, computed_data)
"""A form that no machine holds comes before the rounding, which would not help then."""
OF_ONE: Mapping[str, Rule] = {
    "concat": channel_concat,
    "pad": spatial_pad,
}
"""Rules that concern one operator; the others concern all."""

OPERATOR_RULES = (*COMMON_RULES, *OF_ONE.values())
_RULES = {op: (*COMMON_RULES, rule) for op, rule in OF_ONE.items()}
