"""Groups while all ways of forming them are kept open.

`growth.place` takes the nearest module; here every module that fits is followed, and whether a
group may end is asked only when it does. So a chain of operators is open exactly when some
assignment of modules satisfies the verifier.
"""

from collections import Counter

from msgspec import Struct

from opu_fuse.cost.groups import NOTHING, Cost
from opu_fuse.dfg.graph import Node
from opu_fuse.dfg.integer import ACCUMULATING, owned_bias
from opu_fuse.fuse.growth import (
    Forbid,
    Growth,
    edge_refusal,
    fill_clash,
    working,
)
from opu_fuse.fuse.legality import VIEW_RULES
from opu_fuse.fuse.module_rules import fits
from opu_fuse.fuse.partition import Match
from opu_fuse.fuse.refusal import first_refusal
from opu_fuse.fuse.scope import Scope, leaves


class Chain(Struct, frozen=True, kw_only=True):
    """Operators that can run in one pass. growths: the same operators, one per assignment of
    modules; hanging: what everything that ends in this chain without being part of it costs.
    """

    growths: tuple[Growth, ...]
    hanging: Cost = NOTHING

    @property
    def members(self) -> list[int]:
        return [m.node for m in self.growths[0].matches]

    def ending(self, scope: Scope, forbid: Forbid) -> tuple[Match, ...] | None:
        """The first assignment with which the group may end here; None when there is none."""
        if forbid and working(self.growths[0].matches) in forbid:
            return None
        for growth in self.growths:
            if growth.module is not None and scope.modules.can_end(growth.module):
                return tuple(growth.matches)
        return None


def tail_of(scope: Scope, node: Node) -> int:
    """The node whose value stands for an operator: the bias it owns, else itself."""
    bias = owned_bias(scope.dfg, node.index) if node.op in ACCUMULATING else None
    return node.index if bias is None else bias.index


def continued(scope: Scope, node: Node) -> tuple[int, ...]:
    """Operands a node may take out of the pipeline: computed values that only it reads, once."""
    counts = Counter(leaves(scope.dfg, node))
    return tuple(
        i
        for i, count in counts.items()
        if count == 1 and edge_refusal(scope, scope.dfg[i], node) is None
    )


def opened(scope: Scope, node: Node) -> Chain | None:
    """A new group with this operator; None when no module at the start of the pipeline runs it."""
    return _chain(_placements(scope, Growth(scope.modules.start), node), NOTHING)


def extended(scope: Scope, chain: Chain, node: Node) -> Chain | None:
    """The chain with one more operator, which reads its tail; None when no assignment allows it."""
    tail = scope.dfg[chain.growths[0].tail]
    if fill_clash(tail, node) is not None:
        return None
    growths: list[Growth] = []
    for growth in chain.growths:
        if not node.is_virtual:
            growths += _placements(scope, growth, node)
        elif first_refusal(VIEW_RULES, scope, scope.dfg[growth.base], node) is None:
            growths.append(_with(growth, Match(node=node.index, module=None)))
    return _chain(growths, chain.hanging)


def _chain(growths: list[Growth], hanging: Cost) -> Chain | None:
    distinct = {id(g.position): g for g in reversed(growths)}
    ordered = tuple(reversed(distinct.values()))  # of equal states the first stays: nearest modules
    return Chain(growths=ordered, hanging=hanging) if growths else None


def _placements(scope: Scope, growth: Growth, node: Node) -> list[Growth]:
    """The growth with an operator (and the bias it owns) behind it, once per choice of modules."""
    nodes = [node]
    if node.op in ACCUMULATING:
        bias = owned_bias(scope.dfg, node.index)
        nodes += [] if bias is None else [bias]
    found = [growth]
    for placed in nodes:
        found = [
            _with(one, Match(node=placed.index, module=module))
            for one in found
            for module in one.position.candidates(scope.runs_as(placed))
            if fits(scope, placed, module)
        ]
    return found


def _with(growth: Growth, match: Match) -> Growth:
    """A copy with one more operator: growths of open chains are shared."""
    copy = Growth(
        position=growth.position,
        matches=list(growth.matches),
        base=growth.base,
    )
    copy.take(match)
    return copy
