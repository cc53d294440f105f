"""The graph of a report's page has every edge of the network once, in layers."""

import networkx as nx

from opu_fuse.report.page.layered_graph import layered_graph, skipping


def by_name(graph, edges):
    return {(graph.names[a], graph.names[b]) for a, b in edges}


def test_operands_precede_readers_whatever_the_order_of_the_program():
    graph = layered_graph(["c", "a", "b"], [("a", "b"), ("b", "c")])
    assert graph.names == ("a", "b", "c")
    assert graph.edges == ((0, 1), (1, 2))
    assert layered_graph(["x", "y"], []).names == ("x", "y")
    assert layered_graph([], []).names == ()


def test_an_edge_skips_where_there_is_a_longer_path():
    edges = [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("a", "d"), ("b", "e")]
    graph = layered_graph(list("abcde"), edges)
    assert by_name(graph, skipping(graph)) == {("a", "c"), ("a", "d")}


def test_skips_are_what_transitive_reduction_removes(rng):
    for _ in range(50):
        count = int(rng.integers(2, 14))
        names = [f"n{i}" for i in range(count)]
        pairs = [(a, b) for a in range(count) for b in range(a + 1, count) if rng.random() < 0.3]
        graph = layered_graph(names, [(names[a], names[b]) for a, b in pairs])
        whole = nx.DiGraph(graph.edges)
        rest = set(nx.transitive_reduction(whole).edges)
        assert skipping(graph) == set(graph.edges) - rest


def test_operands_with_common_readers_meet_in_a_join():
    """The four branches of an inception block, whose concatenation the compiler removes."""
    branches, readers = ["b1", "b2", "b3"], ["r1", "r2"]
    edges = [("in", b) for b in branches] + [(b, r) for r in readers for b in branches]
    graph = layered_graph(["in", *branches, *readers], edges)
    (join,) = graph.joins
    assert by_name(graph, graph.edges) == {
        *(("in", b) for b in branches),
        *((b, join) for b in branches),
        *((join, r) for r in readers),
    }
    assert graph.names.index("b3") < graph.names.index(join) < graph.names.index("r1")


def test_a_single_reader_or_a_single_operand_needs_no_join():
    edges = [("a", "s"), ("b", "s"), ("s", "x"), ("s", "y"), ("a", "y")]
    graph = layered_graph(["a", "b", "s", "x", "y"], edges)
    assert graph.joins == frozenset()
    assert by_name(graph, graph.edges) == set(edges)
