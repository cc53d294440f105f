"""Why `optimal` put an operator on the host, or did not fuse an edge that no rule forbids."""

from collections.abc import Mapping, Sequence

from opu_fuse.dfg.graph import Node
from opu_fuse.fuse.explain.remedies import operator_refusal
from opu_fuse.fuse.matching.context import MatchContext
from opu_fuse.fuse.matching.partial_group import (
    Forbid,
    PartialGroup,
    extend,
    match_next,
    partial_group,
)
from opu_fuse.fuse.partition import HostOp, Match
from opu_fuse.fuse.rules.legality import no_group
from opu_fuse.fuse.rules.refusal import Refusal, Words, refuse
from opu_fuse.fuse.strategies.grouping import Grouping, OwnReason
from opu_fuse.fuse.strategies.local_search import Refined
from opu_fuse.fuse.strategies.matched import on_host
from opu_fuse.fuse.strategies.search_report import cost_text
from opu_fuse.timing.group_cost import GroupCosts


def fits_no_tile(words: Words) -> Words | None:
    """{node} fits no tile: {what}

    Change: enlarge that buffer in `buffers`
    """
    return words


def costs_more(words: Words) -> Words | None:
    """{source} and {target} in one group would take {together}; in two they take {separate}

    Change: use --strategy matched, which fuses whatever it may
    """
    return words


def continues_target(words: Words) -> Words | None:
    """{target} continues with {next}, which could not run after {source} too ({why})

    Change: use --strategy matched, which fuses whatever it may
    """
    return words


def host_ops(
    context: MatchContext,
    costs: GroupCosts,
    forbid: Forbid,
    groups: Sequence[Sequence[Match]],
    nodes: Sequence[int],
) -> list[HostOp]:
    """The operators on the host with reasons, each bias after its owner."""
    by_tail = {g[-1].node: partial_group(context, g) for g in groups}
    host: list[HostOp] = []
    for index in nodes:
        node = context.dfg[index]
        host += on_host(context.dfg, node, _why_on_host(context, costs, forbid, by_tail, node))
    return host


def _why_on_host(
    context: MatchContext,
    costs: GroupCosts,
    forbid: Forbid,
    by_tail: Mapping[int, PartialGroup],
    node: Node,
) -> Refusal:
    if node.is_virtual:
        source = node.operands[0]
        joined = extend(context, by_tail[source], node, forbid) if source in by_tail else None
        words: Words = {"node": node.called, "source": context.dfg[source].name}
        return joined if isinstance(joined, Refusal) else refuse(no_group, words)
    alone = operator_refusal(context, node) or match_next(
        context, PartialGroup(context.modules.start), node, forbid
    )
    if isinstance(alone, Refusal):
        return alone
    what = costs.misfit([m.node for m in alone])
    return refuse(fits_no_tile, {"node": node.name, "what": what})


def reasons_not_fused(
    context: MatchContext,
    costs: GroupCosts,
    forbid: Forbid,
    grouping: Grouping,
    refined: Refined | None,
) -> OwnReason:
    """(source, target) -> why the group headed by target does not continue source's group."""
    by_head = {g[0].node: g for g in grouping.groups}
    by_tail = {g[-1].node: g for g in grouping.groups}
    return lambda source, target: _why_not_fused(
        context, costs, forbid, refined, by_tail[source], by_head[target]
    )


def _why_not_fused(
    context: MatchContext,
    costs: GroupCosts,
    forbid: Forbid,
    refined: Refined | None,
    group: Sequence[Match],
    successor: Sequence[Match],
) -> Refusal:
    dfg = context.dfg
    words: Words = {"source": dfg[group[-1].node].name, "target": dfg[successor[0].node].name}
    partial = partial_group(context, group)
    for match in successor:
        node = dfg[match.node]
        if node.owner is not None:  # joined with its owner
            continue
        longer = extend(context, partial, node, forbid)
        if isinstance(longer, Refusal):
            return refuse(continues_target, {**words, "next": node.name, "why": longer})
        for placed in longer:
            partial.take(placed)
    whole = refined and refined.with_joined(group, successor, partial.matches)
    if refined is not None and whole is not None:
        together = f"{whole} cycles with all other groups"
        return refuse(costs_more, {**words, "together": together, "separate": refined.timed.best})
    members = [m.node for m in partial.matches]
    separate = costs.of([m.node for m in group]) + costs.of([m.node for m in successor])
    what = costs.misfit(members)
    together = f"more than any tile holds ({what})" if what else cost_text(costs.of(members))
    return refuse(costs_more, {**words, "together": together, "separate": cost_text(separate)})
