"""Enumerates all partial groups of a chain of operators, one per assignment of modules.

`partial_group.match_next` takes the nearest module. This search follows every module that fits, and
checks whether a group may end only when it ends. A chain is therefore extensible exactly when some
assignment of modules satisfies the verifier.
"""

from collections import Counter

from msgspec import Struct

from opu_fuse.dfg.graph import Node
from opu_fuse.dfg.integer import ACCUMULATING, owned_bias
from opu_fuse.fuse.matching.context import MatchContext, leaves
from opu_fuse.fuse.matching.partial_group import (
    Forbid,
    PartialGroup,
    edge_refusal,
    fill_clash,
    working,
)
from opu_fuse.fuse.partition import Match
from opu_fuse.fuse.rules.legality import VIEW_RULES
from opu_fuse.fuse.rules.module_rules import fits
from opu_fuse.fuse.rules.refusal import first_refusal
from opu_fuse.timing.group_cost import NOTHING, Cost


class Chain(Struct, frozen=True, kw_only=True):
    """Operators that can run in one pass.

    partials: partial groups of these operators, one per assignment of modules; hanging: cost of the
    subtrees that feed the chain without being part of it.
    """

    partials: tuple[PartialGroup, ...]
    hanging: Cost = NOTHING

    @property
    def members(self) -> list[int]:
        return [m.node for m in self.partials[0].matches]

    def ending(self, context: MatchContext, forbid: Forbid) -> tuple[Match, ...] | None:
        """The first assignment whose last module can end the group; None when there is none."""
        if forbid and working(self.partials[0].matches) in forbid:
            return None
        for partial in self.partials:
            if partial.module is not None and context.modules.can_end(partial.module):
                return tuple(partial.matches)
        return None


def tail_of(context: MatchContext, node: Node) -> int:
    """The node that holds an operator's result: the bias it owns, else the node itself."""
    bias = owned_bias(context.dfg, node.index) if node.op in ACCUMULATING else None
    return node.index if bias is None else bias.index


def continued(context: MatchContext, node: Node) -> tuple[int, ...]:
    """Operands that a node may read from the pipeline: values that it alone reads, and once."""
    counts = Counter(leaves(context.dfg, node))
    return tuple(
        i
        for i, count in counts.items()
        if count == 1 and edge_refusal(context, context.dfg[i], node) is None
    )


def opened(context: MatchContext, node: Node) -> Chain | None:
    """A new group with this operator; None when no module at the start of the pipeline runs it."""
    return _chain(_placements(context, PartialGroup(context.modules.start), node), NOTHING)


def extended(context: MatchContext, chain: Chain, node: Node) -> Chain | None:
    """The chain with one more operator, which reads its tail; None when no assignment allows it."""
    tail = context.dfg[chain.partials[0].tail]
    if fill_clash(tail, node) is not None:
        return None
    partials: list[PartialGroup] = []
    for partial in chain.partials:
        if not node.is_virtual:
            partials += _placements(context, partial, node)
        elif first_refusal(VIEW_RULES, context, context.dfg[partial.base], node) is None:
            partials.append(_with(partial, Match(node=node.index, module=None)))
    return _chain(partials, chain.hanging)


def _chain(partials: list[PartialGroup], hanging: Cost) -> Chain | None:
    distinct = {id(g.state): g for g in reversed(partials)}
    ordered = tuple(reversed(distinct.values()))  # of equal states keep the first: nearest modules
    return Chain(partials=ordered, hanging=hanging) if partials else None


def _placements(context: MatchContext, partial: PartialGroup, node: Node) -> list[PartialGroup]:
    """Extensions by an operator and the bias it owns, one per choice of modules."""
    nodes = [node]
    if node.op in ACCUMULATING:
        bias = owned_bias(context.dfg, node.index)
        nodes += [] if bias is None else [bias]
    extensions = [partial]
    for placed in nodes:
        extensions = [
            _with(extension, Match(node=placed.index, module=module))
            for extension in extensions
            for module in extension.state.candidates(context.runs_as(placed))
            if fits(context, placed, module)
        ]
    return extensions


def _with(partial: PartialGroup, match: Match) -> PartialGroup:
    """A copy with one more operator; chains share partial groups, so these must not change."""
    copy = PartialGroup(
        state=partial.state,
        matches=list(partial.matches),
        base=partial.base,
    )
    copy.take(match)
    return copy
