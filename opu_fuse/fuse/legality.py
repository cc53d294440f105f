"""The rules of fusing, one named predicate each.

A predicate gets its facts and returns None when the rule holds, else the words for the gaps of its message. The first line of its
docstring *is* the message. Three tables, side by side: `OPERATOR_RULES` (can a machine hold this operator at all),
`MODULE_RULES` (can this module run it), `VIEW_RULES` and `EDGE_RULES` (may it join the group of this operand). Rules never read
scales: a float model and its quantised form are partitioned alike.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opu_fuse.dfg.graph import Access, Dfg, Kind, Node
from opu_fuse.dfg.interpret import slope_shift
from opu_fuse.dfg.islands import float_reason
from opu_fuse.fuse.modules import Modules
from opu_fuse.hw.spec import Access as OperandAccess
from opu_fuse.hw.spec import Fill, HwSpec, Module, ModuleKind
from opu_fuse.quant import Domain

Words = dict[str, object]


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
    """A rule's message with its gaps filled."""
    message = (rule.__doc__ or "").partition("\n")[0]
    return Refusal(rule=rule.__name__, text=message.format(**words))


def leaves(dfg: Dfg, node: Node) -> tuple[int, ...]:
    """Operands of a node in order, tuples replaced by their elements."""
    operands = node.operands
    if all(dfg[i].kind is not Kind.TUPLE for i in operands):
        return operands
    return tuple(j for i in operands for j in (dfg[i].operands if dfg[i].kind is Kind.TUPLE else (i,)))


def data_operands(dfg: Dfg, node: Node) -> tuple[int, ...]:
    """Operands that are computed at run time, in order."""
    return tuple(i for i in leaves(dfg, node) if dfg[i].kind is not Kind.CONST)


def feature_size(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(channels, rows, columns) of a shape the machine holds: (1, c, h, w) or (1, n); None for others."""
    if len(shape) not in {2, 4} or shape[0] != 1 or min(shape) < 1:
        return None
    return (shape[1], shape[2], shape[3]) if len(shape) == 4 else (shape[1], 1, 1)


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
    return {"node": node.name, "axis": node.attrs["axis"]} if node.op == "concat" and node.attrs["axis"] != 1 else None


def spatial_pad(scope: Scope, node: Node) -> Words | None:  # noqa: ARG001
    """{node} pads channels; the machine pads rows and columns"""
    return {"node": node.name} if node.op == "pad" and any(node.attrs["channels"]) else None


OPERATOR_RULES = (known_operator, integer_values, feature_maps, shift_slope, channel_concat, spatial_pad)


# Can this module run it? (scope, node, module name)


def domain(scope: Scope, node: Node, name: str) -> Words | None:
    """{node} works on {has}, module {module} on {takes}"""
    takes = scope.modules.by_name[name].domain_in
    has = Domain.ACC if node.owner is not None else Domain.ACT
    if has is takes:
        return None
    words = {Domain.ACC: "accumulators (only the bias that a convolution owns)", Domain.ACT: "int8 values"}
    return {"node": node.name, "module": name, "takes": words[takes], "has": words[has]}


def operand_access(scope: Scope, node: Node, name: str) -> Words | None:
    """module {module} reads its operand {wanted}, {node} has {operand} of shape {shape}"""
    wanted = scope.modules.by_name[name].operand
    if wanted is None:
        return None
    dfg = scope.dfg
    accesses = [Access.FULL, *[Access.FULL if wanted is OperandAccess.FULL else Access.PER_CHANNEL] * 1]
    if wanted is OperandAccess.FULL:
        wrong = [i for i, a in zip(node.operands, node.access, strict=True) if a is not Access.FULL]
    else:
        fitting = {Access.PER_TENSOR} if wanted is OperandAccess.PER_TENSOR else {Access.PER_TENSOR, Access.PER_CHANNEL}
        second = [(i, a) for i, a in zip(node.operands, node.access, strict=True) if dfg[i].kind is Kind.CONST]
        second = second or [(node.operands[1], node.access[1])]
        wrong = [i for i, a in second if a not in fitting]
    del accesses
    if not wrong:
        return None
    words = {OperandAccess.FULL: "as a full feature map", OperandAccess.PER_CHANNEL: "per channel",
             OperandAccess.PER_TENSOR: "as one value"}  # fmt: skip
    operand = dfg[wrong[0]]
    return {"module": name, "wanted": words[wanted], "node": node.name, "operand": operand.name, "shape": operand.shape}
