"""Strategies `matched` (default) and `none`: groups that the machine can run.

Operators are visited once, in post-DFS order. One joins the group whose tail it reads when every
rule agrees (`partial.extend`); else it opens a group of its own; else it stays on the host. A
group's value leaves it only through its tail, and a node joins only as the tail's single reader, so
nothing outside can depend on a growing group: groups never wait for each other in a circle.
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
    place,
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
    """Every operator alone, with the bias it owns and the views behind it."""
    return grow(context, forbid, lambda _group, _node: False)


def grow(
    context: MatchContext, forbid: Forbid, wanted: Callable[[PartialGroup, Node], bool]
) -> Grouping:
    """Groups that grow operator by operator. wanted: whether a node should join a group if no rule
    forbids it; views always should.
    """
    groups: list[PartialGroup] = []
    by_tail: dict[int, PartialGroup] = {}
    host: list[HostOp] = []
    longest = levels(context.dfg)
    for node in context.dfg.nodes:
        if node.kind is not Kind.CALL or node.owner is not None:
            continue
        found = _find(context, by_tail, node, forbid, longest, wanted)
        if isinstance(found, Refusal):
            host.extend(on_host(context.dfg, node, found))
            continue
        group, matches = found
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
    """The group a node joins (a new one without matches yet), or why it stays on the host."""
    virtual = node.is_virtual
    if not virtual:
        refusal = operator_refusal(context, node)
        if refusal is not None:
            return refusal
    sources = [i for i in leaves(context.dfg, node) if i in by_tail]
    if len(sources) > 1:
        # The longer branch first: a residual add continues it, the shorter is read from memory.
        sources = sorted(set(sources), key=lambda i: (longest[i], i), reverse=True)
    refused: Refusal | None = None
    for source in sources:
        group = by_tail[source]
        # Most neighbours are not next to each other in the pipeline; that costs no explanation yet.
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
    placed = place(context, alone, node, forbid)
    return placed if isinstance(placed, Refusal) else (alone, placed)


def on_host(dfg: Dfg, node: Node, refusal: Refusal) -> list[HostOp]:
    """An operator on the host, and the bias it owns."""
    host = [HostOp(node=node.index, why=refusal)]
    bias = owned_bias(dfg, node.index)
    if bias is not None:
        why = refuse(owner_on_host, {"owner": node.name, "reason": refusal})
        host.append(HostOp(node=bias.index, why=why))
    return host


def levels(dfg: Dfg) -> list[int]:
    """Longest path from the inputs, in operators."""
    found: list[int] = []
    for node in dfg.nodes:
        level = 0
        for operand in node.operands:
            level = max(level, found[operand])
        found.append(level + 1 if node.kind is Kind.CALL else level)
    return found
