"""Local search over partitions: a greedy hill climb that times whole partitions.

A move regroups the operators of one or a few groups. Moves are timed in ascending order of the
groups' own costs, at most `MOST_TIMED` of them. A move is accepted if it saves more cycles than the
error bound of the timing (`RESOLUTION`).
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
from opu_fuse.timing.segment_cycles import RESOLUTION, cycles, saved

MOST_TIMED = 32
"""Most moves that are timed. Each needs a plan and the timing of the neighbouring groups."""

Raw = Sequence[Match]


class Refined(Struct, frozen=True, kw_only=True):
    """The result of the search.

    grouping: the best groups; timed: report of the timed moves; plans: cost model of the graph.
    """

    grouping: Grouping
    timed: Timed
    plans: Plans

    def with_joined(self, group: Raw, successor: Raw, joined: Raw) -> int | None:
        """Cycles of the network with two groups joined into one; None when that has no plan."""
        others = [g for g in self.grouping.groups if g[0] not in (group[0], successor[0])]
        units = self.plans.units([*others, joined], self.grouping.host)
        return None if units is None else round(cycles(units, self.plans.hw))


class _Move(Struct, frozen=True, kw_only=True):
    """A change of the partition.

    drop: first nodes of the groups to replace; add: the groups that replace them; price: change of
    the sum of the groups' own costs.
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
    """Faster groups of the operators of `first`; None when `first` has no plan.

    regions: alternative groups of parts of the network, tried as moves.
    """
    plans = Plans(context)
    partition = initial = {group[0].node: tuple(group) for group in first.groups}
    start = plans.units(first.groups, first.host)
    if start is None:
        return None
    units = start
    moves = [*_regions(costs, partition, regions), *_local(context, costs, forbid, partition)]
    moves.sort(key=lambda move: (move.price, move.drop))
    taken: list[Change] = []
    tried = 0
    for move in moves:
        if tried >= MOST_TIMED:
            break
        # An accepted move may have changed these groups.
        if not set(move.drop) <= partition.keys() or not _same(partition, move):
            continue
        changed = {head: group for head, group in partition.items() if head not in move.drop}
        changed |= {group[0].node: group for group in move.add}
        candidate = plans.units([changed[head] for head in sorted(changed)], first.host)
        tried += 1
        if candidate is None:
            continue
        gain, timed_cycles = saved(units, candidate, context.hw)
        if gain > RESOLUTION * timed_cycles:
            partition, units = changed, candidate
            nodes = sorted(m.node for group in move.add for m in group)
            taken.append(Change(nodes=tuple(nodes), saved=round(gain)))
    start_cycles, best_cycles = round(cycles(start, context.hw)), round(cycles(units, context.hw))
    if best_cycles > start_cycles:  # each move was timed with its neighbours only
        partition, best_cycles, taken = initial, start_cycles, []
    timed = Timed(before=start_cycles, best=best_cycles, tried=tried, taken=tuple(taken))
    grouping = replace(first, groups=[list(partition[head]) for head in sorted(partition)])
    return Refined(grouping=grouping, timed=timed, plans=plans)


def regrouped(
    context: MatchContext, nodes: Sequence[int], forbid: Forbid
) -> tuple[Match, ...] | None:
    """Operators, in pipeline order, as one legal group; None when there is none."""
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
    """Moves that split a group in two, or append its second part to another group."""
    by_tail = {group[-1].node: head for head, group in now.items()}
    for head, group in now.items():
        nodes = [m.node for m in group]
        for cut in range(1, len(nodes)):
            node = context.dfg[nodes[cut]]
            front = regrouped(context, nodes[:cut], forbid) if node.owner is None else None
            if front is None:
                continue
            rest = regrouped(context, nodes[cut:], forbid)
            if rest is not None:
                yield _move(costs, now, (head,), (front, rest))
            for other in {by_tail[i] for i in continued(context, node) if i in by_tail} - {head}:
                longer = [*(m.node for m in now[other]), *nodes[cut:]]
                moved = regrouped(context, longer, forbid)
                if moved is not None:
                    yield _move(costs, now, (head, other), (front, moved))
