"""Can a machine run this operator at all? These rules are checked before any module is searched.

Every predicate gets the match context and the node. Its docstring is the user message (see
`legality.py`).
"""

import functools
from collections.abc import Iterable, Mapping

import onnx_ir as ir

from opu_fuse.dfg.graph import Access, Dfg, Kind, Node
from opu_fuse.dfg.islands import float_reason, is_asked, left_float
from opu_fuse.dfg.number_limits import number_error
from opu_fuse.dfg.unused_lanes import ends_in_zeros
from opu_fuse.fuse.matching.context import AFFINE_KINDS, MatchContext, data_operands, leaves
from opu_fuse.fuse.rules.host_reasons import HOST_REASONS
from opu_fuse.fuse.rules.refusal import UNASKED, Refusal, Rule, Words, first_refusal
from opu_fuse.fuse.rules.round_trips import round_trips
from opu_fuse.fuse.rules.spec_changes import NewModule
from opu_fuse.hw.spec.check_graph import RUNS
from opu_fuse.model.operator_sets import DYNAMIC_SCALES, NORM_OPERATORS
from opu_fuse.units import FORMS
from opu_fuse.units.base import ModuleKind

_UNLIKE = {
    "which has zero point": "factors",
    "zero point": "weights",
    "it is rounded": "rounded",
    "different scales": "rounded",
}
"""Words of a `float_reason` about quantisation no machine supports -> fact that gets the node."""
TWO_OPERANDS = frozenset({"add", "multiply"})
"""Operators whose second operand determines the kind of module that they need."""


def broken_rule(context: MatchContext, node: Node) -> Refusal | None:
    """The first broken operator rule, None if all hold."""
    return _refused_alone(context, node) or first_refusal((round_trip,), context, node)


def _refused_alone(context: MatchContext, node: Node) -> Refusal | None:
    """The first broken rule that looks at no other operator, None if all hold. Memoised by node."""
    refusal = context.operators.get(node.index, UNASKED)
    if refusal is UNASKED:
        form = context.forms[node.index]
        form_holds = form in context.held and first_refusal(_OF_ROUNDING, context, node) is None
        refusal = (
            None if form_holds else first_refusal(_RULES.get(node.op, COMMON_RULES), context, node)
        )
        context.operators[node.index] = refusal
        if refusal is None:
            context.held.add(form)
    return refusal


@functools.lru_cache(maxsize=4096)
def feature_size(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(channels, rows, columns) of a shape that the machine supports, None for other shapes.

    Supported are (1, c, h, w) and (1, n), which has n channels of one pixel.
    """
    if len(shape) == 4 and shape[0] == 1 and min(shape) > 0:
        return shape[1:]
    return (shape[1], 1, 1) if len(shape) == 2 and shape[0] == 1 and shape[1] > 0 else None


def known_shape(context: MatchContext, node: Node) -> Words | None:
    """{value} has a shape that is unknown after {culprit} ({kind})

    Change: declare the shape of {value} in the model (`value_info`)
    Change: export {culprit:own} in operators of the ONNX standard, with constant sizes
    """
    if not node.is_host or node.op.removeprefix("host:") not in FORMS or node.ir_node is None:
        return None
    unknown = _without_shape((*node.ir_node.inputs, *node.ir_node.outputs))
    if unknown is None or unknown.producer() is None:
        return None
    culprit = _first_without_shape(context.dfg, node)
    assert culprit.ir_node is not None, "its results have no shape"
    return {"value": unknown.name, "culprit": culprit.called, "kind": culprit.ir_node.op_type}


def _first_without_shape(dfg: Dfg, node: Node) -> Node:
    """The operator from which the unknown shape of a node comes: its operands have known shapes."""
    while True:
        producers = (dfg[dfg.producer(i)] for i in node.operands)
        unknown = (n for n in producers if n.ir_node and _without_shape(n.ir_node.outputs))
        if (found := next(unknown, None)) is None:
            return node
        node = found


def _without_shape(values: Iterable[ir.Value | None]) -> ir.Value | None:
    """The first value whose dimensions are not all numbers."""
    return next(
        (v for v in values if v is not None and (v.shape is None or not v.shape.is_static())), None
    )


def known_form(context: MatchContext, node: Node) -> Words | None:
    """{op}: machines run it only with {form}

    Change: give {node:own} that form
    """
    if not node.is_host:
        return None
    op = node.op.removeprefix("host:")
    form = FORMS.get(op)
    if op in NORM_OPERATORS and not context.modules.runners(NORM_OPERATORS[op]):
        form = None  # no form of it runs here
    return None if form is None else {"node": node.called, "op": op, "form": form}


def known_operator(context: MatchContext, node: Node) -> Words | None:
    """{op}: no module of this machine runs it

    Change: set `dataflow.operators.{key}` to {kinds}
    Change: add {new}
    Change: compile the float model (the scales of {dynamic} are chosen anew for each image)
    Change: replace {unsupported} by operators that the machine runs (it {why})
    Change: replace {unknown} by operators that the machine runs
    """
    if context.modules.runners(context.runs_as(node)):
        return None
    if node.op in TWO_OPERANDS and _is_hosts_alone(context, node):
        return {"op": node.title}
    key, can = node.op.removeprefix("host:"), RUNS.get(node.op)
    op = "+".join(node.attrs["functions"]) if key == "table" else key
    wanted = kind_for(context, node)
    if can is None or (wanted is None and op in TWO_OPERANDS):
        if op in DYNAMIC_SCALES:
            return {"op": op, "dynamic": op}
        why = HOST_REASONS.get(op)
        if why is None:
            return {"op": op, "unknown": op if node.is_host else node.called.own or None}
        return {"op": op, "unsupported": op, "why": why}
    can = can if wanted is None else (wanted,)
    present = {m.kind for m in context.modules.by_name.values()}
    kinds = [str(kind) for kind in can if kind in present]
    words: Words = {"op": op, "key": key}
    if kinds:
        return {**words, "kinds": f"[{', '.join(kinds)}]"}
    return {**words, "new": NewModule(kind=can[0], op=key)}


def _is_hosts_alone(context: MatchContext, node: Node) -> bool:
    """Whether the host computes all operands of an operator and is its only reader.

    A module for such an operator would gain nothing.
    """
    dfg = context.dfg
    sources = [dfg[i] for i in data_operands(dfg, node)]
    targets = [dfg[i] for i in context.readers(node.index)]
    return bool(sources) and all(n.is_host for n in (*sources, *targets))


def kind_for(context: MatchContext, node: Node) -> ModuleKind | None:
    """The kind of module that suits the operands of a sum or product.

    None when no kind does, and for other operators.
    """
    if node.op not in TWO_OPERANDS or len(node.operands) != 2:
        return None
    constants = [context.dfg[i].kind is Kind.CONST for i in node.operands]
    if not any(constants) and set(node.access) <= {Access.FULL, Access.PER_CHANNEL}:
        return ModuleKind.RES_ADDER if node.op == "add" else ModuleKind.SE
    operand = node.access[constants.index(True)] if constants.count(True) == 1 else None
    if operand is Access.FULL:  # a constant map is read as any other
        return ModuleKind.RES_ADDER if node.op == "add" else ModuleKind.SE
    if operand not in {Access.PER_TENSOR, Access.PER_CHANNEL}:
        return None
    return AFFINE_KINDS[node.op]


def integer_values(context: MatchContext, node: Node) -> Words | None:
    """{why}, so it remains in floating point

    Change: leave out --keep-float {asked:own}
    Change: round what {rounded:own} reads and writes to int8 in the model, with one scale
    Change: round the factors of {factors:own} in the model to int8 with zero point 0
    Change: round the weights of {weights:own} in the model to int8 with zero point 0
    Change: quantise {unquantised:own} in the model (QuantizeLinear, DequantizeLinear)
    Change: hand over the {float} model, which is then quantised throughout
    """
    dfg = context.dfg
    why = float_reason(dfg, node.index) if dfg.quantised else left_float(node)
    if why is None:
        return None
    if left_float(node) is not None:
        return {"why": why, "asked": node.called if is_asked(node) else None}
    if not dfg.prequantised:  # the compiler quantised the model, except what the host computes
        return {"why": why}
    how = next((fact for words, fact in _UNLIKE.items() if words in why), "unquantised")
    return {"why": why, "float": "float", how: node.called}


def held_numbers(context: MatchContext, node: Node) -> Words | None:
    """{what}

    Change: {help}
    """
    error = number_error(context.dfg, node.index, context.hw.numeric)
    if error is None:
        return None
    # No remedy for scales that the compiler chose: the user cannot change them.
    return {"what": error.what, "help": error.help if context.dfg.prequantised else None}


def feature_maps(context: MatchContext, node: Node) -> Words | None:
    """{name} has shape {shape}; the machine holds (1, c, h, w) and (1, n)

    Change: reshape {name:own} to one of these
    """
    nodes = context.dfg.nodes
    results = context.dfg.users[node.index] if node.op == "split" else (node.index,)
    for i in (*leaves(context.dfg, node), *results):
        value = nodes[i]
        if value.kind is not Kind.CONST and feature_size(value.shape) is None:
            return {"name": value.called, "shape": value.shape}
    return None


def computed_data(context: MatchContext, node: Node) -> Words | None:
    """{node} reads nothing but constants; the machine reads maps that are computed

    Change: make the result of {node:own} a constant of the model
    """
    return None if data_operands(context.dfg, node) else {"node": node.called}


def channel_concat(context: MatchContext, node: Node) -> Words | None:  # noqa: ARG001  one signature for all rules
    """{node} joins along axis {axis}; the machine joins channels (axis 1)

    Change: join along axis 1
    """
    return (
        {"node": node.name, "axis": node.attrs["axis"]}
        if node.op == "concat" and node.attrs["axis"] != 1
        else None
    )


def spatial_pad(context: MatchContext, node: Node) -> Words | None:  # noqa: ARG001  one signature for all rules
    """{node} pads channels; the machine pads rows and columns

    Change: let the layer before {node:own} have {count} more filters, of zeros
    """
    count = sum(node.attrs["channels"]) if node.op == "pad" else 0
    return {"node": node.called, "count": count} if count else None


def whole_words(context: MatchContext, node: Node) -> Words | None:
    """{node} multiplies two computed maps; machine {machine} has {lack} for it

    Change: add an array mode of {channels} input channels and one pixel to the spec
    Change: set `numeric.multiplier_bits` to 16
    """
    hw, words = context.hw, {"node": node.called, "machine": context.hw.name}
    if not hw.numeric.multiplier_bits:
        return {**words, "lack": "no multipliers that set unused channels to zero", "bits": 16}
    width, lanes = hw.buffers.weight.width, hw.word_channels
    fits = lanes == hw.word_bytes and hw.word_bytes % width == 0
    if fits and any(mode.ic == lanes and mode.px == 1 for mode in hw.array.modes):
        return None
    return {**words, "lack": "no array mode that reads whole words of a map", "channels": lanes}


def zero_lanes(context: MatchContext, node: Node) -> Words | None:
    """{node} sums {count} channels of {first}, {second}: unused lanes of both may not be zero

    Change: let a layer without activation compute {first:own} or {second:own}
    """
    if node.op != "matmul":
        return None
    first, second = (context.dfg[i] for i in node.operands)
    count = first.shape[1]
    width = context.hw.word_channels
    if count % width == 0 or any(ends_in_zeros(context.dfg, v.index) for v in (first, second)):
        return None
    return {"node": node.name, "count": count, "first": first.called, "second": second.called}


def round_trip(context: MatchContext, node: Node) -> Words | None:
    """{node} would only move values: the host computes all that it reads, and reads its result

    Change: let the machine run an operator before or after {node:own}
    """
    if not context.round_trips:
        found = round_trips(context, lambda n: _refused_alone(context, n) is not None)
        context.round_trips.append(found)
    return {"node": node.called} if node.index in context.round_trips[0] else None


_OF_ROUNDING = (integer_values, held_numbers, zero_lanes)
"""Rules about a node's own scales, constants and operands; verdicts of the others hold for its
form.
"""
COMMON_RULES = (
    known_shape,
    known_form,
    known_operator,
    feature_maps,
    *_OF_ROUNDING,
    computed_data,
)
"""Rules for every operator. A broken shape or form precedes quantisation, a fix of which alone
would not help.
"""
OF_ONE: Mapping[str, Rule] = {
    "concat": channel_concat,
    "pad": spatial_pad,
    **dict.fromkeys(("matmul", "transpose"), whole_words),
}
"""Rules about one operator name each."""

OPERATOR_RULES = (*COMMON_RULES, *dict.fromkeys(OF_ONE.values()), round_trip)
_RULES = {op: (*COMMON_RULES, rule) for op, rule in OF_ONE.items()}
