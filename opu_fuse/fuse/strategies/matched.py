"""Strategies `matched` (default) and `none`: groups that the machine can run.

The strategy visits every operator once, in post-DFS order. An operator joins the group whose tail
it reads if every rule holds (`partial_group.extend`). Otherwise it opens a new group, and if no
module runs it, it goes to the host. A group's value leaves only through its tail, and a node joins
only as the tail's single reader. So nothing outside depends on a partial group: every group is
convex, and the group graph remains acyclic.
"""

from collections.abc import Callable, Mapping, Sequence

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.integer import owned_bias
from opu_fuse.fuse.explain.remedies import operator_refusal
from opu_fuse.fuse.matching.context import MatchContext, leaves
from opu_fuse.fuse.matching.partial_group import (
    NOTHING_FORBIDDEN,
    Forbid,
    PartialGroup,
    extend,
    match_next,
)
from opu_fuse.fuse.partition import HostOp, Match
from opu_fuse.fuse.rules.legality import no_group
from opu_fuse.fuse.rules.refusal import Refusal, Words, refuse
from opu_fuse.fuse.strategies.grouping import Grouping


def owner_on_host(words: Words) -> Words | None:
    """{owner}, which owns this bias, runs on the host ({reason})"""
    return words


def matched(context: MatchContext, forbid: Forbid = NOTHING_FORBIDDEN) -> Grouping:
    """The longest chains along the machine's pipeline."""
    return grow(context, forbid, lambda _group, _node: True)


def none(context: MatchContext, forbid: Forbid = NOTHING_FORBIDDEN) -> Grouping:
    """One group per operator, with the bias it owns and the views that follow it."""
    return grow(context, forbid, lambda _group, _node: False)


def grow(
    context: MatchContext, forbid: Forbid, wanted: Callable[[PartialGroup, Node], bool]
) -> Grouping:
    """Groups that are extended operator by operator.

    wanted: whether a node should join a group if no rule forbids it; views always should.
    """
    groups: list[PartialGroup] = []
    by_tail: dict[int, PartialGroup] = {}
    host: list[HostOp] = []
    longest = levels(context.dfg)
    for node in context.dfg.nodes:
        if node.kind is not Kind.CALL or node.owner is not None:
            continue
        placement = _find(context, by_tail, node, forbid, longest, wanted)
        if isinstance(placement, Refusal):
            host.extend(on_host(context.dfg, node, placement))
            continue
        group, matches = placement
        if group.matches:
            del by_tail[group.tail]
        else:
            groups.append(group)
        for match in matches:
            group.take(match)
        by_tail[group.tail] = group
    return Grouping(groups=[group.matches for group in groups], host=host)


def _find(
    context: MatchContext,
    by_tail: Mapping[int, PartialGroup],
    node: Node,
    forbid: Forbid,
    longest: Sequence[int],
    wanted: Callable[[PartialGroup, Node], bool],
) -> tuple[PartialGroup, tuple[Match, ...]] | Refusal:
    """The group (perhaps a new, empty one) that a node joins and its matches, or a refusal."""
    virtual = node.is_virtual
    if not virtual:
        refusal = operator_refusal(context, node)
        if refusal is not None:
            return refusal
    sources = [i for i in leaves(context.dfg, node) if i in by_tail]
    if len(sources) > 1:
        # The longer branch first: a residual add continues it, the shorter is read from memory. A
        # group that computes nothing is last: its map is in memory.
        computing = {i for i in sources if _computes(context.dfg, by_tail[i])}
        order = ((i in computing, longest[i], i) for i in set(sources))
        sources = [i for *_, i in sorted(order, reverse=True)]
    refused: Refusal | None = None
    for source in sources:
        group = by_tail[source]
        # Most producers and readers cannot be neighbours in the pipeline: skip them
        # without building a refusal (`explain.boundaries` finds the reason later).
        if not virtual and not (
            group.state.candidates(context.runs_as(node)) and wanted(group, node)
        ):
            continue
        joined = extend(context, group, node, forbid)
        if not isinstance(joined, Refusal):
            return group, joined
        refused = refused or joined
    if virtual:
        source_name = context.dfg[node.operands[0]].name
        return refused or refuse(no_group, {"node": node.called, "source": source_name})
    alone = PartialGroup(context.modules.start)
    placed = match_next(context, alone, node, forbid)
    return placed if isinstance(placed, Refusal) else (alone, placed)


def _computes(dfg: Dfg, group: PartialGroup) -> bool:
    """Whether a group has another operator than a concatenation or a view."""
    return any(dfg[m.node].op not in {"concat", "reshape"} for m in group.matches)


def on_host(dfg: Dfg, node: Node, refusal: Refusal) -> list[HostOp]:
    """An operator on the host, and the bias it owns."""
    host = [HostOp(node=node.index, why=refusal)]
    bias = owned_bias(dfg, node.index)
    if bias is not None:
        why = refuse(owner_on_host, {"owner": node.name, "reason": refusal})
        host.append(HostOp(node=bias.index, why=why))
    return host


def levels(dfg: Dfg) -> list[int]:
    """By node, the length of the longest path from the inputs, in operators."""
    level_of: list[int] = []
    for node in dfg.nodes:
        level = 0
        for operand in node.operands:
            level = max(level, level_of[operand])
        level_of.append(level + 1 if node.kind is Kind.CALL else level)
    return level_of
