"""The scheduler's answer to what does not fit: that group is not formed again."""

import dataclasses

import pytest

from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.explain.partition_json import partition_to_json
from opu_fuse.fuse.explain.partition_text import explain
from opu_fuse.fuse.strategies.registry import partition
from opu_fuse.pipeline import fuse_and_tile
from tests.dfg import canonical
from tests.fuse.reading import groups, machine, on_host, reasons, worked


def nodes(dfg: Dfg, *names: str) -> tuple[int, ...]:
    return tuple(n.index for n in dfg.calls if n.name in names)


@pytest.mark.parametrize("strategy", ["matched", "none"])
def test_a_forbidden_group_is_cut_before_the_operator_that_made_it_too_large(strategy):
    dfg = worked("G1")
    forbidden = nodes(dfg, "conv", "conv/bias", "relu_1", "pool_1")
    result = partition(dfg, machine("opu-tiny"), strategy, frozenset({forbidden}))
    assert result.legal
    assert all(tuple(m.node for m in g.matches) != forbidden for g in result.groups)
    if strategy == "matched":
        assert groups(dfg, result) == [
            "conv:ipa conv/bias:add relu_1:compare",
            "pool_1:pool relu_2:compare",
            "pool_2:pool",
        ]
        assert (
            reasons(dfg, result)["relu_1", "pool_1"]
            == "conv + conv/bias + relu_1 + pool_1 together do not fit the machine"
        )


def test_the_order_in_which_the_nodes_are_given_does_not_matter():
    dfg = worked("G1")
    forbidden = nodes(dfg, "conv", "conv/bias", "relu_1")
    plain = partition(dfg, machine("opu-tiny"), forbid=frozenset({forbidden}))
    turned = partition(dfg, machine("opu-tiny"), forbid=frozenset({forbidden[::-1]}))
    assert plain == turned
    assert groups(dfg, plain)[0] == "conv:ipa conv/bias:add"


def test_an_operator_that_may_not_even_stand_alone_goes_to_the_host():
    dfg = worked("G1")
    result = partition(
        dfg, machine("opu-tiny"), forbid=frozenset({nodes(dfg, "conv", "conv/bias")})
    )
    assert result.legal
    assert on_host(dfg, result)["conv"] == "conv + conv/bias together do not fit the machine"


def test_a_single_operator_does_not_fit_by_itself():
    text = "g (float[1,4,8,8] x) => (float[1,4,8,8] y) { [r] y = Relu(x) }"
    dfg = build_dfg(canonical.quantised(text).model)
    result = partition(dfg, machine("opu-tiny"), forbid=frozenset({nodes(dfg, "r")}))
    assert on_host(dfg, result)["r"] == "r does not fit the machine"


def test_forbidding_again_and_again_ends_with_single_operators():
    dfg, hw = worked("G5"), machine("opu-tiny")
    forbid: set[tuple[int, ...]] = set()
    long, result = [], None
    for _ in range(20):
        result = partition(dfg, hw, forbid=frozenset(forbid))
        long = [
            g for g in result.groups if len({dfg[m.node].owner or m.node for m in g.matches}) > 1
        ]
        if not long:
            break
        forbid |= {tuple(sorted(m.node for m in g.matches)) for g in long}
    assert result
    assert not long
    assert groups(dfg, result) == groups(dfg, partition(dfg, hw, "none"))


def test_the_pipeline_says_which_buffer_was_too_small_and_what_to_raise():
    """A sum and a pool over all of it do not fit; both alone do."""
    text = """g (float[1,4,23,17] x, float[1,4,23,17] z) => (float[1,4,1,1] y) {
        [add] a = Add(x, z)
        [gap] y = GlobalAveragePool(a) }"""
    hw = machine("opu-tiny")
    small = {
        name: dataclasses.replace(getattr(hw.buffers, name), words=16)
        for name in ("psum", "output")
    }
    hw = dataclasses.replace(hw, buffers=dataclasses.replace(hw.buffers, **small))
    dfg = build_dfg(canonical.quantised(text).model)
    result = fuse_and_tile(dfg, hw, "matched").partition
    assert groups(dfg, result) == ["add:res_add", "gap:pool"]
    (boundary,) = result.boundaries
    assert boundary.reason == (
        "add + gap together do not fit the machine: its smallest tile needs 391 words of the "
        "feature buffer, a bank holds 128; raise buffers.feature.words in the spec, or split the "
        "operator"
    )
    assert partition_to_json(dfg, hw, result)["boundaries"][0]["reason"] == boundary.reason
    assert any(
        "391 words of the feature buffer" in line for line in explain(dfg, hw, result, "gap")
    )
