"""What a message offers as help does help: the spec is changed as it says, and the rule holds."""

import copy

import pytest
import yaml
from hypothesis import event, given, settings
from hypothesis import strategies as st

from opu_fuse.dfg.build import build_dfg
from opu_fuse.errors import DoesNotFit, SpecError
from opu_fuse.fuse.refusal import Lever
from opu_fuse.fuse.strategies import partition
from opu_fuse.hw.load import load_hw_text
from opu_fuse.hw.spec import HwSpec
from tests.dfg import canonical
from tests.fuse.random_graphs import graphs as random_graphs
from tests.fuse.reading import machine
from tests.fuse.rule_cases import CASES, CONV, case, graph, limited, refusal

HELP = {
    "known_shape": "declare the shape of a in the model (`value_info`) or export n in operators of "
    "the ONNX standard, with constant sizes",
    "known_form": "give m that form",
    "known_operator": "add a module of kind table to `dataflow.modules` and map table to it in "
    "`dataflow.operators`",
    "integer_values": (
        "quantise s in the model (QuantizeLinear, DequantizeLinear) or hand over the float model, "
        "which is then quantised throughout"
    ),
    "held_numbers": "use less padding",
    "feature_maps": "reshape f to one of these",
    "computed_data": "make the result of c a constant of the model",
    "channel_concat": "join along axis 1",
    "spatial_pad": "let the layer before p have 2 more filters, of zeros",
    "domain": "add a module of kind adder with domain act to `dataflow.modules` and "
    "`dataflow.edges`",
    "operand_access": "give row one value per channel, shape (c, 1, 1)",
    "constant_operand": "add a module of kind se with domain act to `dataflow.modules` and "
    "`dataflow.edges` and map multiply to it in `dataflow.operators`",
    "computed_operand": "make k2 an input of the model",
    "limits": "split p into 2 pools in a row or raise `dataflow.modules.pool.limits.window` to 5",
    "symmetric_padding": "pad opposite sides of c alike or set "
    "`dataflow.modules.ipa.limits.asymmetric` to true",
    "fill_value": "let p fill with zero or set `dataflow.modules.pad.limits.fill` to any",
    "repeats": "split u into two of smaller factors",
    "view_readers": "keep channels, rows and columns in f",
    "no_group": "let f follow an operator that a module runs",
    "group_exit": "set `dataflow.modules.compare.exit` to true",
    "single_reader": "compute c once for each of its readers",
    "not_an_output": "take c out of the model's outputs",
    "other_operand": "let s read a second r, computed for it alone",
    "one_fill": "let p fill with zero",
    "used_once": "add a second module of kind comparator behind compare to `dataflow.modules` and "
    "`dataflow.edges`",
    "pipeline_path": "for partitioning only (`build: false`), set `dataflow.edges.compare` to "
    "[pool, res_add, ipa]",
    "joined_other": "use --strategy optimal, which weighs the two against each other",
    "host_operator": "add a module of kind table to `dataflow.modules` and map table to it in "
    "`dataflow.operators`",
    "host_operand": "add a module of kind table to `dataflow.modules` and map table to it in "
    "`dataflow.operators`",
}

# Cases whose help names a key of the spec with its new value: tried out below.
WITH_VALUE = ("limits", "symmetric_padding", "fill_value", "group_exit", "pipeline_path")


def changed(hw: HwSpec, lever: Lever) -> HwSpec:
    """The machine after the changes of the spec that a lever names."""
    tree = hw.to_tree() | {"build": False}
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
    assert found.help == HELP[rule]
    assert found.reason == f"{found.text}; {found.help}"


@pytest.mark.parametrize("rule", WITH_VALUE)
def test_the_spec_changed_as_the_message_says_runs_the_operator(rule):
    dfg, hw = case(rule)
    (lever,) = [lever for lever in refusal(rule, dfg, hw).levers if lever.spec]
    assert refusal(rule, dfg, changed(hw, lever)) is None


def test_the_numbers_of_a_limit_are_there_as_data():
    found = refusal("limits", *case("limits"))
    assert (found.rule, found.limit) == ("limits", "3×3")
    assert found.where == "dataflow.modules.pool.limits.window"
    assert [found.facts[f] for f in ("axis", "value", "needed")] == ["window", "3×5", 5]
    assert [lever.spec for lever in found.levers] == [(), ((found.where, "5"),)]


def test_several_limits_of_a_module_are_named_together():
    dfg = graph("[p] y = MaxPool<kernel_shape=[5,5],strides=[4,4]>(x)")
    hw = limited(machine("opu-tiny"), "pool", window=3, stride=2)
    (host,) = partition(dfg, hw).host
    assert host.why.text == (
        "p has window 5×5; module pool takes at most 3×3; p has stride 4×4; module pool takes at "
        "most 2×2"
    )
    assert [lever.text for lever in host.why.levers] == [
        "split p into 2 pools in a row and give p stride 2",
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
    tree = hw.to_tree() | {"build": False}
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
        "add a module of kind se to `dataflow.modules` and map multiply to it in "
        "`dataflow.operators`"
    )


def test_a_module_in_the_way_that_data_may_not_pass_is_named():
    dfg = graph("[c] a = " + CONV + "(x, w1) [r] y = Relu(a)")
    tree = machine("opu-tiny").to_tree() | {"build": False}
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
        "relu cannot follow ipa in this machine's pipeline; set "
        "`dataflow.modules.res_add.bypass` to true"
    )
    assert partition(dfg, changed(hw, cut.why.levers[0])).boundaries == ()


def test_a_second_use_is_offered_where_the_pipeline_leads_back():
    dfg = graph("[r] a = Relu(x) [p] b = MaxPool<kernel_shape=[1,1]>(a) [l] y = Clip(b)")
    hw = machine("opu-tiny")
    (cut,) = partition(dfg, hw).boundaries
    assert cut.reason == (
        "compare is already used in this group; raise `dataflow.modules.compare.uses` to 2"
    )
    twice = changed(hw, cut.why.levers[0])
    assert partition(dfg, twice).boundaries == ()
    longer = graph(
        "[r] a = Relu(x) [p] b = MaxPool<kernel_shape=[1,1]>(a) [l] c = Clip(b) "
        "[s] d = Add(c, z) [m] y = Relu(d)"
    )
    cuts = {longer[b.target].name: b.why for b in partition(longer, twice).boundaries}
    assert cuts["m"].text == "compare is already used 2 times in this group"
    assert cuts["m"].limit == 2


def test_a_second_module_where_the_message_says_joins_the_next_operator():
    dfg, hw = case("used_once")
    found = refusal("used_once", dfg, hw)
    tree = hw.to_tree() | {"build": False}
    flow, at = tree["dataflow"], found.facts["at"]
    flow["modules"]["second"] = copy.deepcopy(flow["modules"]["compare"])
    assert flow["modules"]["second"]["kind"] == found.facts["kind"]
    flow["edges"]["second"] = list(flow["edges"][at])
    flow["edges"][at] = [*flow["edges"][at], "second"]
    assert refusal("used_once", dfg, load_hw_text(yaml.safe_dump(tree))) is None


def test_what_the_rtl_cannot_build_is_offered_for_partitioning_only():
    hw = machine("opu-tiny")  # a machine to build, as `second` and `later` are asked to be
    found = refusal("pipeline_path", *case("pipeline_path"))
    assert found.help.startswith("for partitioning only (`build: false`), set `dataflow.edges.com")
    later = hw.to_tree()
    later["dataflow"]["edges"]["compare"] = ["pool", "res_add", "ipa"]
    with pytest.raises(SpecError, match="the RTL cannot build this"):
        load_hw_text(yaml.safe_dump(later))
    assert "partitioning only" not in refusal("used_once", *case("used_once")).help
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
def test_any_change_of_the_spec_that_is_offered_makes_its_rule_hold(text, name):
    dfg, hw = build_dfg(canonical.canonical(text)), MACHINES[name]
    result = partition(dfg, hw)
    told = [((b.source, b.target), b.why) for b in result.boundaries]
    told += [((None, h.node), h.why) for h in result.host]
    for place, why in told:
        for lever in why.levers:
            if not lever.spec or not all(value for _, value in lever.spec):
                continue
            after = partition(dfg, changed(hw, lever))
            now = {(b.source, b.target): b.why for b in after.boundaries}
            now |= {(None, h.node): h.why for h in after.host}
            event(f"{why.rule} -> {now[place].rule if place in now else 'fused'}")
            assert place not in now or now[place].facts != why.facts
