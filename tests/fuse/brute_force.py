"""The cheapest legal grouping by trying all of them; nothing is used but the verifier and the
prices.
"""

import itertools
from collections.abc import Iterator

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.integer import owned_bias
from opu_fuse.fuse.matching.context import context_of
from opu_fuse.fuse.partition import Group, Match
from opu_fuse.fuse.verify import verify
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.timing.group_cost import NOTHING, ON_HOST, Cost, GroupCosts
from tests.fuse.reading import hosted

Chain = tuple[int, ...]
"""Operators of the user's model in pipeline order, owned biases left out."""


class BruteForce:
    def __init__(self, dfg: Dfg, hw: HwSpec, forbid: frozenset[tuple[int, ...]]) -> None:
        self.dfg, self.hw, self.context = dfg, hw, context_of(dfg, hw)
        self.forbid = [{i for i in nodes if not dfg[i].is_virtual} for nodes in forbid]
        self.costs = GroupCosts(dfg, hw)
        self.operators = [n for n in dfg.calls if n.owner is None]
        self.legal: dict[Chain, tuple[Match, ...] | None] = {}

    def best(self) -> Cost:
        """Over every set of edges along which groups could be formed."""
        prices = (self.price(chains) for chains in self.groupings())
        return min(price for price in prices if price is not None)

    def price(self, chains: list[Chain]) -> Cost | None:
        """None where the verifier refuses; a refused operator on its own runs on the host."""
        total, groups = NOTHING, []
        for chain in chains:
            matches = self.assignment(chain)
            members = [n.index for i in chain for n in self.with_bias(self.dfg[i])]
            alone = sum((ON_HOST for _ in members), NOTHING)
            if matches is None and len(chain) > 1:
                return None
            if matches is None:
                total += alone
                continue
            cost = self.costs.of(members)
            total += min(cost, alone) if len(chain) == 1 and cost.misfits else cost
            groups.append(matches)
        assert self.verdict(groups) == ()  # legal one by one is legal together
        return total

    def groupings(self) -> Iterator[list[Chain]]:
        edges = [
            (source.index, target.index)
            for target in self.operators
            for source in self.operators
            if self.value(source) in self.operands(target)
        ]
        for chosen in itertools.product((False, True), repeat=len(edges)):
            taken = [edge for edge, fused in zip(edges, chosen, strict=True) if fused]
            after, before = dict(taken), {t: s for s, t in taken}
            if len(after) < len(taken) or len(before) < len(taken):
                continue  # a group is a path
            yield [self.path(n.index, after) for n in self.operators if n.index not in before]

    def path(self, first: int, after: dict[int, int]) -> Chain:
        found = [first]
        while found[-1] in after:
            found.append(after[found[-1]])
        return tuple(found)

    def assignment(self, chain: Chain) -> tuple[Match, ...] | None:
        """Modules with which the verifier accepts the group, tried one after the other."""
        if chain not in self.legal:
            self.legal[chain] = self.search(chain)
        return self.legal[chain]

    def search(self, chain: Chain) -> tuple[Match, ...] | None:
        nodes = [n for i in chain for n in self.with_bias(self.dfg[i])]
        if {n.index for n in nodes if not n.is_virtual} in self.forbid:
            return None
        flow = self.hw.dataflow
        modules = [
            [None]
            if n.is_virtual
            else [
                m
                for m in flow.modules
                if any(flow.modules[m].kind in flow.operators.get(op, ()) for op in self.roles(n))
            ]
            for n in nodes
        ]
        for choice in itertools.product(*modules):
            matches = tuple(
                Match(node=n.index, module=m) for n, m in zip(nodes, choice, strict=True)
            )
            if self.verdict([matches]) == ():
                return matches
        return None

    def roles(self, node: Node) -> tuple[str, ...]:
        """What an operator may be run as; whether it may here, the verifier says."""
        return (node.op, "batch_norm") if node.op in {"add", "multiply"} else (node.op,)

    def verdict(self, groups: list[tuple[Match, ...]]) -> tuple:
        described = [self.describe(i, matches) for i, matches in enumerate(groups)]
        grouped = {m.node for matches in groups for m in matches}
        host = [hosted(n.index) for n in self.dfg.calls if n.index not in grouped]
        return verify(self.context, described, host)

    def describe(self, index: int, matches: tuple[Match, ...]) -> Group:
        inside = {m.node for m in matches}
        outputs = [
            i
            for i in sorted(inside)
            if i in self.dfg.outputs or any(u not in inside for u in self.dfg.users[i])
        ]
        return Group(index=index, matches=matches, inputs=(), constants=(), outputs=tuple(outputs))

    def with_bias(self, node: Node) -> list[Node]:
        bias = owned_bias(self.dfg, node.index)
        return [node] if bias is None else [node, bias]

    def value(self, node: Node) -> int:
        return self.with_bias(node)[-1].index

    def operands(self, node: Node) -> set[int]:
        tuples = [i for i in node.operands if self.dfg[i].kind is Kind.TUPLE]
        return {*node.operands, *(j for i in tuples for j in self.dfg[i].operands)}
