"""What all rules are asked about: one DFG on one machine, and who reads whom."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.fuse.modules import Modules, Position
from opu_fuse.fuse.partition import Misfits
from opu_fuse.fuse.refusal import Refusal
from opu_fuse.hw.spec import HwSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One DFG on one machine. outputs: indices of the model's outputs; misfits: what the scheduler
    said about groups that it forbids.

    Verdicts about single operators are asked for several times (by a strategy, for reasons, by the
    verifier) and never change: they are remembered per node, as are readers of widely read values.
    """

    dfg: Dfg
    hw: HwSpec
    modules: Modules
    outputs: frozenset[int]
    misfits: Misfits
    _readers: dict[int, tuple[int, ...]] = field(default_factory=dict, init=False)
    _leaves: dict[int, Mapping[int, int]] = field(default_factory=dict, init=False)
    operators: dict[int, Refusal | None] = field(default_factory=dict, init=False)
    """What `operator_rules.operator_refusal` remembers, by node."""
    placements: dict[tuple[int, str], Refusal | None] = field(default_factory=dict, init=False)
    """What `module_rules.module_refusal` remembers, by node and module."""
    ways: dict[tuple[Position, str, str], Refusal] = field(default_factory=dict, init=False)
    """What `ways.no_module` remembers, by position, operator and module."""

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


def scope_of(dfg: Dfg, hw: HwSpec, misfits: Misfits | None = None) -> Scope:
    """The scope in which all rules are asked."""
    outputs = frozenset(dfg.outputs)
    return Scope(dfg=dfg, hw=hw, modules=Modules(hw), outputs=outputs, misfits=misfits or {})


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
