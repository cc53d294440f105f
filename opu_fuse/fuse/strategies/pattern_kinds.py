"""Pattern kinds, and the graph that TVM's FuseOps reads.

A pattern kind says how an operator's result elements depend on its operands' elements; an edge has
one too. FuseOps decides by these and the graph's structure only, independently of the machine.
"""

from collections.abc import Sequence

from msgspec import Struct

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.model.operator_record import Pattern
from opu_fuse.model.operators import OPERATORS
from opu_fuse.units import UNITS

Edge = tuple[int, Pattern]
"""(user, pattern of the edge)."""


class FusionGraph(Struct, frozen=True, kw_only=True):
    """Nodes in post-DFS order (operands before users), named by position.

    patterns: one per node.
    users: the edges that leave a node, one per use, in traversal order.
    extern: nodes whose value is needed outside (results and inputs of the function).
    operands: what a node reads, each once.
    parameter: whether a node's value is passed to a function that reads it (scalar constants are
    inlined into its body).
    """

    patterns: Sequence[Pattern]
    users: Sequence[Sequence[Edge]]
    extern: Sequence[bool]
    operands: Sequence[Sequence[int]]
    parameter: Sequence[bool]


PATTERNS: dict[str, Pattern] = {
    op: unit.pattern for unit in UNITS for ops in unit.runs.values() for op in ops
} | dict.fromkeys(("reshape", "shuffle", "permute"), Pattern.INJECTIVE)
"""Pattern by DFG operator. (Reshape runs on no module; the array only moves data for a shuffle.)"""


def pattern_of(node: Node) -> Pattern:
    """A node's kind: inputs and tensors are opaque (never fused), a scalar constant is
    element-wise.
    """
    if node.kind is Kind.CALL:
        if node.is_host:
            operator = OPERATORS.get(node.op.removeprefix("host:"))
            return Pattern.OPAQUE if operator is None else operator.pattern
        return PATTERNS.get(node.op, Pattern.OPAQUE)
    if node.kind is Kind.TUPLE:
        return Pattern.TUPLE
    if node.kind is Kind.TUPLE_GET:
        return Pattern.INJECTIVE
    scalar = node.kind is Kind.CONST and node.shape == ()
    return Pattern.ELEM_WISE if scalar else Pattern.OPAQUE


def fusion_graph(dfg: Dfg) -> FusionGraph:
    """The graph of all nodes of a DFG.

    Broadcast edges whose operand has the result's shape are element-wise; fields of a tuple and
    parts of a result are injective edges.
    """
    patterns = [pattern_of(node) for node in dfg.nodes]
    users: list[list[Edge]] = [[] for _ in dfg.nodes]
    extern = [False] * len(dfg.nodes)
    for index in (*dfg.inputs, *dfg.outputs):
        extern[index] = True
    for node, pattern in zip(dfg.nodes, patterns, strict=True):
        edge = Pattern.INJECTIVE if node.kind is not Kind.CALL else pattern
        for operand in node.operands:
            same = edge is Pattern.BROADCAST and dfg.nodes[operand].shape == node.shape
            users[operand].append((node.index, Pattern.ELEM_WISE if same else edge))
    return FusionGraph(
        patterns=patterns,
        users=users,
        extern=extern,
        operands=[tuple(dict.fromkeys(node.operands)) for node in dfg.nodes],
        parameter=[not (n.kind is Kind.CONST and n.shape == ()) for n in dfg.nodes],
    )
