"""Every rule is broken by a smallest graph, and says so with names and numbers."""

import dataclasses

import pytest
import yaml

from opu_fuse.dfg.build import build_dfg
from opu_fuse.fuse.explain import boundaries
from opu_fuse.fuse.explain.rulebook import RULEBOOK
from opu_fuse.fuse.matching.context import context_of
from opu_fuse.fuse.partition import Group, Match
from opu_fuse.fuse.strategies.registry import partition
from opu_fuse.hw.spec.load_spec import load_hw_text
from tests.dfg import canonical
from tests.fuse.reading import machine, on_host, reasons
from tests.fuse.rule_cases import CASES, CLASSIC, CONV, TINY, case, graph, limited, refusal
from tests.some import some

ELSEWHERE = {
    "forbidden": "test_forbid.py",
    **dict.fromkeys(("interior_value", "one_operator", "search_order", "owner_on_host"), "below"),
    **dict.fromkeys(("costs_more", "continues_target", "fits_no_tile"), "test_optimal.py"),
    **dict.fromkeys(("whole_words", "zero_lanes"), "networks/test_attention.py"),
    "other_function": "test_dominator.py",
    "copied": "test_copies.py",
    "only_clamps": "test_requantise.py",
    "unreachable": "below",
    "one_window": "below",
    "model_input": "test_story.py",
    **dict.fromkeys(
        ("placed_once", "reads_tail", "interior_reader", "one_result"), "test_verify.py"
    ),
    **dict.fromkeys(("owned_bias_stays", "acyclic"), "test_verify.py"),
}


def test_every_rule_has_its_case():
    written = {rule.__name__ for section in RULEBOOK for rule in section.rules}
    assert set(CASES) | set(ELSEWHERE) == written


@pytest.mark.parametrize("rule", CASES)
def test_the_rule_is_worded_with_names_and_numbers(rule):
    found = refusal(rule, *case(rule))
    assert (
        CASES[rule][4] in some(found).text
    )  # where several modules could run it, each says why not


def test_a_second_pool_begins_a_pass_on_machines_that_are_built():
    tree = machine(TINY).to_tree()
    tree["dataflow"]["modules"]["late"] = {"kind": "pool", "exit": True, "limits": {"dilation": 1}}
    tree["dataflow"]["edges"]["pool"] = ["late"]
    pool = "MaxPool<kernel_shape=[2,2]>"
    dfg = graph(f"[p] a = {pool}(x) [q] y = {pool}(a)")
    (found,) = partition(dfg, load_hw_text(yaml.safe_dump(tree))).boundaries
    assert found.why.rule == "one_window"
    assert found.why.text == "pool pools in this group already, late would pool its windows"
    free = load_hw_text(yaml.safe_dump(tree | {"build": False}))
    assert partition(dfg, free).boundaries == ()


def test_limits_are_inclusive():
    dfg = graph("[p] y = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(x)")
    assert partition(dfg, limited(machine(TINY), "pool", window=3)).host == ()


@pytest.mark.parametrize(
    ("limit", "body"),
    [
        ("kernel", "[n] y = Conv<kernel_shape=[3,3]>(x, w1)"),
        ("stride", "[n] y = Conv<kernel_shape=[3,3],strides=[1,2]>(x, w1)"),
        ("dilation", "[n] y = Conv<kernel_shape=[3,3],dilations=[2,1]>(x, w1)"),
        ("padding", "[n] y = Conv<kernel_shape=[3,3],pads=[0,0,0,2]>(x, w1)"),
    ],
)
def test_every_limit_of_the_array_counts(limit, body):
    dfg = graph(body)
    assert partition(dfg, limited(machine(TINY), "ipa", **{limit: 3})).host == ()
    result = partition(dfg, limited(machine(TINY), "ipa", **{limit: 1}))
    assert f"n has {limit}" in on_host(dfg, result)["n"]


def test_a_convolution_whose_bias_no_module_adds_stays_on_the_host_with_it():
    dfg = graph("[c] y = " + CONV + "(x, w1, b1)")
    hw = machine(TINY)
    modules = {k: v for k, v in hw.dataflow.modules.items() if k != "add"}
    edges = {
        k: tuple(t for t in v if t != "add") for k, v in hw.dataflow.edges.items() if k != "add"
    }
    edges["ipa"] = ("compare", "pool", "res_add")
    flow = dataclasses.replace(hw.dataflow, modules=modules, edges=edges)
    result = partition(dfg, dataclasses.replace(hw, dataflow=flow))
    assert set(on_host(dfg, result)) == {"c", "c/bias"}
    why = "c/bias works on accumulators (like a convolution's bias), module res_add on int8 values"
    assert on_host(dfg, result)["c"] == why
    assert on_host(dfg, result)["c/bias"] == f"c, which owns this bias, runs on the host ({why})"
    help_ = (
        "add a module of kind adder (`domain: acc, operand: per_channel, exit: true`) after "
        "ipa to `dataflow.modules` and `dataflow.edges`"
    )
    assert {h.why.help for h in result.host} == {help_}


def test_flattening_before_a_dense_layer_costs_nothing():
    text = """g (float[1,4,3,3] x, float[5,36] w1) => (float[1,5] y) <int64[2] flat = {1, 36}> {
        [r] a = Relu(x)
        [f] b = Reshape(a, flat)
        [d] y = Gemm<transB=1>(b, w1) }"""
    dfg = build_dfg(canonical.canonical(text))
    result = partition(dfg, machine(TINY))
    assert [[dfg[m.node].name for m in g.matches] for g in result.groups] == [["r", "f"], ["d"]]


def test_boundaries_of_the_other_strategies_have_reasons_too():
    dfg = graph("[r] a = Relu(x) [p] y = MaxPool<kernel_shape=[1,1]>(a)")
    hw = machine(TINY)
    result = partition(dfg, hw, "none")
    assert reasons(dfg, result)["r", "p"] == "p is not fused with r: strategy none"
    walked = boundaries.boundaries(context_of(dfg, hw), result.groups, (), "greedy", frozenset())
    text = "p was not next to r in the published algorithm's traversal"
    assert [b.why.text for b in walked] == [text]


def test_a_value_inside_a_group_is_no_place_to_continue():
    dfg = graph(
        "[c] a = " + CONV + "(x, w1) [r] b = Relu(a) [p] y = Clip(a)",
        outputs="float[] y, float[] b",
    )
    hw = machine(CLASSIC)
    c, r, p = (n.index for n in dfg.calls)
    groups = [
        Group(index=i, matches=tuple(matches), inputs=(), constants=(), outputs=())
        for i, matches in enumerate(
            (
                [Match(node=c, module="ipa"), Match(node=r, module="compare")],
                [Match(node=p, module="compare")],
            )
        )
    ]
    found = boundaries.boundaries(context_of(dfg, hw), groups, (), "greedy", frozenset())
    assert [b.why.text for b in found] == ["c is not the value that its group ends with"]
