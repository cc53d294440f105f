"""Every graph on which matching by pipeline position fails: what `greedy` does to it, and that
`matched` gets it right.
"""

import pytest

from opu_fuse.fuse.group_order import execution_order
from tests.fuse.reading import groups, on_host, reasons, rules, split, worked
from tests.fuse.worked import GRAPHS

MATCHED = {
    "G1": ["conv:ipa conv/bias:add relu_1:compare pool_1:pool", "relu_2:compare pool_2:pool"],
    "G2": ["conv:ipa conv/bias:add add_1:res_add relu:compare", "add_2:res_add"],
    "G3": ["conv:ipa add:res_add relu:compare"],
    "G4": [
        "conv_1:ipa conv_1/bias:add relu:compare",
        "pool:pool",
        "conv_2:ipa conv_2/bias:add upsample:upsample",
        "concat:concat",
    ],
    "G4_se": [
        "conv:ipa conv/bias:add relu:compare",
        "gap:pool flatten:-",
        "fc:ipa fc/bias:add",
    ],
    "G5": [
        "conv_1:ipa conv_1/bias:add relu:compare",
        "pool:pool",
        "conv_2:ipa conv_2/bias:add add:res_add",
    ],
    "G6": ["conv_0:ipa relu:compare", "conv_b0:ipa", "pool:pool", "concat:concat conv_9:ipa"],
    "G7": ["conv_0:ipa relu_0:compare", "conv_h1:ipa relu_1:compare"],
    "G8": ["conv_a:ipa", "conv_b:ipa add:res_add"],
    "G9": ["scale:mul_pre", "shift:add_pre relu:compare", "conv:ipa"],
    "G9_concat": ["concat:concat relu:compare", "conv:ipa"],
    "G10": ["conv:ipa conv/bias:add relu:compare", "pool:pool add:res_add"],
    "G11": ["conv:ipa conv/bias:add relu:compare", "pad:pool_pad pool:pool"],
    "G12": ["pad:pad", "conv:ipa add:res_add"],
    "G13": ["conv:ipa"],
    "G14": ["conv_1:ipa relu:compare", "conv_2:ipa"],
    "G15": ["conv_1:ipa relu:compare", "conv_3:ipa add:res_add"],
    "two_outputs": ["conv:ipa relu:compare", "pool:pool"],
    "circle": ["conv:ipa relu:compare", "add:res_add"],
    "channel_pad": ["conv_0:ipa relu_0:compare", "conv_1:ipa add:res_add relu_1:compare"],
}

# What the published algorithm makes of them: (groups, broken rules). Its defects are part of it.
GREEDY = {
    "G1": (
        ["conv:ipa conv/bias:add relu_1:compare pool_1:pool relu_2:compare pool_2:pool"],
        ["used_once", "one_window"],
    ),
    "G2": (
        ["conv:ipa conv/bias:add add_1:res_add relu:compare add_2:res_add"],
        ["used_once"],
    ),
    "G3": (["conv:ipa add:add relu:compare"], ["domain"]),
    "G4": (
        [
            "conv_1:ipa conv_1/bias:add relu:compare pool:pool",
            "conv_2:ipa conv_2/bias:add upsample:upsample",
            "concat:concat",
        ],
        ["interior_reader", "one_result"],
    ),
    "G4_se": (
        [
            "conv:ipa conv/bias:add relu:compare gap:pool flatten:-",
            "fc:ipa fc/bias:add sigmoid:- unflatten:-",
            "scale:mul_pre",
        ],
        ["interior_reader", "one_result", "known_operator", "constant_operand"],
    ),
    "G5": (
        [
            "conv_1:ipa conv_1/bias:add relu:compare pool:pool add:res_add",
            "conv_2:ipa conv_2/bias:add",
        ],
        ["interior_reader", "one_result", "acyclic"],
    ),
    "G6": (
        ["conv_0:ipa relu:compare", "conv_b0:ipa", "concat:concat conv_9:ipa pool:pool"],
        ["reads_tail", "interior_reader"],
    ),
    "G7": (
        ["conv_0:ipa relu_0:compare", "conv_h1:ipa relu_1:compare flatten:-"],
        ["reads_tail", "interior_reader", "one_result"],
    ),
    "G8": (["conv_a:ipa add:add"], ["placed_once", "domain"]),
    "G9": (["scale:mul_pre shift:add relu:compare", "conv:ipa"], ["domain"]),
    "G9_concat": (["concat:concat relu:compare", "conv:ipa"], []),
    "G10": (
        ["conv:ipa conv/bias:add relu:compare pool:pool add:res_add"],
        ["other_operand"],
    ),
    "G11": (["conv:ipa conv/bias:add relu:compare", "pad:pad pool:pool"], ["fill_value"]),
    "G12": (["pad:pad add:add"], ["placed_once", "domain"]),
    "G13": (
        ["split:- conv:ipa"],
        ["known_operator", "reads_tail", "interior_reader", "one_result"],
    ),
    "G14": (["conv_1:ipa relu:compare", "conv_2:ipa"], []),
    "G15": (["conv_1:ipa relu:compare", "conv_3:ipa add:add"], ["domain"]),
    "two_outputs": (
        ["conv:ipa relu:compare pool:pool"],
        ["reads_tail", "interior_reader", "one_result"],
    ),
    "circle": (
        ["conv:ipa relu:compare sigmoid:- add:res_add"],
        ["known_operator", "other_operand"],
    ),
    "channel_pad": (
        ["conv_0:ipa relu_0:compare", "conv_1:ipa pad:pad add:add relu_1:compare"],
        [
            "spatial_pad",
            "reads_tail",
            "pipeline_path",
            "domain",
            "other_operand",
            "pipeline_path",
        ],
    ),
}


def test_no_worked_graph_is_forgotten():
    assert set(MATCHED) == set(GREEDY) == set(GRAPHS)


@pytest.mark.parametrize("name", GRAPHS)
def test_matched_gets_it_right(name):
    dfg, result = split(name, "opu-classic")
    assert groups(dfg, result) == MATCHED[name]
    assert result.violations == ()


@pytest.mark.parametrize("name", GRAPHS)
def test_greedy_does_what_was_published(name):
    dfg, result = split(name, "opu-classic", "greedy")
    assert (groups(dfg, result), rules(result)) == GREEDY[name]
    assert result.legal == (not GREEDY[name][1])


@pytest.mark.parametrize("hw", ["opu-tiny", "opu-1024", "opu-classic"])
@pytest.mark.parametrize("strategy", ["matched", "none"])
@pytest.mark.parametrize("name", GRAPHS)
def test_legal_on_every_machine(name, strategy, hw):
    dfg, result = split(name, hw, strategy)
    assert result.violations == ()
    placed = [m.node for g in result.groups for m in g.matches] + [h.node for h in result.host]
    assert sorted(placed) == [n.index for n in dfg.calls]
    assert len(execution_order(dfg, result)) == len(result.groups) + len(result.host)


@pytest.mark.parametrize("name", GRAPHS)
def test_none_keeps_operators_apart_but_never_a_bias_from_its_convolution(name):
    dfg, result = split(name, strategy="none")
    for group in result.groups:
        working = [m for m in group.matches if m.module and dfg[m.node].owner is None]
        assert len(working) == 1


@pytest.mark.parametrize(
    ("name", "edge", "reason"),
    [
        ("G1", ("pool_1", "relu_2"), "compare already runs an operator of this group"),
        ("G2", ("relu", "add_2"), "res_add already runs an operator of this group"),
        ("G5", ("pool", "add"), "add continues conv_2/bias, and reads pool from memory"),
        ("G6", ("relu", "pool"), "relu is also read by conv_b0, so its value is needed in memory"),
        ("G8", ("conv_a", "add"), "add continues conv_b, and reads conv_a from memory"),
        ("G10", ("relu", "pool"), "relu is also read by add, so its value is needed in memory"),
        ("G11", ("relu", "pad"), "pad cannot follow compare in this machine's pipeline"),
        (
            "G13",
            ("split", "conv"),
            "split runs on the host (split: no module of this machine runs it)",
        ),
        (
            "G14",
            ("relu", "conv_2"),
            "relu is an output of the model, so its value is needed in memory",
        ),
        ("G15", ("relu", "conv_3"), "ipa already runs an operator of this group"),
    ],
)
def test_every_boundary_says_why(name, edge, reason):
    dfg, result = split(name)
    assert reasons(dfg, result)[edge] == reason


def test_a_lone_batch_norm_stays_on_the_host_and_says_which_module_is_missing():
    dfg, result = split("G9")
    host = on_host(dfg, result)
    assert host["scale"] == "multiply: no module of this machine runs it"
    assert "shift works on int8 values, module add on accumulators" in host["shift"]
    assert "module res_add reads it as a full feature map" in host["shift"]


def test_a_view_that_others_need_too_is_made_by_the_host():
    dfg, result = split("G7")
    assert on_host(dfg, result) == {
        "flatten": "relu_0 is also read by conv_h1, so its value is needed in memory"
    }


def test_groups_state_what_crosses_their_border():
    dfg, result = split("G5", "opu-classic")
    crossing = [
        ([dfg[i].value for i in g.inputs], [dfg[i].name for i in g.constants])
        for g in result.groups
    ]
    assert crossing == [(["x"], ["w1", "b1"]), (["r"], []), (["r", "p"], ["w2", "b2"])]
    assert [[dfg[i].value for i in g.outputs] for g in result.groups] == [["r"], ["p"], ["y"]]


def test_bias_and_residual_are_told_apart_by_the_operand_not_by_the_name():
    dfg, result = split("G3", "opu-classic")
    assert groups(dfg, result) == ["conv:ipa add:res_add relu:compare"]
    dfg, result = split("G2", "opu-classic")
    assert "conv/bias:add add_1:res_add" in groups(dfg, result)[0]


def test_the_residual_add_joins_the_longer_branch():
    """G12: the pad is one operator, like the convolution; the later one is continued."""
    dfg = worked("G5")
    names = [n.name for n in dfg.calls]
    assert names.index("pool") < names.index("conv_2/bias")
    _, result = split("G5")
    assert groups(dfg, result)[-1].endswith("conv_2/bias:add add:res_add")
