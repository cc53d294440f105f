"""The verifier finds what is wrong with a partition, whoever made it: here partitions are made
wrong by hand.
"""

import dataclasses

import pytest

from opu_fuse.errors import PartitionError, UserError
from opu_fuse.fuse.group_order import execution_order
from opu_fuse.fuse.matching.context import context_of
from opu_fuse.fuse.partition import Group, Match, Violation
from opu_fuse.fuse.strategies.registry import partition, require_legal
from opu_fuse.fuse.verify import verify
from tests.fuse.reading import hosted, machine, split, worked


def by_hand(name: str, *chains: str, host: tuple[str, ...] = ()) -> tuple[Violation, ...]:
    """Verdict on groups written as `conv:ipa relu:compare`, on opu-classic."""
    dfg = worked(name)
    index = {n.name: n.index for n in dfg.calls}
    groups = []
    for i, text in enumerate(chains):
        pairs = [item.split(":") for item in text.split()]
        matches = tuple(Match(node=index[n], module=None if m == "-" else m) for n, m in pairs)
        last = matches[-1].node
        groups.append(Group(index=i, matches=matches, inputs=(), constants=(), outputs=(last,)))
    hosts = [hosted(index[n]) for n in host]
    return verify(context_of(dfg, machine("opu-classic")), groups, hosts)


def texts(found: tuple[Violation, ...]) -> dict[str, str]:
    return {v.rule: v.text for v in found}


def test_a_correct_partition_has_no_violations():
    assert by_hand("G15", "conv_1:ipa relu:compare", "conv_3:ipa add:res_add") == ()


def test_every_operator_is_placed_exactly_once():
    found = by_hand("G15", "conv_1:ipa relu:compare", "conv_3:ipa", "add:res_add relu:compare")
    assert texts(found)["placed_once"] == "relu is in 2 groups or host operators, it belongs in one"
    found = by_hand("G15", "conv_3:ipa add:res_add", host=("relu",))
    assert (
        texts(found)["placed_once"] == "conv_1 is in 0 groups or host operators, it belongs in one"
    )


def test_an_operator_must_read_what_the_pipeline_brings():
    found = by_hand(
        "G6", "conv_0:ipa relu:compare", "concat:concat conv_9:ipa pool:pool", "conv_b0:ipa"
    )
    assert texts(found)["reads_tail"].startswith("pool does not read conv_9")


def test_an_interior_value_that_others_read_is_found():
    found = by_hand("G14", "conv_1:ipa relu:compare", "conv_2:ipa")
    assert found == ()
    found = by_hand("G10", "conv:ipa conv/bias:add relu:compare pool:pool", "add:res_add")
    assert (
        texts(found)["interior_reader"]
        == "relu is computed inside group 0, but add needs its value"
    )


def test_a_group_stores_one_value():
    _, result = split("two_outputs", "opu-classic", "greedy")
    text = {v.rule: v.text for v in result.violations}["one_result"]
    assert text == "group 0 has 2 results (relu, pool), a group stores one"


def test_a_bias_runs_right_behind_its_convolution():
    found = by_hand(
        "G1", "conv:ipa", "conv/bias:add relu_1:compare pool_1:pool", "relu_2:compare pool_2:pool"
    )
    text = "conv/bias must run directly after conv, which owns it"
    assert texts(found)["owned_bias_stays"] == text


def test_groups_that_wait_for_each_other_are_found_and_left_out_of_the_order():
    dfg, result = split("G5", "opu-classic", "greedy")
    violation = next(v for v in result.violations if v.rule == "acyclic")
    assert violation.text.startswith("group 0, group 1 wait for each other in a circle (conv_1")
    assert execution_order(dfg, result) == ()


def test_a_module_used_twice_is_found():
    whole = "conv:ipa conv/bias:add relu_1:compare pool_1:pool relu_2:compare pool_2:pool"
    assert [v.text for v in by_hand("G1", whole)] == [
        "compare already runs an operator of this group",
        "pool pools in this group already, pool would pool its windows",
    ]


def test_a_bias_on_a_module_for_int8_values_is_found():
    chains = (
        "conv:ipa conv/bias:add_pre",
        "relu_1:compare pool_1:pool",
        "relu_2:compare pool_2:pool",
    )
    assert [v.rule for v in by_hand("G1", *chains)] == ["domain", "pipeline_path"]


def test_a_step_back_in_the_pipeline_is_found():
    found = by_hand("G11", "conv:ipa conv/bias:add relu:compare pad:pad pool:pool")
    steps = [v.text for v in found if v.rule == "pipeline_path"]
    assert steps[0] == "pad cannot follow compare in this machine's pipeline"


def test_a_view_needs_a_group_that_computes_it():
    found = by_hand("G7", "conv_0:ipa relu_0:compare", "conv_h1:ipa relu_1:compare", "flatten:-")
    assert texts(found)["no_group"] == "flatten is a view of relu_0, which no group computes"


def test_compiling_an_illegal_partition_is_refused_with_its_first_violation():
    dfg = worked("G2")
    result = partition(dfg, machine("opu-classic"), "greedy")
    with pytest.raises(
        PartitionError, match=r"strategy greedy: res_add already runs .*use strategy='matched'"
    ):
        require_legal(dfg, result)
    require_legal(dfg, partition(dfg, machine("opu-classic")))


def test_an_unknown_strategy_is_named():
    text = "strategy 'magic': there is no such choice; use one of none, greedy, matched"
    with pytest.raises(UserError, match=text):
        partition(worked("G1"), machine("opu-tiny"), "magic")


def test_the_verdict_does_not_depend_on_what_the_strategy_claims():
    dfg, result = split("G1", "opu-classic")
    swapped = [dataclasses.replace(g, matches=tuple(reversed(g.matches))) for g in result.groups]
    assert "reads_tail" in texts(
        verify(context_of(dfg, machine("opu-classic")), swapped, result.host)
    )
