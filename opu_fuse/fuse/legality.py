"""The rules of fusing, one named predicate each.

A predicate gets its facts and returns None when the rule holds, else the words for the gaps of its
message. The first line of its docstring *is* the message. The tables, side by side:
`OPERATOR_RULES` (can a machine hold this operator at all), `MODULE_RULES` (can this module run it),
`VIEW_RULES` and `EDGE_RULES` (may it join the group of this operand), `GROUP_RULES` (what the
group's place in the pipeline forbids). Rules never read scales: a float model and its quantised
form are partitioned alike.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from opu_fuse.dfg.graph import Access, Dfg, Kind, Node
from opu_fuse.dfg.interpret import slope_shift
from opu_fuse.dfg.islands import float_reason
from opu_fuse.fuse.modules import Modules
from opu_fuse.hw.spec import Access as OperandAccess
from opu_fuse.hw.spec import Fill, HwSpec, Module, ModuleKind
from opu_fuse.quant import Domain

Words = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A rule that does not hold: its name, and one sentence."""

    rule: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One DFG on one machine. outputs: indices of the model's outputs."""

    dfg: Dfg
    modules: Modules
    outputs: frozenset[int]


def scope_of(dfg: Dfg, hw: HwSpec) -> Scope:
    """The scope in which all rules are asked."""
    return Scope(dfg=dfg, modules=Modules(hw), outputs=frozenset(dfg.outputs))


def first_refusal(rules: Iterable[Callable[..., Words | None]], *facts: object) -> Refusal | None:
    """The first rule that does not hold, worded."""
    for rule in rules:
        words = rule(*facts)
        if words is not None:
            return refuse(rule, words)
    return None


def refuse(rule: Callable[..., Words | None], words: Words) -> Refusal:
    """A rule's message with its gaps filled (the first line of the rule's docstring)."""
    message = (rule.__doc__ or "").partition("\n")[0]
    return Refusal(rule=rule.__name__, text=message.format(**words))


def leaves(dfg: Dfg, node: Node) -> tuple[int, ...]:
    """Operands of a node in order, tuples (of a concat) replaced by their elements."""
    if node.op != "concat":
        return node.operands
    return tuple(j for i in node.operands for j in dfg.nodes[i].operands)


def data_operands(dfg: Dfg, node: Node) -> tuple[int, ...]:
    """Operands that are computed at run time, in order."""
    nodes = dfg.nodes
    return tuple([i for i in leaves(dfg, node) if nodes[i].kind is not Kind.CONST])


def readers(dfg: Dfg, index: int) -> tuple[int, ...]:
    """Calls and tuple_gets that read a node, tuples looked through; ascending, each once."""
    users, nodes = dfg.users[index], dfg.nodes
    for user in users:
        if nodes[user].kind is Kind.TUPLE:
            return tuple(sorted({r for u in users for r in _through_tuple(dfg, u)}))
    return users


def _through_tuple(dfg: Dfg, user: int) -> tuple[int, ...]:
    return dfg.users[user] if dfg[user].kind is Kind.TUPLE else (user,)


def feature_size(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(channels, rows, columns) of a shape the machine holds: (1, c, h, w) or (1, n); None for
    others.
    """
    if len(shape) == 4 and shape[0] == 1 and min(shape) > 0:
        return shape[1:]
    return (shape[1], 1, 1) if len(shape) == 2 and shape[0] == 1 and shape[1] > 0 else None


# Can a machine hold this operator at all? (scope, node)


def known_operator(scope: Scope, node: Node) -> Words | None:
    """{op}: no module of this machine runs it"""
    known = bool(scope.modules.runners(node.op))
    return None if known else {"op": node.op.removeprefix("host:")}


def integer_values(scope: Scope, node: Node) -> Words | None:
    """{why}, so it stays in floating point"""
    why = float_reason(scope.dfg, node.index) if scope.dfg.quantised else None
    return None if why is None else {"why": why}


def feature_maps(scope: Scope, node: Node) -> Words | None:
    """{name} has shape {shape}; the machine holds (1, c, h, w) and (1, n)"""
    for i in (*data_operands(scope.dfg, node), node.index):
        if feature_size(scope.dfg[i].shape) is None:
            return {"name": scope.dfg[i].name, "shape": scope.dfg[i].shape}
    return None


def shift_slope(scope: Scope, node: Node) -> Words | None:  # noqa: ARG001
    """{node} has slope {alpha}; the comparator takes 2^-k with k from 0 to 15"""
    if node.op != "leaky_relu" or slope_shift(node.attrs["alpha"]) is not None:
        return None
    return {"node": node.name, "alpha": round(node.attrs["alpha"], 6)}


def channel_concat(scope: Scope, node: Node) -> Words | None:  # noqa: ARG001
    """{node} joins along axis {axis}; the machine joins channels (axis 1)"""
    return (
        {"node": node.name, "axis": node.attrs["axis"]}
        if node.op == "concat" and node.attrs["axis"] != 1
        else None
    )


def spatial_pad(scope: Scope, node: Node) -> Words | None:  # noqa: ARG001
    """{node} pads channels; the machine pads rows and columns"""
    return {"node": node.name} if node.op == "pad" and any(node.attrs["channels"]) else None


OPERATOR_RULES = (
    known_operator,
    integer_values,
    feature_maps,
    shift_slope,
    channel_concat,
    spatial_pad,
)


# Can this module run it? (scope, node, module name)


def domain(scope: Scope, node: Node, name: str) -> Words | None:
    """{node} works on {has}, {module} on {takes}"""
    takes = scope.modules.by_name[name].domain_in
    has = Domain.ACC if node.owner is not None else Domain.ACT
    if has is takes:
        return None
    words = {
        Domain.ACC: "accumulators (only the bias that a convolution owns)",
        Domain.ACT: "int8 values",
    }
    return {"node": node.name, "module": name, "takes": words[takes], "has": words[has]}


def operand_access(scope: Scope, node: Node, name: str) -> Words | None:
    """{module} reads its operand {wanted}; {node} has {operand} of shape {shape}"""
    wanted = scope.modules.by_name[name].operand or OperandAccess.FULL
    second = _second_operand(scope.dfg, node)
    wrong = [
        operand
        for i, (operand, access) in enumerate(zip(node.operands, node.access, strict=True))
        if access not in (_FITTING[wanted] if i == second else {Access.FULL})
    ]
    if not wrong:
        return None
    operand = scope.dfg[wrong[0]]
    words = {"module": name, "wanted": _WORDING[wanted], "node": node.name}
    return {**words, "operand": operand.name, "shape": operand.shape}


def constant_operand(scope: Scope, node: Node, name: str) -> Words | None:
    """{module} takes a constant operand; {operand} is computed at run time"""
    if scope.modules.by_name[name].operand is OperandAccess.FULL:
        return None
    operand = scope.dfg[node.operands[_second_operand(scope.dfg, node)]]
    return None if operand.kind is Kind.CONST else {"module": name, "operand": operand.name}


def computed_operand(scope: Scope, node: Node, name: str) -> Words | None:
    """{module} takes computed feature maps; {operand} is a constant"""
    if scope.modules.by_name[name].operand is not OperandAccess.FULL:
        return None
    constants = [scope.dfg[i].name for i in node.operands if scope.dfg[i].kind is Kind.CONST]
    return {"module": name, "operand": constants[0]} if constants else None


def limits(scope: Scope, node: Node, name: str) -> Words | None:
    """{node} has {axis} {value}; {module} takes at most {limit}"""
    module = scope.modules.by_name[name]
    for axis, value, limit in _measures(node, module):
        if limit is not None and value > limit:
            return {"node": node.name, "axis": axis, "value": value, "module": name, "limit": limit}
    return None


def symmetric_padding(scope: Scope, node: Node, name: str) -> Words | None:
    """{node} pads its sides by {pads}; {module} pads opposite sides alike"""
    pads = node.attrs.get("pads", (0, 0, 0, 0))
    if scope.modules.by_name[name].limits.asymmetric or pads[:2] == pads[2:]:
        return None
    return {"node": node.name, "pads": pads, "module": name}


def fill_value(scope: Scope, node: Node, name: str) -> Words | None:
    """{node} fills with {value}; {module} fills with zero"""
    value = node.attrs.get("value", 0.0) if node.op == "pad" else 0.0
    if value == 0.0 or scope.modules.by_name[name].limits.fill is Fill.ANY:
        return None
    return {"node": node.name, "value": value, "module": name}


DOMAIN_RULES = (domain,)
OPERAND_RULES = (operand_access, constant_operand, computed_operand)
"""Of modules with an operand."""
LIMIT_RULES = (limits, symmetric_padding, fill_value)
"""Of operators with attributes."""
MODULE_RULES = (*DOMAIN_RULES, *OPERAND_RULES, *LIMIT_RULES)


def module_refusal(scope: Scope, node: Node, name: str) -> Refusal | None:
    """The first of the module rules that does not hold; rules that cannot apply are not asked."""
    rules = DOMAIN_RULES
    if scope.modules.by_name[name].operand is not None:
        rules += OPERAND_RULES
    if node.attrs:
        rules += LIMIT_RULES
    return first_refusal(rules, scope, node, name)


_FITTING[wanted] if i == second else {Access.FULL})
    ]
    if not wrong:
        return None
    operand = scope.dfg[wrong[0]]
    words = {"module": name, "wanted": _WORDING[wanted], "node": node.name}
    return {**words, "operand": operand.name, "shape": operand.shape}


def constant_operand(scope: Scope, node: Node, name: str) -> Words | None:
    """{module} takes a constant operand; {operand} is computed at run time"""
    if scope.modules.by_name[name].operand is OperandAccess.FULL:
        return None
    operand = scope.dfg[node.operands[_second_operand(scope.dfg, node)]]
    return None if operand.kind is Kind.CONST else {"module": name, "operand": operand.name}


def computed_operand(scope: Scope, node: Node, name: str) -> Words | None:
    """{module} takes computed feature maps; {operand} is a constant"""
    if scope.modules.by_name[name].operand is not OperandAccess.FULL:
        return None
    constants = [scope.dfg[i].name for i in node.operands if scope.dfg[i].kind is Kind.CONST]
    return {"module": name, "operand": constants[0]} if constants else None


def limits(scope: Scope, node: Node, name: str) -> Words | None:
    """{node} has {axis} {value}; {module} takes at most {limit}"""
    module = scope.modules.by_name[name]
    for axis, value, limit in _measures(node, module):
        if limit is not None and value > limit:
            return {"node": node.name, "axis": axis, "value": value, "module": name, "limit": limit}
    return None


def symmetric_padding(scope: Scope, node: Node, name: str) -> Words | None:
    """{node} pads its sides by {pads}; {module} pads opposite sides alike"""
    pads = node.attrs.get("pads", (0, 0, 0, 0))
    if scope.modules.by_name[name].limits.asymmetric or pads[:2] == pads[2:]:
        return None
    return {"node": node.name, "pads": pads, "module": name}


def fill_value(scope: Scope, node: Node, name: str) -> Words | None:
    """{node} fills with {value}; {module} fills with zero"""
    value = node.attrs.get("value", 0.0) if node.op == "pad" else 0.0
    if value == 0.0 or scope.modules.by_name[name].limits.fill is Fill.ANY:
        return None
    return {"node": node.name, "value": value, "module": name}


MODULE_RULES = (
    domain,
    operand_access,
    constant_operand,
    computed_operand,
    limits,
    symmetric_padding,
    fill_value,
)

_FITTING = {
    OperandAccess.PER_TENSOR: {Access.PER_TENSOR},
    OperandAccess.PER_CHANNEL: {Access.PER_TENSOR, Access.PER_CHANNEL},
    OperandAccess.FULL: {Access.FULL},
}
_WORDING = {
    OperandAccess.PER_TENSOR: "as one value",
    OperandAccess.PER_CHANNEL: "per channel",
    OperandAccess.FULL: "as a full feature map",
}


def _second_operand(dfg: Dfg, node: Node) -> int:
    """Position of the operand that does not come along the pipeline: the constant one, else the
    second.
    """
    constants = [i for i, operand in enumerate(node.operands) if dfg[operand].kind is Kind.CONST]
    return constants[0] if len(constants) == 1 else 1


def _measures(node: Node, module: Module) -> list[tuple[str, int, int | None]]:
    """(axis, value, limit) of everything about the operator that a module can limit."""
    limit, attrs = module.limits, node.attrs
    kernel = (
        ("window", limit.window) if module.kind is ModuleKind.POOL else ("kernel", limit.kernel)
    )
    measures = [
        (kernel[0], attrs.get("kernel"), kernel[1]),
        ("stride", attrs.get("strides"), limit.stride),
        ("dilation", attrs.get("dilations"), limit.dilation),
        ("padding", attrs.get("pads"), limit.padding),
    ]
    return [(axis, max(values), bound) for axis, values, bound in measures if values]


# May this view (reshape) join the group that computed the bytes of `base`? (scope, base, view)


def view_readers(scope: Scope, base: Node, view: Node) -> Words | None:
    """{reader} reads {view} as {shape}, but the values lie in memory as {size}: only a dense layer
    takes that order
    """
    size = feature_size(base.shape)
    if size is not None and feature_size(view.shape) == size:
        return None
    for user in readers(scope.dfg, view.index):
        reader = scope.dfg[user]
        if reader.op not in {"dense", "reshape"} and scope.modules.runners(reader.op):
            return {"reader": reader.name, "view": view.name, "shape": view.shape, "size": size}
    return None


# May this node join the group of this operand? (scope, source, node)


def single_reader(scope: Scope, source: Node, node: Node) -> Words | None:
    """{source} is also read by {readers}, so its value is needed in memory"""
    reading = readers(scope.dfg, source.index)
    if reading == (node.index,):
        return None
    others = [scope.dfg[u].name for u in reading if u != node.index]
    return {"source": source.name, "readers": listed(others)} if others else None


def not_an_output(scope: Scope, source: Node, node: Node) -> Words | None:  # noqa: ARG001
    """{source} is an output of the model, so its value is needed in memory"""
    return {"source": source.name} if source.index in scope.outputs else None


VIEW_RULES = (view_readers,)
EDGE_RULES = (single_reader, not_an_output)


# What the group's place in the pipeline forbids; the growing group knows the facts. (words)


def other_operand(words: Words) -> Words | None:
    """{node} also reads {other}, which is computed inside the same group"""
    return words


def used_once(words: Words) -> Words | None:
    """{module} is already used in this group"""
    return words


def pipeline_path(words: Words) -> Words | None:
    """{op} cannot follow {tail} in this machine's pipeline"""
    return words


def group_exit(words: Words) -> Words | None:
    """{module} is no exit, a group cannot end there"""
    return words


def forbidden(words: Words) -> Words | None:
    """{nodes} together do not fit the machine"""
    return words


def no_group(words: Words) -> Words | None:
    """{node} is a view of {source}, which no group computes"""
    return words


GROUP_RULES = (other_operand, used_once, pipeline_path, group_exit, forbidden, no_group)


def listed(names: Sequence[str], most: int = 3) -> str:
    """Names for a message, the first few of them."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
