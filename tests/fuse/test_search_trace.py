"""`--explain NODE`: all that was tried for one operator, in the order of the search."""

import json

import pytest
import yaml
from hypothesis import given, settings

from opu_fuse.dfg.build import build_dfg
from opu_fuse.errors import DoesNotFit
from opu_fuse.fuse.explain.partition_json import partition_to_json
from opu_fuse.fuse.explain.partition_text import explain
from opu_fuse.fuse.explain.search_trace import Outcome, search_trace, trials
from opu_fuse.fuse.matching.context import context_of
from opu_fuse.fuse.partition import Partition
from opu_fuse.fuse.strategies.registry import partition
from opu_fuse.hw.spec.load_spec import load_hw_text
from tests.dfg import canonical
from tests.fuse.networks import resnet_20
from tests.fuse.random_graphs import graphs as random_graphs
from tests.fuse.reading import machine, split, worked
from tests.fuse.rule_cases import CONV, limited
from tests.some import some

BLOCK = f"""block (float[1,4,8,8] x, float[4,4,3,3] w1, float[4] b1, float[4,4,3,3] w2)
    => (float[1,4,2,2] y) {{
    [conv_1] a = {CONV}(x, w1, b1)
    [relu_1] r = Relu(a)
    [conv_2] c = {CONV}(r, w2)
    [add] d = Add(c, r)
    [pool] p = MaxPool<kernel_shape=[5,5],pads=[2,2,2,2]>(d)
    [sigmoid] s = Sigmoid(p)
    [relu_2] t = Relu(s)
    [pool_2] y = MaxPool<kernel_shape=[2,2],strides=[4,4]>(t) }}"""


def block():
    """A residual block whose pooling is larger than the machine's limit."""
    dfg = build_dfg(canonical.canonical(BLOCK))
    hw = limited(machine("opu-tiny"), "pool", window=3)
    return dfg, hw, partition(dfg, hw)


def test_the_whole_block_in_words(golden):
    dfg, hw, result = block()
    golden("explain.txt", "\n".join(explain(dfg, hw, result)))
    golden("partition.json", json.dumps(partition_to_json(dfg, hw, result), indent=1))


@pytest.mark.parametrize("name", ["conv_1", "conv_1/bias", "conv_2", "add", "pool", "relu_2"])
def test_the_story_of_an_operator_of_the_block(name, golden):
    dfg, hw, result = block()
    golden("story.txt", "\n".join(explain(dfg, hw, result, name)))


@pytest.mark.parametrize("strategy", ["none", "greedy", "optimal", "dominator"])
def test_the_story_gives_the_reason_of_the_strategy(strategy, golden):
    dfg, result = split("G4", "opu-classic", strategy)
    hw = machine("opu-classic")
    names = ("pool", "upsample", "concat")
    golden("story.txt", "\n".join(line for n in names for line in explain(dfg, hw, result, n)))


def test_the_story_is_data():
    dfg, hw, result = block()
    told = search_trace(context_of(dfg, hw), result, next(n for n in dfg.calls if n.name == "pool"))
    assert told.kinds == ("pool",)
    behind, alone = told.attempts
    assert dfg[some(behind.source)].name == "add"
    assert (behind.group, behind.at) == (1, "res_add")
    assert [(t.module, t.outcome) for t in behind.trials] == [
        ("compare", Outcome.BLOCKED),
        ("pool", Outcome.REFUSED),
    ]
    assert behind.trials[1].why[0].limit == "3×3"
    assert some(behind.why).rule == "host_operator"
    assert alone.source is None
    assert [t.module for t in alone.trials] == [
        "concat", "pad", "ipa", "add", "compare", "pool", "res_add"
    ]  # fmt: skip
    assert some(alone.why).rule == "limits"
    assert [(dfg[target].name, why.rule) for target, why in told.next] == []


def test_a_node_of_the_users_model_tells_all_its_operators():
    dfg, hw, result = block()
    lines = explain(dfg, hw, result, "relu_2")
    assert lines[0].startswith("relu_2 (relu): group 2, module compare")


def test_what_the_scheduler_forbade_is_told_with_its_numbers():
    dfg, hw = worked("G1"), machine("opu-tiny")
    names = ("conv", "conv/bias", "relu_1", "pool_1")
    nodes = tuple(n.index for n in dfg.calls if n.name in names)
    error = DoesNotFit("conv", "its smallest tile needs 391 words, a bank holds 128", "raise that")
    result = partition(dfg, hw, forbid={nodes: error})
    lines = explain(dfg, hw, result, "pool_1")
    said = "its smallest tile needs 391 words, a bank holds 128; raise that"
    assert f"  forbidden by the scheduler: {' + '.join(names)}: {said}" in lines
    together = "conv + conv/bias + relu_1 + pool_1 together do not fit the machine"
    assert f"  after relu_1 in group 0 at compare: {together}: {said}" in lines
    assert "    pool (pool): taken" in lines


def test_a_group_that_fits_no_tile_is_foretold():
    text = """g (float[1,4,23,17] x, float[1,4,23,17] z) => (float[1,4,1,1] y) {
        [add] a = Add(x, z)
        [gap] y = GlobalAveragePool(a) }"""
    dfg = build_dfg(canonical.canonical(text))
    tree = machine("opu-tiny").to_tree()
    tree["buffers"]["psum"]["words"] = 64
    hw = load_hw_text(yaml.safe_dump(tree))
    lines = explain(dfg, hw, partition(dfg, hw), "gap")
    foretold = "  compile will not keep this group: its smallest tile needs "
    assert any(line.startswith(foretold) for line in lines)


@settings(max_examples=30)
@given(random_graphs())
def test_the_story_agrees_with_the_search_of_matched(text):
    dfg, hw = build_dfg(canonical.canonical(text)), machine("opu-classic")
    result = partition(dfg, hw)
    context = context_of(dfg, hw)
    module_of = {m.node: m.module for g in result.groups for m in g.matches}
    on_host = {h.node for h in result.host}
    for node in dfg.calls:
        told = search_trace(context, result, node)
        taken = [a for a in told.attempts if a.why is None]
        assert len(taken) == (node.index not in on_host)
        if taken and not node.is_virtual:
            last = taken[0].trials[-1]
            assert (last.module, last.outcome) == (module_of[node.index], Outcome.TAKEN)
        assert all("{" not in line for line in explain(dfg, hw, result, node.name))


@pytest.mark.parametrize("hw", ["opu-tiny", "opu-classic"])
def test_modules_are_met_in_the_order_of_the_search(hw):
    compared = 0
    for name in ("G1", "G2", "G5", "G9"):
        context = context_of(worked(name), machine(hw))
        start = context.modules.start
        behind = start.after("ipa")
        places = [start, behind, behind.after("add"), start.after("compare")]
        for state in places:
            for node in worked(name).calls:
                met = list(trials(context, state, node))
                tried = [t.module for t in met if t.outcome in {Outcome.REFUSED, Outcome.TAKEN}]
                candidates = list(state.candidates(node.op))
                ended = bool(met) and met[-1].outcome is Outcome.TAKEN
                assert tried == (candidates[: len(tried)] if ended else candidates)
                compared += bool(tried)
    assert compared > 20


def test_reasons_of_a_network_are_made_when_they_are_read(monkeypatch):
    """Partitioning words nothing: 100 000 operators would not wait for sentences."""
    from opu_fuse.fuse.rules import refusal

    def worded(*_):
        raise AssertionError("a sentence was made")

    dfg = build_dfg(canonical.canonical(resnet_20()))
    monkeypatch.setattr(refusal.Refusal, "text", property(worded))
    monkeypatch.setattr(refusal, "template", worded)
    result = partition(dfg, machine("opu-classic"))
    assert isinstance(result, Partition)
    assert len(result.boundaries) > 20
    with pytest.raises(AssertionError, match="a sentence was made"):
        result.boundaries[0].reason  # noqa: B018  reading it makes the sentence
