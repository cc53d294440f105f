"""What a message offers as help does help: the spec is changed as it says, and the rule holds."""

import copy
import dataclasses
from typing import Any

import pytest
import yaml
from hypothesis import event, given, settings
from hypothesis import strategies as st

from opu_fuse.dfg.build import build_dfg
from opu_fuse.errors import DoesNotFit, SpecError
from opu_fuse.fuse.rules.refusal import Lever
from opu_fuse.fuse.rules.spec_changes import changed_spec
from opu_fuse.fuse.strategies.matched import owner_on_host
from opu_fuse.fuse.strategies.registry import partition
from opu_fuse.hw.spec.check import check_spec
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw_text
from tests.dfg import canonical
from tests.fuse.random_graphs import graphs as random_graphs
from tests.fuse.reading import machine
from tests.fuse.rule_cases import CASES, CONV, case, graph, limited, refusal
from tests.some import some

TABLE = (
    "add a module of kind table (`domain: act, exit: true`) after add to `dataflow.modules` and "
    "`dataflow.edges`, `buffers.table` of 512 words and 2 banks and map table to it in "
    "`dataflow.operators`"
)
HELP = {
    "known_shape": "declare the shape of a in the model (`value_info`) or export n in operators of "
    "the ONNX standard, with constant sizes",
    "known_form": "give m that form",
    "known_operator": TABLE,
    "integer_values": (
        "quantise s in the model (QuantizeLinear, DequantizeLinear) or hand over the float model, "
        "which is then quantised throughout"
    ),
    "held_numbers": "use less padding",
    "feature_maps": "reshape f to one of these",
    "computed_data": "make the result of c a constant of the model",
    "channel_concat": "join along axis 1",
    "spatial_pad": "let the layer before p have 2 more filters, of zeros",
    "domain": "add a module of kind adder (`domain: act, operand: per_channel, exit: true`) after "
    "concat and before pad to `dataflow.modules` and `dataflow.edges`, `buffers.pre` of 64 words "
    "and 2 banks",
    "operand_access": "give row one value per channel, shape (c, 1, 1)",
    "constant_operand": "add a module of kind se (`domain: act, operand: per_channel, exit: true`) "
    "after pool to `dataflow.modules` and `dataflow.edges` and map multiply to it in "
    "`dataflow.operators`",
    "computed_operand": "make k1 an input of the model",
    "limits": "split p into 2 pools in a row or raise `dataflow.modules.pool.limits.window` to 5",
    "symmetric_padding": "pad opposite sides of c alike or set "
    "`dataflow.modules.ipa.limits.asymmetric` to true",
    "fill_value": "let p fill with zero or set `dataflow.modules.pad.limits.fill` to any",
    "repeats": "split u into two of smaller factors",
    "view_readers": "keep channels, rows and columns in f",
    "one_shape": "leave out f",
    "no_group": "let f follow an operator that a module runs",
    "group_exit": "set `dataflow.modules.compare.exit` to true",
    "single_reader": "compute c once for each of its readers",
    "not_an_output": "take c out of the model's outputs",
    "other_operand": "let s read a second r, computed for it alone",
    "one_fill": "let p fill with zero",
    "used_once": "add a second module of kind comparator after compare to `dataflow.modules` and "
    "`dataflow.edges`",
    "pipeline_path": "for partitioning only (`build: false`), set `dataflow.edges.compare` to "
    "[pool, res_add, ipa]",
    "joined_other": "use --strategy optimal, which weighs the two against each other",
    "host_operator": TABLE,
    "host_operand": TABLE,
    "round_trip": "let the machine run an operator before or after r",
}

# Cases whose help names a key of the spec with its new value: tried out below.
WITH_VALUE = ("limits", "symmetric_padding", "fill_value", "group_exit", "pipeline_path")


def changed(hw: HwSpec, lever: Lever) -> HwSpec:
    """The machine after the changes of the spec that a lever names."""
    tree: dict[str, Any] = hw.to_tree() | {"build": False}
    for key, value in lever.spec:
        *folders, leaf = key.split(".")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = yaml.safe_load(value)
    return load_hw_text(yaml.safe_dump(tree))


@pytest.mark.parametrize("rule", CASES)
def test_every_message_names_the_nearest_change(rule):
    found = refusal(rule, *case(rule))
    assert some(found).help == HELP[rule]
    assert some(found).reason == f"{some(found).text}; {some(found).help}"


@pytest.mark.parametrize("rule", WITH_VALUE)
def test_the_spec_changed_as_the_message_says_runs_the_operator(rule):
    dfg, hw = case(rule)
    (lever,) = [lever for lever in some(refusal(rule, dfg, hw)).levers if lever.spec]
    assert refusal(rule, dfg, changed(hw, lever)) is None


def test_the_numbers_of_a_limit_are_there_as_data():
    found = refusal("limits", *case("limits"))
    assert (some(found).rule, some(found).limit) == ("limits", "3×3")
    assert some(found).where == "dataflow.modules.pool.limits.window"
    assert [some(found).facts[f] for f in ("axis", "value", "needed")] == ["window", "3×5", 5]
    assert [lever.spec for lever in some(found).levers] == [(), ((some(found).where, "5"),)]


def test_several_limits_of_a_module_are_named_together():
    dfg = graph("[p] y = MaxPool<kernel_shape=[5,5],strides=[4,4]>(x)")
    hw = limited(machine("opu-tiny"), "pool", window=3, stride=2)
    (host,) = partition(dfg, hw).host
    assert host.why.text == (
        "p has window 5×5; module pool takes at most 3×3; p has stride 4×4; module pool takes at "
        "most 2×2"
    )
    assert [lever.text for lever in host.why.levers] == [
        (
            "split p into 2 pools in a row and give p stride 2 and let a MaxPool of 1×1 with "
            "stride 2 follow"
        ),
        (
            "raise `dataflow.modules.pool.limits.window` to 5 and raise "
            "`dataflow.modules.pool.limits.stride` to 4"
        ),
    ]
    assert partition(dfg, changed(hw, host.why.levers[1])).host == ()


def test_a_limit_beyond_the_instructions_is_not_offered():
    text = "g (float[1,4,300,300] x) => (float[] y) { [p] y = MaxPool<kernel_shape=[300,300]>(x) }"
    (host,) = partition(build_dfg(canonical.canonical(text)), machine("opu-tiny")).host
    assert host.reason == (
        "p has window 300×300; module pool takes at most 255×255; split p into 2 pools in a row"
    )


def mapping(hw: HwSpec, **operators: tuple[str, ...]) -> HwSpec:
    """The machine with another operator map; None takes an operator out."""
    tree: dict[str, Any] = hw.to_tree() | {"build": False}
    tree["dataflow"]["operators"] |= operators
    mapped = {k: v for k, v in tree["dataflow"]["operators"].items() if v}
    tree["dataflow"]["operators"] = mapped
    return load_hw_text(yaml.safe_dump(tree))


def test_an_operator_that_is_not_mapped_is_offered_the_kinds_that_can_run_it():
    dfg = graph("[l] y = Clip(x)")
    hw = mapping(machine("opu-tiny"), clip=())
    (host,) = partition(dfg, hw).host
    assert host.reason == (
        "clip: no module of this machine runs it; set `dataflow.operators.clip` to [comparator]"
    )
    assert partition(dfg, changed(hw, host.why.levers[0])).host == ()


def test_an_operator_without_a_module_is_offered_one():
    (host,) = partition(graph("[m] y = Mul(x, z)"), machine("opu-tiny")).host
    assert host.why.help == (
        "add a module of kind se (`domain: act, operand: per_channel, exit: true`) after add to "
        "`dataflow.modules` and `dataflow.edges` and map multiply to it in `dataflow.operators`"
    )


def test_a_module_in_the_way_that_data_may_not_pass_is_named():
    dfg = graph("[c] a = " + CONV + "(x, w1) [r] y = Relu(a)")
    tree: dict[str, Any] = machine("opu-tiny").to_tree() | {"build": False}
    edges = {"add": ["pool"], "pool": ["res_add"], "res_add": ["compare"]}
    tree["dataflow"]["edges"] |= edges | {"concat": ["pad", "compare"]}
    hw = load_hw_text(yaml.safe_dump(tree))
    (cut,) = partition(dfg, hw).boundaries
    assert cut.why.help == "set `dataflow.edges.ipa` to [add, compare]"
    assert partition(dfg, changed(hw, cut.why.levers[0])).boundaries == ()
    tree["dataflow"]["modules"]["pool"]["bypass"] = True
    hw = load_hw_text(yaml.safe_dump(tree))
    (cut,) = partition(dfg, hw).boundaries
    assert cut.reason == (
        "relu cannot follow ipa in this machine's pipeline: compare comes after res_add, which "
        "cannot be bypassed; set `dataflow.modules.res_add.bypass` to true"
    )
    assert partition(dfg, changed(hw, cut.why.levers[0])).boundaries == ()


def test_a_second_use_is_offered_where_the_pipeline_leads_back():
    dfg = graph("[r] a = Relu(x) [p] b = MaxPool<kernel_shape=[1,1]>(a) [l] y = Clip(b)")
    hw = machine("opu-tiny")
    (cut,) = partition(dfg, hw).boundaries
    assert cut.reason == (
        "compare already runs an operator of this group; raise `dataflow.modules.compare.uses` to 2"
    )
    twice = changed(hw, cut.why.levers[0])
    assert partition(dfg, twice).boundaries == ()
    longer = graph(
        "[r] a = Relu(x) [p] b = MaxPool<kernel_shape=[1,1]>(a) [l] c = Clip(b) "
        "[s] d = Add(c, z) [m] y = Relu(d)"
    )
    cuts = {longer[b.target].name: b.why for b in partition(longer, twice).boundaries}
    assert cuts["m"].text == "compare already runs 2 operators of this group"
    assert cuts["m"].limit == 2


def test_a_second_module_where_the_message_says_joins_the_next_operator():
    dfg, hw = case("used_once")
    found = refusal("used_once", dfg, hw)
    tree: dict[str, Any] = hw.to_tree() | {"build": False}
    new: Any = some(found).facts["new"]
    flow, at = tree["dataflow"], new.at
    flow["modules"]["second"] = copy.deepcopy(flow["modules"]["compare"])
    assert flow["modules"]["second"]["kind"] == new.kind
    flow["edges"]["second"] = list(flow["edges"][at])
    flow["edges"][at] = [*flow["edges"][at], "second"]
    assert refusal("used_once", dfg, load_hw_text(yaml.safe_dump(tree))) is None


def test_what_the_rtl_cannot_build_is_offered_for_partitioning_only():
    hw = machine("opu-tiny")  # a machine to build, as `second` and `later` are asked to be
    found = refusal("pipeline_path", *case("pipeline_path"))
    assert some(found).help.startswith(
        "for partitioning only (`build: false`), set `dataflow.edges.com"
    )
    later = hw.to_tree()
    later["dataflow"]["edges"]["compare"] = ["pool", "res_add", "ipa"]
    with pytest.raises(SpecError, match="the RTL cannot build this"):
        load_hw_text(yaml.safe_dump(later))
    assert "partitioning only" not in some(refusal("used_once", *case("used_once"))).help
    second = hw.to_tree()
    flow = second["dataflow"]
    flow["modules"]["second"] = copy.deepcopy(flow["modules"]["compare"])
    flow["edges"] |= {"second": ["pool", "res_add"], "compare": ["pool", "res_add", "second"]}
    assert load_hw_text(yaml.safe_dump(second)).build


def test_a_forbidden_group_says_what_the_scheduler_said():
    dfg = graph("[r] a = Relu(x) [p] y = MaxPool<kernel_shape=[1,1]>(a)")
    error = DoesNotFit("r", "its smallest tile needs 9 words, a bank holds 8", "raise that")
    nodes = tuple(n.index for n in dfg.calls)
    (cut,) = partition(dfg, machine("opu-tiny"), forbid={nodes: error}).boundaries
    assert cut.reason == (
        "r + p together do not fit the machine: its smallest tile needs 9 words, a bank holds 8; "
        "raise that"
    )


MACHINES = {
    "opu-tiny": machine("opu-tiny"),
    "opu-classic": machine("opu-classic"),
    "no clip, small kernels": mapping(
        limited(machine("opu-tiny"), "ipa", kernel=2, padding=0), clip=()
    ),
    "small windows, no way out": limited(
        limited(machine("opu-tiny"), "pool", window=2), "add", exit=False
    ),
}


@settings(max_examples=40)
@given(random_graphs(), st.sampled_from(sorted(MACHINES)))
def test_every_change_of_the_spec_that_is_offered_runs_the_operator(text, name):
    """New modules, edges and buffers included: on the changed machine a group has it."""
    dfg, hw = build_dfg(canonical.canonical(text)), MACHINES[name]
    for host in partition(dfg, hw).host:
        if host.why.predicate is owner_on_host:  # its owner's remedies
            continue
        for lever in host.why.levers:
            if lever.spec:
                event(f"{host.why.rule}: {'a module' if lever.added else 'a value'}")
                changed = changed_spec(hw, lever)
                assert check_spec(changed) == ()
                assert host.node not in {h.node for h in partition(dfg, changed).host}
                if hw.build and "partitioning only" not in lever.text:
                    assert check_spec(dataclasses.replace(changed, build=True)) == ()


def two_pools(**pool: bool) -> HwSpec:
    """compare -> pool -> sum -> pool2: the sum of two maps is behind a pool."""
    tree: dict[str, Any] = machine("opu-tiny").to_tree()
    flow = tree["dataflow"]
    flow["modules"]["compare"]["bypass"] = True
    flow["modules"]["pool"] |= pool
    flow["modules"]["pool2"] = copy.deepcopy({**flow["modules"]["pool"], "bypass": False})
    flow["edges"] |= {"add": ["compare"], "compare": ["pool"], "pool": ["res_add"]}
    flow["edges"] |= {"res_add": ["pool2"], "pool2": []}
    return load_hw_text(yaml.safe_dump(tree))


def test_a_module_behind_one_that_cannot_be_bypassed_is_nearer_than_a_new_one():
    dfg = graph("[s] y = Add(x, z)")
    (host,) = partition(dfg, two_pools()).host
    assert ": res_add comes after pool, which cannot be bypassed" in host.why.text
    assert host.why.help == "set `dataflow.modules.pool.bypass` to true"
    assert partition(dfg, two_pools(bypass=True)).host == ()
