"""Strategy `optimal`: the best of all legal groupings, and what it says about it."""

import dataclasses

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opu_fuse import zoo
from opu_fuse.dfg.build import build_dfg
from opu_fuse.frontend.prepare import prepare
from opu_fuse.fuse.explain.partition_json import partition_to_json
from opu_fuse.fuse.explain.partition_text import explain
from opu_fuse.fuse.matching.context import context_of
from opu_fuse.fuse.strategies.optimal import optimal
from opu_fuse.fuse.strategies.registry import partition
from opu_fuse.hw.spec.hw_spec import HwSpec
from tests.dfg import canonical
from tests.dfg.chains import chain
from tests.fuse import networks
from tests.fuse.brute_force import BruteForce
from tests.fuse.random_graphs import graphs
from tests.fuse.random_machines import machines
from tests.fuse.reading import groups, machine, on_host, reasons, split
from tests.fuse.worked import GRAPHS
from tests.some import some


def changed(name: str, *, words: dict[str, int] | None = None, **modules: dict) -> HwSpec:
    """A machine with other buffer sizes and other fields of some modules."""
    hw = machine(name)
    flow, buffers = hw.dataflow, hw.buffers
    table = dict(flow.modules)
    for module, fields in modules.items():
        table[module] = dataclasses.replace(table[module], **fields)
    sizes = {b: dataclasses.replace(getattr(buffers, b), words=w) for b, w in (words or {}).items()}
    return dataclasses.replace(
        hw,
        dataflow=dataclasses.replace(flow, modules=table),
        buffers=dataclasses.replace(buffers, **sizes),
    )


MACHINES = {
    "opu-tiny": lambda: machine("opu-tiny"),
    "opu-1024": lambda: machine("opu-1024"),
    "opu-classic": lambda: machine("opu-classic"),
    "every stage twice": lambda: changed(
        "opu-tiny", compare={"uses": 2}, pool={"uses": 2}, res_add={"uses": 2}
    ),
    "only pools may end a group": lambda: changed(
        "opu-tiny", compare={"exit": False}, res_add={"exit": False}, add={"exit": False}
    ),
    "few partial sums": lambda: changed("opu-tiny", words={"psum": 16, "output": 16}),
    "few features": lambda: changed("opu-tiny", words={"feature": 16}),
}


@settings(max_examples=120, deadline=None)
@given(
    text=graphs(most=7),
    hw=st.one_of(st.sampled_from(list(MACHINES)).map(lambda name: MACHINES[name]()), machines()),
    size=st.sampled_from(["6,6", "23,17"]),
    data=st.data(),
)
def test_it_equals_brute_force_on_graphs_of_up_to_ten_operators(text, hw, size, data):
    dfg = build_dfg(canonical.canonical(text.replace("6,6", size)))
    assume(len([n for n in dfg.calls if n.owner is None]) <= 10)
    plain = partition(dfg, hw)
    formed = [tuple(sorted(m.node for m in g.matches)) for g in plain.groups]
    forbid = frozenset(data.draw(st.sets(st.sampled_from(formed), max_size=2)) if formed else ())
    result = partition(dfg, hw, "optimal", forbid)
    assert result.violations == ()
    assert some(result.search).exact
    assert some(result.search).best == BruteForce(dfg, hw, forbid).best()
    assert some(result.search).best <= some(result.search).matched


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("hw", ["opu-tiny", "opu-classic"])
def test_the_worked_graphs_are_legal_and_never_worse(name, hw):
    _, result = split(name, hw, "optimal")
    assert result.legal
    assert some(result.search).exact
    assert some(result.search).best <= some(result.search).matched


@pytest.mark.parametrize("hw", ["opu-1024", "opu-classic"])
@pytest.mark.parametrize(
    "network", ["resnet20", "yolov3_tiny", "squeezenet", "googlenet", "mobilenet_v1_025", "unet"]
)
def test_networks_are_legal_and_never_worse(network, hw):
    dfg = build_dfg(prepare(zoo.build(network, image=64), quantised=False).canonical)
    result = partition(dfg, machine(hw), "optimal")
    assert result.legal
    assert some(result.search).exact
    assert some(result.search).best <= some(result.search).matched


CONV = "Conv<kernel_shape=[3,3],pads=[1,1,1,1]>"
MAP = "float[1,8,24,24]"
TWO_SUMS = f"""g ({MAP} x, {MAP} s1, {MAP} s2, float[8,8,3,3] w1) => ({MAP} y) {{
    [conv] a = {CONV}(x, w1)
    [add_1] b = Add(a, s1)
    [pool] p = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(b)
    [add_2] y = Add(p, s2) }}"""


def test_a_pool_is_left_to_the_group_behind_when_that_saves_cycles():
    dfg = build_dfg(canonical.canonical(TWO_SUMS))
    hw = machine("opu-tiny")
    assert groups(dfg, partition(dfg, hw)) == [
        "conv:ipa add_1:res_add pool:pool",
        "add_2:res_add",
    ]
    result = partition(dfg, hw, "optimal")
    assert groups(dfg, result) == ["conv:ipa add_1:res_add", "pool:pool add_2:res_add"]
    assert reasons(dfg, result)["add_1", "pool"] == (
        "pool continues with add_2, which could not run after add_1 too "
        "(res_add already runs an operator of this group)"
    )
    (region,) = some(result.search).regions
    assert region.decisions == 3
    assert region.best.cycles < region.matched.cycles
    lines = explain(dfg, hw, result)
    timed = some(result.search).timed
    (change,) = some(timed).taken
    assert some(timed).before - some(timed).best == pytest.approx(change.saved, abs=1)
    assert any(
        f"({100 * (some(timed).best / some(timed).before - 1):+.2f} %)" in line for line in lines
    )
    assert f"  better than matched: conv … add_2: {change.saved} cycles less" in lines


def test_what_it_gained_is_part_of_the_json():
    dfg = build_dfg(canonical.canonical(TWO_SUMS))
    hw = machine("opu-tiny")
    found = partition_to_json(dfg, hw, partition(dfg, hw, "optimal"))["search"]
    assert found["exact"]
    assert found["timed"]["taken"][0]["nodes"] == ["conv", "add_1", "pool", "add_2"]
    (region,) = found["regions"]
    assert region["nodes"] == ["conv", "add_1", "pool", "add_2"]
    assert region["best"]["cycles"] < region["matched"]["cycles"]
    assert found["best"]["cycles"] == region["best"]["cycles"]
    assert "search" not in partition_to_json(dfg, hw, partition(dfg, hw))


def test_a_group_that_fits_no_tile_is_not_formed():
    text = """g (float[1,4,23,17] x, float[1,4,23,17] z) => (float[1,4,1,1] y) {
        [add] a = Add(x, z)
        [gap] y = GlobalAveragePool(a) }"""
    dfg = build_dfg(canonical.canonical(text))
    hw = MACHINES["few partial sums"]()
    assert some(partition(dfg, hw, "optimal").search).matched.misfits == 1
    result = partition(dfg, hw, "optimal")
    assert some(result.search).best.misfits == 0
    assert len(result.groups) == 2
    assert reasons(dfg, result)["add", "gap"].startswith(
        "add and gap in one group would take more than any tile holds (its smallest tile needs "
        "391 words of the feature buffer, a bank holds 128); in two they take"
    )


def test_an_operator_that_fits_no_tile_goes_to_the_host_with_the_numbers():
    text = "g (float[1,4,6,6] x) => (float[] y) { [pool] y = MaxPool<kernel_shape=[3,3]>(x) }"
    dfg = build_dfg(canonical.canonical(text))
    result = partition(dfg, MACHINES["few features"](), "optimal")
    assert on_host(dfg, result) == {
        "pool": "pool fits no tile: its smallest tile needs 9 words of the feature buffer, a bank "
        "holds 8"
    }


def test_a_module_further_on_is_taken_when_the_nearest_leads_nowhere():
    """`matched` puts the relu on the first comparator, behind which no pool can follow."""
    hw = machine("opu-tiny")
    flow = hw.dataflow
    modules = {**flow.modules, "compare_2": flow.modules["compare"]}
    edges = {**flow.edges, "add": ("compare", "compare_2"), "compare": (), "compare_2": ("pool",)}
    hw = dataclasses.replace(hw, dataflow=dataclasses.replace(flow, modules=modules, edges=edges))
    text = f"""g (float[1,4,8,8] x, float[4,4,3,3] w1) => (float[1,4,4,4] y) {{
        [conv] a = {CONV}(x, w1)
        [relu] b = Relu(a)
        [pool] y = MaxPool<kernel_shape=[2,2],strides=[2,2]>(b) }}"""
    dfg = build_dfg(canonical.canonical(text))
    assert groups(dfg, partition(dfg, hw))[0] == "conv:ipa relu:compare"
    assert groups(dfg, partition(dfg, hw, "optimal")) == ["conv:ipa relu:compare_2 pool:pool"]


def test_many_decisions_are_still_searched_exactly():
    dfg = build_dfg(chain(60, ("Relu", "MaxPool")))
    result = partition(dfg, MACHINES["every stage twice"](), "optimal")
    assert max(r.decisions for r in some(result.search).regions) > 16
    assert some(result.search).exact
    assert some(result.search).best <= some(result.search).matched


def test_where_it_gives_up_it_starts_from_matched_and_says_so():
    dfg = build_dfg(canonical.canonical(TWO_SUMS))
    hw = machine("opu-tiny")
    found = optimal(context_of(dfg, hw), most_open=1)
    assert some(found.search).best == some(found.search).matched
    assert [r.exact for r in some(found.search).regions] == [False]
    result = dataclasses.replace(partition(dfg, hw), strategy="optimal", search=found.search)
    text = "\n".join(explain(dfg, hw, result))
    assert "not everywhere exactly" in text
    assert "only changes to matched: conv … add_2: 3 decisions leave too many groups open" in text


def test_giving_up_in_one_region_leaves_the_others_exact():
    more = TWO_SUMS.replace(f"=> ({MAP} y)", f"=> ({MAP} y, {MAP} z)").replace(
        "Add(p, s2)", "Add(p, s2) [relu] q = Relu(x) [max] z = MaxPool<kernel_shape=[1,1]>(q)"
    )
    dfg = build_dfg(canonical.canonical(more))
    found = optimal(context_of(dfg, machine("opu-tiny")), most_open=2)
    assert [(r.decisions, r.exact) for r in some(found.search).regions] == [(3, False), (1, True)]


@pytest.mark.parametrize("length", [600])
def test_groups_longer_than_any_pipeline_are_not_followed_for_ever(length):
    """A machine with endless uses, on which every run of operators could be one group."""
    hw = changed("opu-tiny", compare={"uses": 10_000}, pool={"uses": 10_000})
    dfg = build_dfg(chain(length, ("Relu", "MaxPool")))
    result = partition(dfg, hw, "optimal")
    assert [r.exact for r in some(result.search).regions] == [False]
    assert result.legal
    assert len(result.groups) == 1


@settings(max_examples=25, deadline=None)
@given(graphs(), st.sampled_from(["opu-tiny", "opu-classic"]))
def test_scales_change_neither_costs_nor_groups(text, name):
    plain, hw = build_dfg(canonical.canonical(text)), machine(name)
    shifts = not hw.numeric.multiplier_bits  # which has no other quantised form
    quantised = build_dfg(canonical.quantised(text, pow2=shifts).model)
    assert partition(plain, hw, "optimal") == partition(quantised, hw, "optimal")


@pytest.mark.parametrize(("network", "count"), [("tiny_yolo", 9), ("resnet_20", 22)])
def test_published_group_counts_are_already_the_best(network, count):
    dfg = build_dfg(canonical.canonical(getattr(networks, network)()))
    result = partition(dfg, machine("opu-classic"), "optimal")
    assert len(result.groups) == count
    assert some(result.search).best == some(result.search).matched
    assert "(+0.00 %)" in explain(dfg, machine("opu-classic"), result)[2]
