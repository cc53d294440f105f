"""Strategy `dominator`: FuseOps with its published examples, and what the machine makes of it."""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.strategies.fuseops import Limits, fuse_ops
from opu_fuse.fuse.strategies.pattern_kinds import PATTERNS, FusionGraph, Pattern, fusion_graph
from opu_fuse.fuse.strategies.postdom import ROOT, post_dominators
from opu_fuse.fuse.strategies.registry import partition
from opu_fuse.hw.spec.load_spec import spec_names
from opu_fuse.model.operators import OPERATORS as ONNX
from opu_fuse.passes import lookup
from tests.dfg import canonical
from tests.fuse import naive_fuseops, networks
from tests.fuse.random_graphs import graphs
from tests.fuse.reading import groups, machine, reasons, split
from tests.fuse.worked import GRAPHS

# Element-wise, broadcast, injective, reduction, anchor (kOutEWiseFusable), tuple, opaque.
E, B, J, R, A, T, X = Pattern
CONV = "Conv<kernel_shape=[3,3],pads=[1,1,1,1]>"
HEAD = "float[1,4,8,8] x, float[4,4,3,3] w1, float[4] b1"


def graph_of(*nodes: tuple[str, Pattern, str]) -> tuple[FusionGraph, list[str]]:
    """(name, kind, operands) in order; the last node is the result. Edges of broadcasts keep the
    shape.
    """
    names = [name for name, _, _ in nodes]
    users: list[list[tuple[int, Pattern]]] = [[] for _ in nodes]
    for index, (_, kind, operands) in enumerate(nodes):
        for operand in operands.split():
            edge = {T: J, B: E}.get(kind, kind)
            users[names.index(operand)].append((index, edge))
    found = FusionGraph(
        patterns=[kind for _, kind, _ in nodes],
        users=users,
        extern=[index == len(nodes) - 1 for index in range(len(nodes))],
        operands=[tuple(names.index(o) for o in operands.split()) for _, _, operands in nodes],
        parameter=[True] * len(nodes),
    )
    return found, names


def fused(*nodes: tuple[str, Pattern, str], **options: Any) -> list[str]:
    """Groups of more than one node, as sorted names."""
    graph, names = graph_of(*nodes)
    roots = fuse_ops(graph, **options)
    sets = [[n for n, r in zip(names, roots, strict=True) if r == root] for root in set(roots)]
    return sorted(" ".join(members) for members in sets if len(members) > 1)


def functions(dfg: Dfg, **options: Any) -> list[tuple[int, ...]]:
    """FuseOps by itself: the calls of every function, ascending, in the order of their last
    ones.
    """
    members: dict[int, list[int]] = {}
    roots = fuse_ops(fusion_graph(dfg), **options)
    for call in dfg.calls:
        members.setdefault(roots[call.index], []).append(call.index)
    return sorted((tuple(m) for m in members.values()), key=max)


def named(dfg: Dfg, **options: Any) -> list[list[str]]:
    return [[dfg[i].name for i in f] for f in functions(dfg, **options)]


def model(body: str) -> Dfg:
    constants = "<float low = {-0.5}, float high = {1.5}>"
    return build_dfg(canonical.canonical(f"g ({HEAD}) => (float[] y) {constants} {{ {body} }}"))


CHAIN = f"""[conv] a = {CONV}(x, w1, b1) [relu] r = Relu(a)
    [pool] y = MaxPool<kernel_shape=[2,2],strides=[2,2]>(r)"""


def test_example_1_convolution_bias_and_relu_are_one_function_and_the_pool_another():
    assert named(model(CHAIN)) == [["conv", "conv/bias", "relu"], ["pool"]]


DIAMOND = [
    ("x", X, ""),
    ("conv", A, "x"),
    ("left", E, "conv"),
    ("middle", E, "conv"),
    ("right", E, "conv"),
    ("sum", B, "left middle right"),
]


def test_example_2_three_branches_that_meet_are_one_function_with_the_convolution():
    assert fused(*DIAMOND) == ["conv left middle right sum"]


def test_example_2_an_opaque_branch_leaves_the_convolution_alone():
    softmax = [("middle", X, "conv") if n[0] == "middle" else n for n in DIAMOND]
    assert not any("conv" in group for group in fused(*softmax))


def test_example_2_on_a_model():
    body = f"""[conv] a = {CONV}(x, w1) [l] p = Relu(a) [m] q = Clip(a, low, high)
        [r] s = Sigmoid(a) [add_1] t = Add(p, q) [add_2] y = Add(t, s)"""
    assert [sorted(f) for f in named(model(body))] == [["add_1", "add_2", "conv", "l", "m", "r"]]
    opaque = body.replace("Sigmoid(a)", "Softmax<axis=1>(a)")
    assert ["conv"] in named(model(opaque))


def test_example_3_without_optimisation_every_operator_is_its_own_function():
    dfg = model(CHAIN)
    assert named(dfg, opt_level=0) == [["conv"], ["conv/bias"], ["relu"], ["pool"]]


SUMS = f"""[c2] d = Add(k, k) [c3] e = Mul(d, two) [conv] a = {CONV}(x, w1) [y] b = Add(a, e)
    [z] p = Add(b, k) [z1] q = Add(b, k) [out] y = Add(p, q)"""
"""y = conv(x, w) + (c + c) * 2; z = y + c; z1 = y + c; out = z + z1."""


def after(*passes: str) -> Dfg:
    found = canonical.canonical(
        f"g ({HEAD}, float[1,4,8,8] k) => (float[1,4,8,8] y) <float two = {{2.0}}> {{ {SUMS} }}"
    )
    for name in passes:
        found = lookup(name)(found).model
    return build_dfg(found)


def test_example_4_after_constant_folding_all_sums_go_with_the_convolution():
    (function,) = named(after("FoldConstant"))
    assert function == ["conv", "y", "z", "z1", "out"]


def test_example_4_with_common_subexpressions_removed_one_sum_is_added_to_itself():
    dfg = after("FoldConstant", "EliminateCommonSubexpr")
    (function,) = functions(dfg)
    assert [dfg[i].name for i in function] == ["conv", "y", "z", "out"]
    conv, _, z, out = function
    assert dfg[out].operands == (z, z)
    assert dfg[conv].op == "conv"


def test_a_reduction_takes_what_feeds_it_and_goes_no_further():
    nodes = [("x", X, ""), ("relu", E, "x"), ("mean", R, "relu"), ("exp", E, "mean")]
    assert fused(*nodes) == ["relu mean"]


def test_a_transpose_is_not_fused_behind_a_convolution():
    nodes = [("x", X, ""), ("conv", A, "x"), ("turn", J, "conv"), ("relu", E, "turn")]
    assert fused(*nodes) == ["turn relu"]


def test_two_convolutions_never_share_a_function():
    nodes = [("x", X, ""), ("a", A, "x"), ("b", A, "x"), ("sum", B, "a b"), ("relu", E, "sum")]
    assert fused(*nodes) == ["a sum relu"]


JOINED = [
    ("x", X, ""),
    ("left", E, "x"),
    ("right", E, "x"),
    ("fields", T, "left right"),
    ("concat", J, "fields"),
]


def test_fields_follow_a_tuple_that_was_fused_into_an_injective_operator():
    assert fused(*JOINED) == ["left right fields concat"]


def test_nothing_is_fused_into_a_tuple_that_stays_one():
    assert fused(*JOINED[:4], ("sort", X, "fields")) == []


def test_a_field_behind_a_convolution_stays_with_the_convolution():
    nodes = [("x", X, ""), ("conv", A, "x"), ("left", E, "conv"), ("right", E, "x"), *JOINED[3:]]
    assert fused(*nodes) == ["conv left", "right fields concat"]


def test_functions_do_not_grow_beyond_the_depth_limit():
    chain = [("x", X, ""), *((f"n{i}", E, f"n{i - 1}" if i else "x") for i in range(600))]
    sizes = [len(group.split()) for group in fused(*chain)]
    assert sum(sizes) == 600
    assert max(sizes) == 256
    few = [len(g.split()) for g in fused(*chain[:21], limits=Limits(max_fuse_depth=4))]
    assert few == [4] * 5


def test_functions_do_not_read_more_values_than_allowed():
    inputs = [(f"x{i}", X, "") for i in range(4)]
    total = [("s1", B, "x0 x1"), ("s2", B, "s1 x2"), ("s3", B, "s2 x3")]
    assert fused(*inputs, *total) == ["s1 s2 s3"]
    assert fused(*inputs, *total, limits=Limits(max_function_args=3)) == ["s1 s2"]
    assert fused(*inputs, *total, limits=Limits(max_function_args=2)) == []


def test_every_known_operator_has_a_kind():
    known = {op for name in spec_names() for op in machine(name).dataflow.operators}
    assert known <= set(PATTERNS)
    assert not set(PATTERNS.values()) & {T, X}
    assert T not in {operator.pattern for operator in ONNX.values()}


@st.composite
def fusion_graphs(draw: st.DrawFn, most: int = 14) -> FusionGraph:
    size = draw(st.integers(2, most))
    kinds = [X, *(draw(st.sampled_from([E, E, B, J, R, A, T, X])) for _ in range(size - 1))]
    users: list[list[tuple[int, Pattern]]] = [[] for _ in range(size)]
    operands = []
    for node in range(1, size):
        reads = draw(st.lists(st.integers(max(0, node - 4), node - 1), min_size=1, max_size=3))
        operands.append(tuple(dict.fromkeys(reads)))
        for read in reads:
            edge = J if kinds[node] is T else kinds[node]
            users[read].append((node, E if edge is B and draw(st.booleans()) else edge))
    extern = [not users[n] or draw(st.integers(0, 9)) == 0 for n in range(size)]
    return FusionGraph(
        patterns=kinds,
        users=users,
        extern=extern,
        operands=[(), *operands],
        parameter=[True] * size,
    )


@settings(max_examples=400, deadline=None)
@given(fusion_graphs(), st.sampled_from([3, 256]))
def test_it_equals_the_rules_written_down_plainly(graph, depth):
    roots = fuse_ops(graph, limits=Limits(max_fuse_depth=depth))
    found = {frozenset(n for n, r in enumerate(roots) if r == root) for root in set(roots)}
    assert found == naive_fuseops.groups(graph, depth)


@settings(max_examples=200, deadline=None)
@given(fusion_graphs(most=40))
def test_the_post_dominator_is_where_all_paths_to_the_results_meet(graph):
    tree = post_dominators(graph)
    for node, (parent, pattern) in enumerate(naive_fuseops.relations(graph)):
        assert tree.parent[node] == (ROOT if parent is None else parent)
        if parent is not None:
            assert tree.pattern[node] == pattern
            assert not reaches_a_result(graph, node, without=parent)


def reaches_a_result(graph: FusionGraph, node: int, without: int) -> bool:
    seen, todo = {without}, [node]
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        if graph.extern[at] or not graph.users[at]:
            return True
        todo += [user for user, _ in graph.users[at]]
    return False


# On a machine


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("hw", spec_names())
def test_the_worked_graphs_are_legal(name, hw):
    assert split(name, hw, "dominator")[1].violations == ()


@settings(max_examples=60, deadline=None)
@given(graphs(), st.sampled_from(spec_names()))
def test_groups_lie_within_functions_and_are_legal(text, name):
    dfg = build_dfg(canonical.canonical(text))
    result = partition(dfg, machine(name), "dominator")
    assert result.violations == ()
    function = {node: i for i, nodes in enumerate(functions(dfg)) for node in nodes}
    for group in result.groups:
        working = [m.node for m in group.matches if m.module is not None]
        assert len({function[n] for n in working}) == 1


def test_the_machine_could_fuse_the_pool_but_the_rules_keep_it_apart():
    dfg = model(CHAIN)
    result = partition(dfg, machine("opu-tiny"), "dominator")
    assert groups(dfg, result) == ["conv:ipa conv/bias:add relu:compare", "pool:pool"]
    assert (
        "FuseOps puts pool (kOutEWiseFusable) and relu (kElemWise) in two functions"
        in (reasons(dfg, result)["relu", "pool"])
    )


def test_a_function_that_uses_a_module_twice_is_cut():
    dfg = model(f"[conv] a = {CONV}(x, w1) [r1] b = Relu(a) [r2] c = Relu(b) [r3] y = Relu(c)")
    assert len(named(dfg)) == 1
    result = partition(dfg, machine("opu-tiny"), "dominator")
    assert groups(dfg, result) == ["conv:ipa r1:compare", "r2:compare", "r3:compare"]


def test_views_go_with_the_group_that_computes_their_bytes():
    dfg, result = split("G4_se", "opu-tiny", "dominator")
    assert "gap:pool flatten:-" in groups(dfg, result)


@pytest.mark.parametrize(("network", "count"), [("tiny_yolo", 15), ("resnet_20", 23)])
def test_networks_have_a_group_more_per_pool(network, count):
    dfg = build_dfg(canonical.canonical(getattr(networks, network)()))
    result = partition(dfg, machine("opu-classic"), "dominator")
    assert result.legal
    assert len(result.groups) == count


def test_long_skips_cost_a_logarithm():
    """Values read at both ends of a long chain: climbing step by step would take its length for
    each.
    """
    values, length = 2_000, 20_000
    first, last = values, values + length - 1
    users = [[(first, B), (last, B)] for _ in range(values)]
    users += [[(n + 1, E)] for n in range(first, last)] + [[]]
    graph = FusionGraph(
        patterns=[B] * len(users),
        users=users,
        extern=[n == last for n in range(len(users))],
        operands=[()] * len(users),
        parameter=[True] * len(users),
    )
    start = time.process_time()
    tree = post_dominators(graph)
    assert time.process_time() - start < 3
    assert set(tree.parent[:values]) == {last}
