"""What a program file tells of a network, where no bit of a run depends on it."""

import numpy as np
import onnx
import pytest

from opu_fuse import zoo
from opu_fuse.errors import ModelError
from opu_fuse.frontend.prepare import prepare
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model, compile_prepared
from opu_fuse.schedule.choice_names import FusedStackChoice
from opu_fuse.schedule.segment_order import HostWork
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from opu_fuse.zoo.builder import Net
from tests.networks.test_batch import windows
from tests.networks.test_lanes import compiled, halves, joined, thirds
from tests.regressions.test_regressions import FOLDER
from tests.written import written

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")
LIVES = {
    joined: {
        "x": (-1, 2),
        **{f"v{branch}_0": (branch, branch) for branch in range(3)},
        "v3_0": (2, 3),  # whole when the last branch is made, read by the last group
        "v4_0": (3, 3),
    },
    halves: {
        "x": (-1, 0),
        "v0_0": (0, 0),
        "v1_0": (0, 0),
        "v1_1": (0, 1),  # the half that a convolution reads; the other one is in its place already
        "v2_0": (1, 1),
        "v3_0": (1, 2),
        "v4_0": (2, 2),
    },
    thirds: {
        "x": (-1, 0),
        "v0_0": (0, 0),
        **{f"v1_{part}": (0, part + 1) for part in range(3)},
        **{f"v{part + 1}_0": (part, 3) for part in range(1, 4)},  # outputs stay to the end
    },
}


@pytest.mark.parametrize("build", LIVES)
def test_a_map_lives_from_the_last_group_that_makes_it_to_the_last_that_reads_it(build, rng):
    found = compiled(build, rng, "opu-1024").bundle
    assert {t.name: (t.first_group, t.last_group) for t in found.tensors} == LIVES[build]


PARTS = """<ir_version: 8, opset_import: ["" : 17]>
 g (float[1,3,2,6] x) => (float[1,3,2,6] y) <int64[2] two = {1,2}, int64[3] three = {1,1,1}> {
 t = Sigmoid(x)  a, b = Split<axis=1>(t, two)  c = Sigmoid(a)  d = Concat<axis=1>(b, c)
 e, f, h = Split<axis=1>(d, three)  r = Relu(e)  j = Concat<axis=1>(f, r, h)  y = Relu(j) }"""


def test_a_part_lives_from_the_group_that_makes_it_whatever_is_joined_to_it():
    """In a fused stack `r` is computed before `c`, which lies in another word than `e`."""
    options = Options(cascades=FusedStackChoice.ALWAYS, reuse_memory=False)
    bundle = compile_model(onnx.parser.parse_model(PARTS), load_hw("opu-1024a"), options).bundle
    live = {t.name: (t.first_group, t.last_group) for t in bundle.tensors}
    assert live["c"][0] > live["e"][1]
    assert live["e"] == (0, 1)
    assert live["d"][0] == live["c"][0]


def test_a_view_has_its_own_name_and_the_bytes_of_its_value():
    hw = load_hw("opu-tiny")
    stored = compile_model(windows(), hw, Options(reuse_memory=False)).bundle
    tensors = {t.name: t for t in stored.tensors}
    view, value = tensors["flat"], tensors["sum"]
    assert (view.shape, value.shape) == ((1, 80), (1, 20, 2, 2))
    assert (view.offset, view.layout, view.home) == (value.offset, value.layout, "sum")
    last = stored.groups[value.first_group].stages[-1]
    assert (last.name, last.stored) == ("sum", True)
    on_chip = compile_model(windows(), hw).bundle
    assert not {"flat", "sum"} & {t.name for t in on_chip.tensors}
    (group,) = (g for g in on_chip.groups if g.name == "beside + sum")
    assert [(s.name, s.stored) for s in group.stages] == [
        ("beside", False),
        ("sum", False),
        ("flat", False),
    ]


def test_a_view_that_the_host_makes_has_no_bytes_of_the_machine():
    """Those of its value may have been given to another map when it is made."""
    model = onnx.load(FOLDER / "float_pool_flattened.onnx")
    found = compile_model(model, load_hw("opu-1024"))
    on_host = {n for s in found.plan.segments if isinstance(s, HostWork) for n in s.nodes}
    views = {found.dfg[n].value for n in on_host if found.dfg[n].is_virtual}
    assert views
    assert not views & {t.name for t in found.bundle.tensors}


@pytest.mark.parametrize(
    ("machine", "images", "least"),
    [("opu-tiny", 1, 712), ("opu-tiny", 3, 728), ("opu-light", 1, 0)],
)
def test_bytes_and_products_of_the_groups_are_those_of_a_run(machine, images, least):
    """opu-light keeps the pool's source and result on chip."""
    hw = load_hw(machine)
    found = compile_model(windows(), hw, Options(batch=images)).bundle
    counted = run_cycle(found, hw)
    measured = {g.index: g.dram_bytes_read + g.dram_bytes_written for g in counted.groups}
    assert {g.index: g.dram_bytes for g in found.groups} == measured
    assert min(measured.values()) == least
    # convolutions by hand: results times channels and positions of the kernel
    products = [18 * 12 * 10 * 5 * 9, 18 * 12 * 10 * 18, 0, 20 * 2 * 2 * 18 * 6, 20 * 4 * 20 * 9]
    assert [g.macs for g in found.groups] == [images * n for n in (*products, 7 * 80)]
    assert [*found.source_map] == sorted(found.source_map)


def test_a_port_says_how_its_value_is_rounded_if_it_is():
    net = Net("ports", seed=3)
    x = net.relu(net.conv(net.input("x", (1, 5, 4, 4)), "conv", out=6, kernel=1), "relu")
    model = net.finish(net._unary(x, "Softmax", "host", x.moments), other=x)
    found = compile_model(model, load_hw("opu-tiny"), Options(scales="free")).bundle
    stored = {t.name: (t.scale, t.zero_point) for t in found.tensors}
    assert stored["other"][1] == -128
    ports = {p.name: (p.scale, p.zero_point) for p in (*found.inputs, *found.outputs)}
    assert ports == {**stored, "output": (None, 0)}


def test_an_output_that_is_constant_has_the_numbers_of_the_model_and_no_scale():
    """Also one that is a convolution's weights, which are int8 on the machine."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 17]>
        g (float[1,2,3,3] x) => (float[1,2,3,3] y, float[2,2,1,1] k, float[2] c)
        <float[2,2,1,1] w = {0.5, 0.3, -0.7, 1.0}>
        { y = Conv(x, w)  k = Identity(w)  c = Constant<value_floats = [1.5, 2.1]>() }""")
    found = compile_model(model, load_hw("opu-tiny")).bundle
    assert [(p.name, p.scale) for p in found.outputs[1:]] == [("k", None), ("c", None)]
    outputs = run(found, load_hw("opu-tiny"), noise(found)).outputs
    assert (
        outputs["k"].tolist()
        == np.array([[[[0.5]], [[0.3]]], [[[-0.7]], [[1.0]]]], np.float32).tolist()
    )
    assert outputs["c"].tolist() == np.array([1.5, 2.1], np.float32).tolist()


def test_an_output_behind_what_nobody_knows_the_shape_of_is_refused():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
        "g (float[1,4,6,5] x) => (float[a,b,c,d] y) <int64[1] flat = {120}>"
        "{ r = Relu(x)  f = Reshape(r, flat)  y, i, n = com.microsoft.Unique(f) }"
    )
    with pytest.raises(ModelError, match=r"^output 'y': has no static shape, not even its rank"):
        compile_model(model, load_hw("opu-tiny"))


def test_an_operator_belongs_to_the_last_group_that_runs_a_part_of_it():
    """An average over whole maps is made in two steps, by two groups."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float[1,4,6,6] x) => (float[1,4,1,1] y) { y = GlobalAveragePool(x) }"
    )
    model.graph.node[0].name = "average"
    bundle = compile_model(model, load_hw("opu-tiny")).bundle
    parts, group = bundle.source_map["average"]
    assert len(parts) == 2
    assert group == max(g.index for g in bundle.groups) == 1


def late(net):
    """Two that a third one reads on chip, behind seven that are stored."""
    values = ["x"]
    for _ in range(7):
        values.append(net.conv(values[-1], 5, 5))
    a, b = (net.conv(values[-1], 5, n) for n in (64, 70))
    return [*values[1:], net.conv(net.concat(a, b), 134, 4)]


def test_what_is_read_on_chip_stands_in_the_order_in_which_it_is_made(rng):
    found = compiled(late, rng, "opu-1024")
    assert found.plan.not_stored == {7, 8}
    assert [*found.plan.not_stored] == [8, 7], "as a set of Python goes through them"
    assert found.bundle.groups[9].inputs == ("v7_0", "v8_0")


HEADER = '<ir_version: 10, opset_import: ["" : 17]> g (float[1,8,4,4] x) => '
ROWS = """(float[1,8,8,4] y) <float[8,8,1,1] w>
    { a = Conv(x, w)  b = Relu(x)  c = Concat<axis=2>(a, b)  y = Conv(c, w) }"""
TURNED = """<ir_version: 10, opset_import: ["" : 17]> g
    (float[1,4,4,8] x) => (float[1,8,4,4] y) <float[8,8,1,1] w>
    { [turn] t = Transpose<perm=[0,3,1,2]>(x)  y = Conv(t, w) }"""


def test_groups_are_numbered_as_they_run_although_weights_are_prefetched():
    """The weights of a projection are loaded before the last head of the attention before it."""
    found = compile_model(zoo.build("vit_tiny", image=64), load_hw("opu-1024a")).bundle
    number = {group.name: i for i, group in enumerate(found.groups)}
    names = "blocks.0.attn.values/2/map", "blocks.0.attn.proj.matmul + blocks.0.add1"
    assert number[names[0]] < number[names[1]]
    assert all(t.first_group <= t.last_group for t in found.tensors)


def test_what_the_host_makes_no_group_makes():
    """Rows one below the other are no matter of layout."""
    found = compile_model(written(HEADER + ROWS, seed=3), load_hw("opu-tiny")).bundle
    first = {t.name: t.first_group for t in found.tensors}
    assert (first["a"], first["c"], first["y"]) == (0, -1, len(found.groups) - 1)


def test_what_an_input_does_is_found_by_the_user_s_name():
    found = compile_model(written(TURNED, seed=3), load_hw("opu-tiny")).bundle
    assert found.inputs[0].turn is not None
    assert found.source_map["turn"] == (("turn",), -1)


def test_what_is_not_quantised_has_no_quantised_model():
    model = written(HEADER + "(float[1,8,4,4] y) { y = Sin(x) }", seed=3)
    found = compile_prepared(prepare(model, quantised=False), load_hw("opu-tiny")).bundle
    assert (found.qdq, found.fused) == (b"", b"")
