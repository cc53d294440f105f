"""Which operators would only take values from the host to the machine and back."""

from collections.abc import Callable

from opu_fuse.dfg.graph import Kind, Node
from opu_fuse.fuse.matching.context import MatchContext, data_operands
from opu_fuse.hw.spec.check_graph import RUNS
from opu_fuse.units.base import ModuleKind

_OF_MANY_VALUES = frozenset({ModuleKind.IPA, ModuleKind.POOL, ModuleKind.NORM})
_LIGHT = frozenset(op for op, kinds in RUNS.items() if not _OF_MANY_VALUES & {*kinds})
"""Operators with a few operations for each value, for which the host takes no longer than for
moving the values."""


def round_trips(context: MatchContext, on_host: Callable[[Node], bool]) -> frozenset[int]:
    """Light operators all of whose operands the host computes, directly or through other such
    operators, and whose results only the host reads in the same way. on_host: whether a rule about
    single operators refuses one.
    """
    dfg = context.dfg
    from_host = [False] * len(dfg.nodes)
    refused: set[int] = set()
    for node in dfg.nodes:
        if node.kind is Kind.VAR or node.kind is Kind.CONST:
            continue
        operands = data_operands(dfg, node) or node.operands
        if node.kind is Kind.CALL and not node.is_virtual and on_host(node):
            refused.add(node.index)
            from_host[node.index] = True
        elif _is_passed(node):
            from_host[node.index] = all(from_host[i] for i in operands)
    if not refused:
        return frozenset()
    to_host, outputs = [False] * len(dfg.nodes), {*dfg.outputs}
    for node in reversed(dfg.nodes):  # readers come first
        read = node.index not in outputs and all(to_host[user] for user in dfg.users[node.index])
        to_host[node.index] = node.index in refused or (from_host[node.index] and read)
    found = (n for n in dfg.calls if to_host[n.index] and not n.is_virtual)
    return frozenset(n.index for n in found if n.index not in refused)


def _is_passed(node: Node) -> bool:
    """Whether a node is a light operator, a view, or one of the results of either."""
    light = node.op in _LIGHT or "choice" in node.attrs
    return node.kind is not Kind.CALL or light or node.is_virtual
