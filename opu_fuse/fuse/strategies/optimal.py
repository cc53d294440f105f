"""Strategy `optimal`: of all candidate groupings, the one with the fewest predicted cycles for the
whole network.

Phase 1 is a dynamic program over the sum of the groups' own costs. A value that leaves a group is
stored in memory, so only the single reader of a value can continue its group. The fusible edges
therefore form a forest towards the outputs, a legal group is a path in it, and group costs add up.
Two traversals find the best grouping. The first visits operands first:

1. enumerate every path that can run in one pass and reaches an operator (`chains`), together with
   the cost of the subtrees that feed it (`hanging`);
2. an operator's `best` is the cheapest of: one of these paths ends here, or it runs on the host;
3. the second traversal, users first, reads off the choices.

This is exact for any number of decisions. The search gives up only where more than `most_open`
paths reach one operator, or a group exceeds `MOST_OPERATORS`. That region is then grouped as by
`matched`, and the search report says so. A group that fits no tile costs more than any group that
does. An operator runs on the host only if no grouping runs more operators on the machine.

Phase 2 is a local search that times whole partitions with their layout (`local_search.refine`). It
starts from the groups of `matched`, or from those of phase 1 where these run more operators, and
applies the changes that make the network faster.
"""

from collections import Counter
from collections.abc import Collection, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from opu_fuse.dfg.graph import Kind, Node
from opu_fuse.fuse.explain.optimal_reasons import host_ops, reasons_not_fused
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
"""Most partial groups that may end at one operator; beyond it `matched` groups the region."""

MOST_OPERATORS = 256
"""Most operators of a partial group, views included; beyond it `matched` groups the region."""


def optimal(
    context: MatchContext, forbid: Forbid = NOTHING_FORBIDDEN, *, most_open: int = MOST_OPEN
) -> Grouping:
    """Legal groups with the fewest misfits, then the fewest host operators, then the fewest cycles.

    most_open: bound on the partial groups per operator.
    """
    costs = GroupCosts(context.dfg, context.hw)
    program = _DynamicProgram(context, costs, forbid, most_open)
    program.run()
    roots = program.roots()
    longest = matched(context, forbid)
    other = _priced(costs, roots, longest)
    matched_roots = {
        r for r, spot in program.spots.items() if r in other and not spot.beats(other[r])
    }
    summed = _grouping(program, costs, longest, roots, matched_roots)
    best = _priced(costs, roots, summed)
    search = _search(program, roots, best, other)
    refined = None
    if context.hw.build:  # a spec that cannot be built has no plan to time
        as_matched = {
            r for r in other if r in matched_roots or not best[r].runs_more_than(other[r])
        }
        start = _grouping(program, costs, longest, roots, as_matched)
        regions = [[g for g in summed.groups if roots[g[-1].node] == r] for r in other]
        refined = refine(context, costs, forbid, start, regions)
    if refined is not None:
        summed = refined.grouping
        search = replace(search, timed=refined.timed)
    own_reason = reasons_not_fused(context, costs, forbid, summed, refined)
    return replace(summed, own_reason=own_reason, search=search)


def _grouping(
    program: "_DynamicProgram",
    costs: GroupCosts,
    longest: Grouping,
    roots: Mapping[int, int],
    as_longest: Collection[int],
) -> Grouping:
    """The grouping of the dynamic program, with the groups of `longest` in some regions.

    as_longest: those regions, each by its last spot.
    """
    nodes = {n for n, root in roots.items() if root in as_longest}
    groups, on_host = program.read_off(longest, nodes)
    host = host_ops(program.context, costs, program.forbid, groups, on_host)
    return Grouping(groups=groups, host=host)


class _Spot(Struct, kw_only=True):
    """An operator's entry in the dynamic program, keyed by the node of its result (`tail_of`).

    chains: partial groups that end here; best: least cost of its region up to here; choice: the
    group that ends here at that cost, None on the host; lost: the search gave up.
    """

    node: int
    chains: list[Chain] = field(default_factory=list)
    best: Cost = NOTHING
    choice: tuple[Match, ...] | None = None
    lost: bool = False

    def beats(self, other: Cost) -> bool:
        """Whether the search grouped the region that ends here at less than this cost."""
        return not self.lost and self.best < other


class _DynamicProgram:
    """The dynamic program over the fusion forest.

    Invariant: `joined[s]` is the operator that may continue the group ending in s; spots linked
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
        """Steps 1 and 2: enumerate partial groups and choose the cheapest, operands first."""
        for node in self.context.dfg.nodes:
            if node.kind is Kind.CALL and node.owner is None:
                self.spots[tail_of(self.context, node)] = self._spot(node)

    def roots(self) -> dict[int, int]:
        """The last spot of every operator's region; a convolution is in the region of its bias."""
        root_of: dict[int, int] = {}
        for index in reversed(self.spots):
            root = root_of[self.joined[index]] if index in self.joined else index
            root_of[index] = root_of[self.spots[index].node] = root
        return root_of

    def read_off(
        self, longest: Grouping, as_longest: set[int]
    ) -> tuple[list[list[Match]], list[int]]:
        """Step 3: groups, and the operators on the host (without owned biases).

        as_longest: nodes that are grouped as in `longest`.
        """
        groups = [g for g in longest.groups if g[-1].node in as_longest]
        dfg = self.context.dfg
        hosted = [h.node for h in longest.host if h.node in as_longest]
        on_host = [i for i in hosted if dfg[i].owner is None]
        done = set(as_longest)
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
            source_spot = self.spots[source]
            extended_chains = [
                e for c in source_spot.chains if (e := extended(context, c, node)) is not None
            ]
            if extended_chains or source_spot.lost:
                longer[source] = extended_chains
                self.joined[source] = tail_of(context, node)
                spot.lost = spot.lost or source_spot.lost
            source_spot.chains = []  # the node is the only reader: free them
        operands_cost = sum((self.spots[s].best for s in longer), NOTHING)
        for source, extended_chains in longer.items():
            branch_cost = operands_cost - self.spots[source].best
            spot.chains += [replace(c, hanging=c.hanging + branch_cost) for c in extended_chains]
        alone = None if node.is_virtual else opened(context, node)
        if alone is not None:
            spot.chains.append(replace(alone, hanging=operands_cost))
        if len(spot.chains) > self.most_open or any(
            len(c.members) > MOST_OPERATORS for c in spot.chains
        ):
            spot.lost = True
        if spot.lost:
            spot.chains = []
        self._choose(spot, operands_cost + self._host(node))
        return spot

    def _sources(self, node: Node) -> list[int]:
        """Operands whose group the node may continue, by descending path length from the inputs."""
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
    program: _DynamicProgram, roots: dict[int, int], best: dict[int, Cost], other: dict[int, Cost]
) -> Search:
    """The search report: both groupings, region by region.

    Regions without a decision count in the sums only.
    """
    nodes: dict[int, list[int]] = {}
    for index in sorted(roots):
        nodes.setdefault(roots[index], []).append(index)
    decisions = Counter(roots[index] for index in program.joined)
    regions = [
        Region(
            nodes=tuple(nodes[root]),
            decisions=count,
            exact=not program.spots[root].lost,
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
    cost_of = dict.fromkeys(roots.values(), NOTHING)
    for group in grouping.groups:
        cost_of[roots[group[-1].node]] += costs.of([m.node for m in group])
    for op in grouping.host:
        cost_of[roots[op.node]] += ON_HOST
    return cost_of
