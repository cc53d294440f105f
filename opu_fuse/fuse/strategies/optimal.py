"""Strategy `optimal`: the groups with which the whole network is predicted to take the fewest
cycles, of those that were looked at.

First the groups that are the cheapest one by one. A value that leaves a group lies in memory, so
only the single reader of a value can continue its group: the edges that may be fused form a forest
(towards the outputs), a legal group is a path in it, and costs of groups add up. The best grouping
therefore follows from one walk, operands first:

1. every path that can run in one pass and reaches an operator is kept open (`chains`), together
   with the cost of what hangs off it;
2. an operator's `best` is the cheapest of: one of these paths ends here, or it runs on the host;
3. a second walk, users first, reads the choices off.

This is exact for any number of decisions. The walk gives up only where more than `most_open` paths
reach one operator, or a group grows beyond `MOST_OPERATORS`: that region is grouped as `matched`
would, and the search says so. A group that fits no tile costs more than any that do; operators stay
on the host only if no grouping runs more of them.

Then whole partitions, with their layout (`refine`): from the groups of `matched` (those above where
they run more operators), changed where the network is faster for it.
"""

from collections import Counter
from collections.abc import Collection, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from opu_fuse.dfg.graph import Kind, Node
from opu_fuse.fuse.explain.optimal_reasons import apart, host_ops
from opu_fuse.fuse.explain.remedies import operator_refusal
from opu_fuse.fuse.matching.context import MatchContext
from opu_fuse.fuse.matching.enumerate_groups import Chain, continued, extended, opened, tail_of
from opu_fuse.fuse.matching.partial_group import NOTHING_FORBIDDEN, Forbid
from opu_fuse.fuse.partition import Match
from opu_fuse.fuse.strategies.grouping import Grouping
from opu_fuse.fuse.strategies.local_search import refine
from opu_fuse.fuse.strategies.matched import levels, matched
from opu_fuse.fuse.strategies.search_report import Region, Search
from opu_fuse.timing.group_cost import NOTHING, ON_HOST, Cost, GroupCosts

MOST_OPEN = 64
"""Open groups that end at one operator; more of them and the region is grouped as `matched`."""

MOST_OPERATORS = 256
"""Operators of an open group, views included; longer ones likewise."""


def optimal(
    context: MatchContext, forbid: Forbid = NOTHING_FORBIDDEN, *, most_open: int = MOST_OPEN
) -> Grouping:
    """Legal groups with the fewest misfits, then host operators, then cycles."""
    costs = GroupCosts(context.dfg, context.hw)
    walk = _Walk(context, costs, forbid, most_open)
    walk.run()
    roots = walk.roots()
    longest = matched(context, forbid)
    other = _priced(costs, roots, longest)
    kept = {r for r, spot in walk.spots.items() if r in other and not spot.beats(other[r])}
    summed = _grouping(walk, costs, longest, roots, kept)
    best = _priced(costs, roots, summed)
    search = _search(walk, roots, best, other)
    refined = None
    if context.hw.build:  # others have no plan
        as_matched = {r for r in other if r in kept or not best[r].runs_more_than(other[r])}
        first = _grouping(walk, costs, longest, roots, as_matched)
        regions = [[g for g in summed.groups if roots[g[-1].node] == r] for r in other]
        refined = refine(context, costs, forbid, first, regions)
    if refined is not None:
        summed = refined.grouping
        search = replace(search, timed=refined.timed)
    return replace(summed, apart=apart(context, costs, forbid, summed, refined), search=search)


def _grouping(
    walk: "_Walk",
    costs: GroupCosts,
    longest: Grouping,
    roots: Mapping[int, int],
    kept: Collection[int],
) -> Grouping:
    """That of the walk, but for the regions (by their last spots) that stay as in `longest`."""
    nodes = {n for n, root in roots.items() if root in kept}
    groups, on_host = walk.read_off(longest, nodes)
    host = host_ops(walk.context, costs, walk.forbid, groups, on_host)
    return Grouping(groups=groups, host=host)


class _Spot(Struct, kw_only=True):
    """An operator, named by the node whose value stands for it (`tail_of`). chains: open groups
    that end here; best: cost of its region up to here; choice: the group that ends here then, None
    on the host; lost: the search gave up.
    """

    node: int
    chains: list[Chain] = field(default_factory=list)
    best: Cost = NOTHING
    choice: tuple[Match, ...] | None = None
    lost: bool = False

    def beats(self, other: Cost) -> bool:
        """Whether its region, which it ends, is grouped better than at this cost."""
        return not self.lost and self.best < other


class _Walk:
    """Invariant: `joined[s]` is the operator that may continue the group ending in s; spots linked
    by it form a region.
    """

    def __init__(
        self, context: MatchContext, costs: GroupCosts, forbid: Forbid, most_open: int
    ) -> None:
        self.context = context
        self.costs = costs
        self.forbid = forbid
        self.most_open = most_open
        self.levels = levels(context.dfg)
        self.spots: dict[int, _Spot] = {}
        self.joined: dict[int, int] = {}

    def run(self) -> None:
        """Steps 1 and 2."""
        for node in self.context.dfg.nodes:
            if node.kind is Kind.CALL and node.owner is None:
                self.spots[tail_of(self.context, node)] = self._spot(node)

    def roots(self) -> dict[int, int]:
        """The last spot of the region of every operator; a convolution lies where its bias does."""
        found: dict[int, int] = {}
        for index in reversed(self.spots):
            root = found[self.joined[index]] if index in self.joined else index
            found[index] = found[self.spots[index].node] = root
        return found

    def read_off(self, longest: Grouping, kept: set[int]) -> tuple[list[list[Match]], list[int]]:
        """Step 3: groups, and the operators on the host (owned biases left out). kept: nodes that
        stay as in `longest`.
        """
        groups = [g for g in longest.groups if g[-1].node in kept]
        dfg = self.context.dfg
        hosted = [h.node for h in longest.host if h.node in kept]
        on_host = [i for i in hosted if dfg[i].owner is None]
        done = set(kept)
        for index in reversed(self.spots):
            spot = self.spots[index]
            if index in done:
                continue
            if spot.choice is None:
                on_host.append(spot.node)
            else:
                groups.append(list(spot.choice))
                done.update(m.node for m in spot.choice)
        return sorted(groups, key=lambda g: g[0].node), sorted(on_host)

    def _spot(self, node: Node) -> _Spot:
        context, spot = self.context, _Spot(node=node.index)
        if not node.is_virtual and operator_refusal(context, node) is not None:
            spot.best = self._host(node)
            return spot
        longer: dict[int, list[Chain]] = {}
        for source in self._sources(node):
            before = self.spots[source]
            found = [e for c in before.chains if (e := extended(context, c, node)) is not None]
            if found or before.lost:
                longer[source] = found
                self.joined[source] = tail_of(context, node)
                spot.lost = spot.lost or before.lost
            before.chains = []
        below = sum((self.spots[s].best for s in longer), NOTHING)
        for source, found in longer.items():
            beside = below - self.spots[source].best
            spot.chains += [replace(c, hanging=c.hanging + beside) for c in found]
        alone = None if node.is_virtual else opened(context, node)
        if alone is not None:
            spot.chains.append(replace(alone, hanging=below))
        if len(spot.chains) > self.most_open or any(
            len(c.members) > MOST_OPERATORS for c in spot.chains
        ):
            spot.lost = True
        if spot.lost:
            spot.chains = []
        self._choose(spot, below + self._host(node))
        return spot

    def _sources(self, node: Node) -> list[int]:
        """Operands whose group the node may continue, the longer branch first."""
        sources = [i for i in continued(self.context, node) if i in self.spots]
        return sorted(sources, key=lambda i: (self.levels[i], i), reverse=True)

    def _choose(self, spot: _Spot, host: Cost) -> None:
        best: Cost | None = None
        for chain in spot.chains:
            ending = chain.ending(self.context, self.forbid)
            if ending is None:
                continue
            cost = chain.hanging + self.costs.of(chain.members)
            if best is None or cost < best:
                best, spot.choice = cost, ending
        if best is None or host < best:
            best, spot.choice = host, None
        spot.best = best

    def _host(self, node: Node) -> Cost:
        return ON_HOST if tail_of(self.context, node) == node.index else ON_HOST + ON_HOST


def _search(
    walk: _Walk, roots: dict[int, int], best: dict[int, Cost], other: dict[int, Cost]
) -> Search:
    """Both groupings, region by region; regions without a decision count in the sums only."""
    nodes: dict[int, list[int]] = {}
    for index in sorted(roots):
        nodes.setdefault(roots[index], []).append(index)
    decisions = Counter(roots[index] for index in walk.joined)
    regions = [
        Region(
            nodes=tuple(nodes[root]),
            decisions=count,
            exact=not walk.spots[root].lost,
            best=best[root],
            matched=other[root],
        )
        for root, count in decisions.items()
    ]
    return Search(
        regions=tuple(sorted(regions, key=lambda r: r.nodes[0])),
        best=sum(best.values(), NOTHING),
        matched=sum(other.values(), NOTHING),
    )


def _priced(costs: GroupCosts, roots: dict[int, int], grouping: Grouping) -> dict[int, Cost]:
    """Cost of a grouping per region, by the region's last spot."""
    found = dict.fromkeys(roots.values(), NOTHING)
    for group in grouping.groups:
        found[roots[group[-1].node]] += costs.of([m.node for m in group])
    for op in grouping.host:
        found[roots[op.node]] += ON_HOST
    return found
