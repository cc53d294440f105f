"""From groups to better groups, by timing whole partitions: one change after the other.

A change makes other groups of the operators of one group or of a few. The cheapest by the groups'
own prices are timed first, at most `MOST_TIMED`; one is taken if the network is faster with it by
more than the timing can be wrong.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.fuse.matching.context import MatchContext
from opu_fuse.fuse.matching.enumerate_groups import continued, extended, opened
from opu_fuse.fuse.matching.partial_group import Forbid
from opu_fuse.fuse.partition import Match
from opu_fuse.fuse.strategies.grouping import Grouping
from opu_fuse.fuse.strategies.partition_cost import Plans
from opu_fuse.fuse.strategies.search_report import Change, Timed
from opu_fuse.timing.group_cost import NOTHING, Cost, GroupCosts
from opu_fuse.timing.segment_cycles import cycles, saved

MOST_TIMED = 32
"""Changes that are timed: each costs a plan, and the timing of the groups around it."""

RESOLUTION = 0.0025
"""What the timing of a change may be wrong by against the cycle engine: of the cycles looked at."""

Raw = Sequence[Match]


class Refined(Struct, frozen=True, kw_only=True):
    """grouping: what came out; timed: what was tried; plans: of the graph."""

    grouping: Grouping
    timed: Timed
    plans: Plans

    def with_joined(self, group: Raw, behind: Raw, joined: Raw) -> int | None:
        """Cycles of the network with two groups in one; None when that fits nowhere."""
        others = [g for g in self.grouping.groups if g[0] not in (group[0], behind[0])]
        units = self.plans.units([*others, joined], self.grouping.host)
        return None if units is None else round(cycles(units, self.plans.hw))


class _Move(Struct, frozen=True, kw_only=True):
    """drop: first nodes of groups; add: the groups in their place; price: what it adds to the sum
    of the groups' own prices.
    """

    drop: tuple[int, ...]
    add: tuple[tuple[Match, ...], ...]
    price: Cost


def refine(
    context: MatchContext,
    costs: GroupCosts,
    forbid: Forbid,
    first: Grouping,
    regions: Sequence[Sequence[Raw]],
) -> Refined | None:
    """Better groups of the same operators; None when those of `first` have no plan. regions:
    groups of parts of the network that may be better.
    """
    plans = Plans(context)
    now = given = {group[0].node: tuple(group) for group in first.groups}
    start = plans.units(first.groups, first.host)
    if start is None:
        return None
    units = start
    moves = [*_regions(costs, now, regions), *_local(context, costs, forbid, now)]
    moves.sort(key=lambda move: (move.price, move.drop))
    taken: list[Change] = []
    tried = 0
    for move in moves:
        if tried >= MOST_TIMED:
            break
        if not set(move.drop) <= now.keys() or not _same(now, move):  # changed meanwhile
            continue
        changed = {head: group for head, group in now.items() if head not in move.drop}
        changed |= {group[0].node: group for group in move.add}
        after = plans.units([changed[head] for head in sorted(changed)], first.host)
        tried += 1
        if after is None:
            continue
        gain, looked_at = saved(units, after, context.hw)
        if gain > RESOLUTION * looked_at:
            now, units = changed, after
            nodes = sorted(m.node for group in move.add for m in group)
            taken.append(Change(nodes=tuple(nodes), saved=round(gain)))
    before, best = round(cycles(start, context.hw)), round(cycles(units, context.hw))
    if best > before:  # a change is timed with its neighbours alone
        now, best, taken = given, before, []
    timed = Timed(before=before, best=best, tried=tried, taken=tuple(taken))
    grouping = replace(first, groups=[list(now[head]) for head in sorted(now)])
    return Refined(grouping=grouping, timed=timed, plans=plans)


def regrouped(
    context: MatchContext, nodes: Sequence[int], forbid: Forbid
) -> tuple[Match, ...] | None:
    """Operators, in pipeline order, as one group; None where no rule-abiding one exists."""
    first, *others = (context.dfg[i] for i in nodes if context.dfg[i].owner is None)
    chain = None if first.is_virtual else opened(context, first)
    for node in others:
        if chain is None or chain.partials[0].tail not in continued(context, node):
            return None
        chain = extended(context, chain, node)
    return None if chain is None else chain.ending(context, forbid)


def _nodes(groups: Sequence[Raw]) -> set[int]:
    return {m.node for group in groups for m in group}


def _same(now: Mapping[int, Raw], move: _Move) -> bool:
    return _nodes([now[head] for head in move.drop]) == _nodes(move.add)


def _price(costs: GroupCosts, groups: Sequence[Raw]) -> Cost:
    return sum((costs.of([m.node for m in group]) for group in groups), NOTHING)


def _move(
    costs: GroupCosts, now: Mapping[int, Raw], drop: Collection[int], add: Sequence[Raw]
) -> _Move:
    dropped = [now[head] for head in drop]
    price = _price(costs, add) - _price(costs, dropped)
    return _Move(drop=tuple(drop), add=tuple(map(tuple, add)), price=price)


def _regions(
    costs: GroupCosts, now: Mapping[int, Raw], regions: Sequence[Sequence[Raw]]
) -> Iterator[_Move]:
    head_of = {m.node: head for head, group in now.items() for m in group}
    for add in regions:
        nodes = _nodes(add)
        if nodes <= head_of.keys():
            drop = sorted({head_of[i] for i in nodes})
            if nodes == _nodes([now[head] for head in drop]):
                yield _move(costs, now, drop, add)


def _local(
    context: MatchContext, costs: GroupCosts, forbid: Forbid, now: Mapping[int, Raw]
) -> Iterator[_Move]:
    """Groups cut in two, and their ends moved behind another group."""
    by_tail = {group[-1].node: head for head, group in now.items()}
    for head, group in now.items():
        nodes = [m.node for m in group]
        for cut in range(1, len(nodes)):
            node = context.dfg[nodes[cut]]
            front = regrouped(context, nodes[:cut], forbid) if node.owner is None else None
            if front is None:
                continue
            behind = regrouped(context, nodes[cut:], forbid)
            if behind is not None:
                yield _move(costs, now, (head,), (front, behind))
            for other in {by_tail[i] for i in continued(context, node) if i in by_tail} - {head}:
                longer = [*(m.node for m in now[other]), *nodes[cut:]]
                moved = regrouped(context, longer, forbid)
                if moved is not None:
                    yield _move(costs, now, (head, other), (front, moved))
