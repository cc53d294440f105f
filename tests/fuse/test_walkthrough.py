"""The published algorithm step by step on the classic machine: breadth-first matching and the
greedy traversal.
"""

import pytest

from opu_fuse.dfg.graph import Kind, Node
from opu_fuse.fuse.matching.modules import Modules
from opu_fuse.fuse.strategies.greedy import _Traversal
from opu_fuse.hw.spec.hdfg import breadth_first, build_hdfg
from tests.fuse.reading import groups, machine, rules, split, worked


def test_the_search_is_breadth_first_from_the_root_or_from_the_last_match():
    hdfg = build_hdfg(machine("opu-classic"))
    head = ["concat", "add_pre", "mul_pre", "pad", "ipa", "mul", "add"]
    assert list(breadth_first(hdfg))[:7] == head
    assert list(breadth_first(hdfg, "add")) == [
        "compare",
        "pool_pad",
        "res_add",
        "pool",
        "upsample",
    ]
    assert list(breadth_first(hdfg, "pool")) == ["compare", "res_add", "upsample"]


@pytest.mark.parametrize(
    ("last", "op", "found"),
    [
        (None, "conv", "ipa"),
        ("ipa", "add", "add"),
        ("ipa", "relu", "compare"),
        ("add", "max_pool", "pool"),
        ("add", "add", "res_add"),
        ("compare", "add", "res_add"),
        ("compare", "conv", None),
        (None, "add", "add_pre"),
        (None, "concat", "concat"),
        ("concat", "conv", "ipa"),
        ("pool", "relu", "compare"),
        ("upsample", "relu", None),
    ],
)
def test_find_match_takes_the_nearest_module_of_the_right_kind(last, op, found):
    traversal = _Traversal(worked("G1"), machine("opu-classic"))
    traversal.last = last
    node = Node(index=0, kind=Kind.CALL, name=op, op=op)
    assert traversal._find_match(node) == (found is not None)
    assert traversal.last == (found or last)


def test_matched_passes_only_modules_that_data_may_pass_unused():
    modules = Modules(machine("opu-tiny"))
    assert modules.candidates(None, "relu") == ("compare",)
    assert modules.candidates(None, "add") == ("add", "res_add")
    assert modules.candidates("compare", "conv") == ()
    assert modules.candidates("add", "max_pool") == ("pool",)
    assert modules.candidates("compare", "relu", frozenset({"compare"})) == ()


def test_the_walk_visits_the_nearest_child_first_so_a_residual_joins_the_longer_branch():
    dfg, result = split("G15", "opu-classic", "greedy")
    assert groups(dfg, result)[1] == "conv_3:ipa add:add"


def test_a_second_input_is_never_visited():
    _, result = split("G8", "opu-classic", "greedy")
    assert result.violations[0].text.startswith("conv_b is in 0 groups")


def test_operators_nobody_knows_count_as_views_and_join_the_latest_group():
    dfg, result = split("circle", "opu-classic", "greedy")
    assert "sigmoid:-" in groups(dfg, result)[0]
    assert "known_operator" in rules(result)


def test_a_channel_widening_pad_is_pulled_into_the_adds_group_and_merged_with_the_other_branch():
    dfg, result = split("channel_pad", "opu-classic", "greedy")
    assert groups(dfg, result)[1] == "conv_1:ipa pad:pad add:add relu_1:compare"


def test_a_spatial_pad_is_not():
    dfg, result = split("G12", "opu-classic", "greedy")
    assert groups(dfg, result) == ["pad:pad add:add"]
