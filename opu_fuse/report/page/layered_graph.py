"""The edges of a network as the page draws them: operands first, joins as one point, skips."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import networkx as nx
from msgspec import Struct

Edge = tuple[str, str]

_SEVERAL = 2
"""Operands with as many common readers are drawn as a join."""


class LayeredGraph(Struct, frozen=True, kw_only=True):
    """names: of operators and joins, operands before their readers. joins: those that are no
    operator. edges: by the indices of their ends in `names`, in order.
    """

    names: tuple[str, ...]
    joins: frozenset[str]
    edges: tuple[tuple[int, int], ...]

    @property
    def readers(self) -> Mapping[int, Sequence[int]]:
        """The ends of the edges from every node."""
        readers: dict[int, list[int]] = defaultdict(list)
        for source, target in self.edges:
            readers[source].append(target)
        return readers


def layered_graph(operators: Sequence[str], edges: Sequence[Edge]) -> LayeredGraph:
    """operators: in the order of the program. edges: without a circle."""
    edges, joins = _joined(edges)
    rank: dict[str, float] = {name: n for n, name in enumerate(operators)}
    for source, target in edges:
        if target in joins:
            rank[target] = max(rank.get(target, 0.0), rank[source] + 0.5)
    graph = nx.DiGraph()
    graph.add_nodes_from(rank)
    graph.add_edges_from(edges)
    names = tuple(nx.lexicographical_topological_sort(graph, key=rank.__getitem__))
    number = {name: n for n, name in enumerate(names)}
    pairs = sorted((number[a], number[b]) for a, b in edges)
    return LayeredGraph(names=names, joins=frozenset(joins), edges=tuple(pairs))


def _joined(edges: Sequence[Edge]) -> tuple[list[Edge], list[str]]:
    """Edges with a join where several operators have the same, several, operands: the compiler
    removes concatenations and connects every reader of one with every operand. And the joins.
    """
    operands: dict[str, dict[str, None]] = defaultdict(dict)
    for source, target in edges:
        operands[target][source] = None
    readers: dict[frozenset[str], list[str]] = defaultdict(list)
    for target, sources in operands.items():
        if len(sources) >= _SEVERAL:
            readers[frozenset(sources)].append(target)
    join_of: dict[str, str] = {}
    joins: dict[str, Sequence[str]] = {}
    for targets in readers.values():
        if len(targets) >= _SEVERAL:
            join = f"join of {targets[0]}"
            joins[join] = list(operands[targets[0]])
            join_of |= dict.fromkeys(targets, join)
    drawn = [edge for edge in edges if edge[1] not in join_of]
    drawn += [(source, join) for join, sources in joins.items() for source in sources]
    drawn += [(join, target) for target, join in join_of.items()]
    return drawn, [*joins]


def skipping(graph: LayeredGraph) -> set[tuple[int, int]]:
    """Edges next to which there is a longer path."""
    readers = graph.readers
    reached = [0] * len(graph.names)  # as sets of bits
    skips = set()
    for source in reversed(range(len(graph.names))):
        targets = readers.get(source, ())
        beyond = 0
        for target in targets:
            beyond |= reached[target]
        skips |= {(source, target) for target in targets if beyond >> target & 1}
        for target in targets:
            beyond |= 1 << target
        reached[source] = beyond
    return skips
