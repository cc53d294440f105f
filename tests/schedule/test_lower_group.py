"""What a group's registers say: its integers are ONNX Runtime's."""

from dataclasses import replace

import pytest

from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule.lower_group import lower_group
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from tests.written import written

HEADER = '<ir_version: 10, opset_import: ["" : 17]> g '
AVERAGE = """(float[1,4,60,60] x) => (float[1,4,2,1] y)
    <int64[8] pads = {0,0,1,2,0,0,2,1}, float value = {VALUE}>
    { p = Pad(x, pads, value)
      y = AveragePool<kernel_shape=[62,63], pads=[1,0,0,0], count_include_pad=1>(p) }"""
FILLED = """(float[1,8,6,6] x) => (float[1,8,5,7] y)
    <float[8,8,3,3] w, int64[8] pads = {0,0,0,1,0,0,1,2}, float value = {-2}>
    { p = Pad(x, pads, value)  y = Conv(p, w) }"""
TURNED = """(float[1,4,5,6] x) => (float[1,3,11,8] y) <float[4,3,3,3] w>
    { a = Relu(x)  y = ConvTranspose<strides=[2,1]>(a, w) }"""
SCALED = """(float[1,8,6,6] x) => (float[1,8,3,3] y) <float[1,8,1,1] c>
    { a = Mul(x, c)  y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a) }"""
CASES = {
    "a border around values whose zero is not 0": (
        """(float[1,8,6,6] x) => (float[1,8,5,6] y) <float[8,8,3,3] w>
        { a = Relu(x)  y = Conv<pads=[0,1,1,1]>(a, w) }""",
        1,
    ),
    "a border that goes on as the window's own": (AVERAGE.replace("VALUE", "0"), 1),
    "a border of another value than the window's own": (AVERAGE.replace("VALUE", "-2"), 2),
    "a border of another value, and a window without one": (FILLED, 1),
    "a transposed convolution of values whose zero is not 0": (TURNED, 1),
    "two phases of a transposed convolution with a value inside": (
        """(float[1,4,5,6] x) => (float[1,3,11,8] y) <float[4,3,3,3] w>
        { c = ConvTranspose<strides=[2,1]>(x, w)  y = LeakyRelu<alpha=0.25>(c) }""",
        1,
    ),
}


def is_right(text, groups, machine, scales):
    hw = load_hw(machine)
    found = compile_model(written(HEADER + text, seed=3), hw, Options(scales=scales)).bundle
    assert (len(found.groups), found.hosts) == (groups, {})
    inputs = noise(found)
    compared = check(found, inputs, run(found, hw, inputs, capture=True))
    assert compared.passed, compared.first


@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:no calibration data")
def test_a_group_is_right_in_every_tensor(case, scales):
    is_right(*CASES[case], "opu-1024", scales)


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_channels_scaled_in_front_of_the_array_are_pooled_behind_it():
    is_right(SCALED, 1, "opu-classic", "pow2")


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_the_products_of_a_transposed_convolution_are_counted_once():
    """In two phases; each of 4x3x3x3 weights meets 5x6 pixels."""
    text, _ = CASES["two phases of a transposed convolution with a value inside"]
    found = compile_model(written(HEADER + text, seed=3), load_hw("opu-1024"))
    ((first, second),) = found.plan.layers.values()
    assert (first.layer.macs, second.layer.macs) == (4 * 3 * 3 * 3 * 5 * 6, 0)


@pytest.mark.parametrize(
    ("size", "pool", "strides", "read"),
    [
        (11, 3, 3, 9 * 9),  # two rows and columns are left over
        (9, 2, 2, 8 * 8),
        (9, 1, 2, 5 * 5),  # those between the windows, too
        (9, 3, 2, 9 * 9),
    ],
)
@pytest.mark.filterwarnings("ignore:no calibration data")
def test_products_that_a_pool_leaves_out_are_not_counted(size, pool, strides, read):
    out = (size - pool) // strides + 1
    text = f"""(float[1,8,{size},{size}] x) => (float[1,8,{out},{out}] y) <float[8,8,3,3] w>
        {{ c = Conv<pads=[1,1,1,1]>(x, w)
          y = MaxPool<kernel_shape=[{pool},{pool}], strides=[{strides},{strides}]>(c) }}"""
    hw = load_hw("opu-tiny")
    bundle = compile_model(written(HEADER + text, seed=3), hw).bundle
    (group,) = bundle.groups
    assert group.macs == 8 * 8 * 3 * 3 * read
    cycles = run(bundle, hw, engine="cycle").counters["cycles"]
    assert group.macs < hw.macs * cycles


NAMED = """(float[1,4,6,6] x) => (float[1,144] y)
    <float[4,4,1,1] w, float[4] b, int64[2] shape = {1,144}>
    { [conv] c = Conv(x, w, b)  [act] a = Relu(c)  [flat] y = Reshape(a, shape) }"""


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_a_layer_is_named_after_what_computes_without_biases_and_views():
    found = compile_model(written(HEADER + NAMED, seed=3), load_hw("opu-tiny"))
    (group,) = found.partition.groups
    names = [found.dfg[match.node].name for match in group.matches]
    assert names == ["conv", "conv/bias", "act", "flat"]
    ((part,),) = found.plan.layers.values()
    assert part.layer.name == "conv + act"


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_an_order_that_the_graph_does_not_have_is_refused():
    """opu-micro pools, and compares behind it."""
    text = """(float[1,4,6,6] x) => (float[1,4,3,3] y) <float[4,4,1,1] w>
        { c = Conv(x, w)  a = Relu(c)  y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a) }"""
    hw = load_hw("opu-micro")
    found = compile_model(written(HEADER + text, seed=3), hw)
    first, second = found.partition.groups
    both = replace(first, matches=(*first.matches, *second.matches))
    array, compare, pool = both.matches
    assert [match.module for match in both.matches] == ["ipa", "compare", "pool"]
    with pytest.raises(DoesNotFit, match=r"its pass would be .*compare -> pool, but"):
        lower_group(found.dfg, both, hw, found.plan.layout.lanes)
    for module in ("pool", "nowhere"):
        lost = replace(both, matches=(array, replace(compare, module=module), pool))
        with pytest.raises(DoesNotFit, match=f"matched on module {module}, which is no stage ACT"):
            lower_group(found.dfg, lost, hw, found.plan.layout.lanes)
