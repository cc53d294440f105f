"""The rules of fusing, one named predicate each.

A predicate gets its facts and returns None when the rule holds, else the words for the gaps of its
message. Its docstring *is* the message, and the changes that would help (`refusal.py`). The tables: `OPERATOR_RULES` (can a
machine hold this operator at all), `VIEW_RULES` and `EDGE_RULES` (may it join the group of this
operand), `GROUP_RULES` (what the group's place in the pipeline forbids), and in `module_rules.py`
`MODULE_RULES` (can this module run it). Rules never read scales: a float model and its quantised
form are partitioned alike.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.interpret import slope_shift
from opu_fuse.dfg.islands import float_reason
from opu_fuse.fuse.forms import FORMS
from opu_fuse.fuse.modules import Modules, Position
from opu_fuse.fuse.refusal import Refusal, Rule, Words, refuse
from opu_fuse.hw.check_graph import RUNS
from opu_fuse.hw.spec import HwSpec

MOST_NAMES = 3
"""Names written out in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One DFG on one machine. outputs: indices of the model's outputs.

    Verdicts about single operators are asked for several times (by a strategy, for reasons, by the
    verifier) and never change: they are remembered per node, as are readers of widely read values.
    """

    dfg: Dfg
    hw: HwSpec
    modules: Modules
    outputs: frozenset[int]
    _operators: dict[int, Refusal | None] = field(default_factory=dict, init=False)
    _readers: dict[int, tuple[int, ...]] = field(default_factory=dict, init=False)
    _leaves: dict[int, Mapping[int, int]] = field(default_factory=dict, init=False)
    placements: dict[tuple[int, str], Refusal | None] = field(default_factory=dict, init=False)
    """What `module_rules.module_refusal` remembers, by node and module."""
    ways: dict[tuple[Position, str, str], Refusal] = field(default_factory=dict, init=False)
    """What `ways.no_module` remembers, by position, operator and module."""

    def operator_refusal(self, node: Node) -> Refusal | None:
        """The first of the operator rules that does not hold."""
        try:
            return self._operators[node.index]
        except KeyError:
            found = self._operators[node.index] = first_refusal(OPERATOR_RULES, self, node)
            return found

    def leaf_counts(self, node: Node) -> Mapping[int, int]:
        """How often a node reads each of its `leaves`."""
        found = self._leaves.get(node.index)
        if found is None:
            found = self._leaves[node.index] = Counter(leaves(self.dfg, node))
        return found

    def readers(self, index: int) -> tuple[int, ...]:
        """`readers` of a node."""
        users = self.dfg.users[index]
        if len(users) == 1 and self.dfg.nodes[users[0]].kind is Kind.CALL:
            return users
        found = self._readers.get(index)
        if found is None:
            found = self._readers[index] = readers(self.dfg, index)
        return found


def scope_of(dfg: Dfg, hw: HwSpec) -> Scope:
    """The scope in which all rules are asked."""
    return Scope(dfg=dfg, hw=hw, modules=Modules(hw), outputs=frozenset(dfg.outputs))


def first_refusal(rules: Iterable[Rule], *facts: object) -> Refusal | None:
    """The first rule that does not hold, worded."""
    for rule in rules:
        words = rule(*facts)
        if words is not None:
            return refuse(rule, words)
    return None


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


def known_form(scope: Scope, node: Node) -> Words | None:  # noqa: ARG001
    """{node}: machines run {op} only with {form}

    Change: give {node} that form
    """
    op = node.op.removeprefix("host:")
    form = FORMS.get(op) if node.is_host else None
    return None if form is None else {"node": node.name, "op": op, "form": form}


def known_operator(scope: Scope, node: Node) -> Words | None:
    """{op}: no module of this machine runs it

    Change: set `dataflow.operators.{op}` to {kinds}
    Change: add a module of kind {missing} to `dataflow.modules` and map {op} to it in
    `dataflow.operators`
    Change: replace {foreign} by operators that the machine runs
    """
    if scope.modules.runners(node.op):
        return None
    op, can = node.op.removeprefix("host:"), RUNS.get(node.op)
    if can is None:
        return {"op": op, "foreign": op}
    present = {m.kind for m in scope.modules.by_name.values()}
    kinds = [str(kind) for kind in can if kind in present]
    return {"op": op, "kinds": f"[{', '.join(kinds)}]"} if kinds else {"op": op, "missing": can[0]}


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
    for i in (*data_operands(scope.dfg, node), node.index):
        if feature_size(scope.dfg[i].shape) is None:
            return {"name": scope.dfg[i].name, "shape": scope.dfg[i].shape}
    return None


def shift_slope(scope: Scope, node: Node) -> Words | None:  # noqa: ARG001
    """{node} has slope {alpha}; the comparator takes 2^-k with k from 0 to 15

    Change: give {node} slope {near}
    """
    if node.op != "leaky_relu" or slope_shift(node.attrs["alpha"]) is not None:
        return None
    alpha = node.attrs["alpha"]
    k = min(max(round(-math.log2(alpha)), 0), 15) if alpha > 0 else None
    words = {"node": node.name, "alpha": round(alpha, 6)}
    return words if k is None else {**words, "near": f"{2.0**-k:g} (2^-{k})"}


def channel_concat(scope: Scope, node: Node) -> Words | None:  # noqa: ARG001
    """{node} joins along axis {axis}; the machine joins channels (axis 1)

    Change: join along axis 1
    """
    return (
        {"node": node.name, "axis": node.attrs["axis"]}
        if node.op == "concat" and node.attrs["axis"] != 1
        else None
    )


def spatial_pad(scope: Scope, node: Node) -> Words | None:  # noqa: ARG001
    """{node} pads channels; the machine pads rows and columns

    Change: let the layer before {node} have {count} more filters, of zeros
    """
    count = sum(node.attrs["channels"]) if node.op == "pad" else 0
    return {"node": node.name, "count": count} if count else None


OPERATOR_RULES = (
    known_form,
    known_operator,
    integer_values,
    feature_maps,
    shift_slope,
    channel_concat,
    spatial_pad,
)


# May this view (reshape) join the group that computed the bytes of `base`? (scope, base, view)


def view_readers(scope: Scope, base: Node, view: Node) -> Words | None:
    """{reader} cannot read {view} as {shape}: its values lie in memory as {size}

    Change: keep channels, rows and columns in {view}
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
    """{source} is also read by {readers}, so its value is needed in memory

    Change: compute {source} once for each of its readers
    """
    reading = scope.readers(source.index)
    others = [u for u in reading[:4] if u != node.index]
    if not others:
        return None
    at = bisect_left(reading, node.index)
    count = len(reading) - (reading[at : at + 1] == (node.index,))
    names = [scope.dfg[u].name for u in others]
    return {"source": source.name, "readers": listed(names, count)}


def not_an_output(scope: Scope, source: Node, node: Node) -> Words | None:  # noqa: ARG001
    """{source} is an output of the model, so its value is needed in memory

    Change: take {source} out of the model's outputs
    """
    return {"source": source.name} if source.index in scope.outputs else None


VIEW_RULES = (view_readers,)
EDGE_RULES = (single_reader, not_an_output)


# What the group's place in the pipeline forbids; the growing group knows the facts. (words)


def other_operand(words: Words) -> Words | None:
    """{node} also reads {other}, which is computed inside the same group

    Change: let {node} read a second {other}, computed for it alone
    """
    return words


def one_fill(words: Words) -> Words | None:
    """{node} pads with zero, {pad} before it with {value}; one pass has one fill value

    Change: let {pad} fill with zero
    """
    return words


def used_once(words: Words) -> Words | None:
    """{module} is already used in this group (uses per pass: {limit})

    Change: raise `dataflow.modules.{module}.uses` to {more}
    Change: add a second module of kind {kind} behind {at} to `dataflow.modules` and
    `dataflow.edges`
    """
    return words


def pipeline_path(words: Words) -> Words | None:
    """{op} cannot follow {tail} in this machine's pipeline

    Change: set `dataflow.modules.{blocked}.bypass` to true
    Change: set `dataflow.edges.{at}` to {edges}
    Change: add a second module of kind {kind} behind {at} to `dataflow.modules` and
    `dataflow.edges`
    """
    return words


def group_exit(words: Words) -> Words | None:
    """{module} is no exit, a group cannot end there

    Change: set `dataflow.modules.{module}.exit` to true
    """
    return words


def forbidden(words: Words) -> Words | None:
    """{nodes} together do not fit the machine: {what}

    Change: {help}
    """
    return words


def no_group(words: Words) -> Words | None:
    """{node} is a view of {source}, which no group computes

    Change: let {node} follow an operator that a module runs
    """
    return words


GROUP_RULES = (other_operand, one_fill, used_once, pipeline_path, group_exit, forbidden, no_group)


def listed(names: Sequence[str], count: int | None = None) -> str:
    """Names for a message, the first few of `count`."""
    count = len(names) if count is None else count
    shown = ", ".join(names[:MOST_NAMES])
    return shown if count <= MOST_NAMES else f"{shown} and {count - MOST_NAMES} more"
