"""Pixels into channels and channels into pixels, for the array to do; the `canonical` fixture
compares the results too, on odd numbers of channels.
"""

from itertools import cycle

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.frontend.editing import sources_of
from opu_fuse.frontend.qdq_reference import reference
from opu_fuse.fuse.strategies.strategy_names import REWRITING, StrategyName
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model, partition_model
from opu_fuse.sim.engine import run
from tests.some import some

CONV = "[c] c = Conv <pads = [1, 1, 1, 1]> (x, first) "
PAIRS = (
    "e = Slice ({0}, zero, end, rows, two) o = Slice ({0}, one, end, rows, two) "
    "ee = Slice (e, zero, end, columns, two) oe = Slice (o, zero, end, columns, two) "
    "eo = Slice (e, one, end, columns, two) oo = Slice (o, one, end, columns, two) "
    "[j] m = Concat <axis = 1> (ee, oe, eo, oo) "
)
"""As PyTorch writes `Focus`, which puts the rows first."""
UNSHUFFLE = (
    "[a] a = Reshape (c, six) [t] t = Transpose <perm = {}> (a) [m] m = Reshape (t, to_channels) "
)
SHUFFLE = (
    "[a] a = Reshape (c, {}) [t] t = Transpose <perm = {}> (a) [m] m = Reshape (t, to_pixels) "
)
CHANNELS = {
    "space_to_depth": CONV + "[m] m = SpaceToDepth <blocksize = 2> (c) ",
    "views_as_space_to_depth": CONV + UNSHUFFLE.format("[0, 3, 5, 1, 2, 4]"),
    "pixel_unshuffle": CONV + UNSHUFFLE.format("[0, 1, 3, 5, 2, 4]"),
    "slices": CONV + PAIRS.format("c"),
}
"""Twelve channels of 8 x 6 pixels into 48 of 4 x 3."""
PIXELS = {
    "dcr": CONV + "[m] m = DepthToSpace <blocksize = 2> (c) ",
    "crd": CONV + '[m] m = DepthToSpace <blocksize = 2, mode = "CRD"> (c) ',
    "views_as_dcr": CONV + SHUFFLE.format("dcr", "[0, 3, 4, 1, 5, 2]"),
    "pixel_shuffle": CONV + SHUFFLE.format("crd", "[0, 1, 4, 2, 5, 3]"),
}
"""Twelve channels of 8 x 6 pixels into 3 of 16 x 12."""
SHAPES = """int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] rows = {2},
    int64[1] columns = {3}, int64[1] end = {9223372036854775807}, float low = {0.0},
    float high = {1.0}, int64[4] line = {1, 3, 1, 192}, int64[6] six = {1, 12, 4, 2, 3, 2},
    int64[4] to_channels = {1, 48, 4, 3}, int64[6] dcr = {1, 2, 2, 3, 8, 6},
    int64[6] crd = {1, 3, 2, 2, 8, 6}, int64[4] to_pixels = {1, 3, 16, 12}"""
WEIGHTS = {
    "first": (12, 3, 3, 3),
    "into48": (5, 48, 3, 3),
    "into3": (5, 3, 3, 3),
    "into12": (5, 12, 3, 3),
    "wide": (5, 48, 5, 5),
}
JOINED = "[d] y = Conv <pads = [1, 0, 2, 1], strides = [1, 2]> (m, into48)"
ALONE = "[r] y = Relu (m)"
STAYS = {
    "at an input": "[m] m = SpaceToDepth <blocksize = 2> (x) [r] y = Relu (m)",
    "at an output": CONV + "[m] y = DepthToSpace <blocksize = 2> (c)",
    "in lines at an output": CONV
    + "[m] m = DepthToSpace <blocksize = 2> (c) [v] y = Reshape (m, line)",
    "of a map that is the host's": CONV
    + "[s] s = Softmax <axis = 1> (c) [m] m = SpaceToDepth <blocksize = 2> (s) [r] y = Relu (m)",
    "of pixels six apart": CONV
    + "[p] p = MaxPool <kernel_shape = [3, 1]> (c) [m] m = SpaceToDepth <blocksize = 6> (p) "
    "[r] y = Relu (m)",
}


def network(onnx_text, nodes: str, size: tuple[int, int] = (8, 6)) -> onnx.ModelProto:
    """Weights of seeded noise."""
    rows, columns = size
    text = f"g (float[1,3,{rows},{columns}] x) => (float[A,B,C,D] y) <{SHAPES}> {{ {nodes} }}"
    model = onnx_text(text)
    rng = np.random.default_rng(7)
    for name, shape in WEIGHTS.items():
        if any(name in node.input for node in model.graph.node):
            data = rng.standard_normal(shape).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    return model


def types(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


@pytest.mark.parametrize("name", CHANNELS)
def test_a_convolution_behind_takes_the_pixels_itself(name, onnx_text, canonical):
    model = canonical(network(onnx_text, CHANNELS[name] + JOINED), rewriting=True)
    assert types(model) == ["Conv", "Conv"]
    assert model.graph[1].attributes.get_ints("kernel_shape") == (6, 6)


@pytest.mark.parametrize("name", CHANNELS)
def test_pixels_go_into_channels_by_ones(name, onnx_text, canonical):
    model = canonical(network(onnx_text, CHANNELS[name] + ALONE), rewriting=True)
    assert types(model) == ["Conv", "Conv", "Relu"]


def test_weights_of_pixels_taken_twice_are_not_summed_up(onnx_text, canonical):
    twice = PAIRS.format("c").replace("(ee, oe, eo, oo)", "(ee, oo, ee, oo)")
    nodes = CONV + twice + "[d] y = Conv (m, into48)"
    assert types(canonical(network(onnx_text, nodes), rewriting=True)) == ["Conv"] * 3


def test_the_convolution_stands_for_the_slices(onnx_text, canonical):
    model = canonical(network(onnx_text, CHANNELS["slices"] + JOINED), rewriting=True)
    sources = sources_of(model.graph[1])
    assert {"j", "d"} < set(sources)
    assert len(sources) == 2 + 4


def test_a_window_does_not_grow_beyond_what_small_machines_hold(onnx_text, canonical):
    nodes = CHANNELS["space_to_depth"] + "[d] y = Conv <pads = [2, 2, 2, 2]> (m, wide)"
    model = canonical(network(onnx_text, nodes), rewriting=True)
    kernels = [n.attributes.get_ints("kernel_shape") for n in model.graph]
    assert kernels == [(3, 3), (2, 2), (5, 5)]


@pytest.mark.parametrize("name", PIXELS)
def test_channels_go_into_pixels_by_ones(name, onnx_text, canonical):
    nodes = PIXELS[name] + "[d] y = Conv <pads = [1, 1, 1, 1]> (m, into3)"
    model = canonical(network(onnx_text, nodes), rewriting=True)
    assert types(model) == ["Conv", "ConvTranspose", "Conv"]


@pytest.mark.parametrize("place", ["one, zero", "zero, one", "one, one"])
def test_every_second_pixel_from_another_than_the_first(place, onnx_text, canonical):
    row, column = place.split(", ")
    nodes = (
        f"{CONV} [s] s = Slice (c, {row}, end, rows, two) "
        f"[t] t = Slice (s, {column}, end, columns, two) [r] y = Relu (t)"
    )
    model = canonical(network(onnx_text, nodes, size=(9, 7)), rewriting=True)
    assert types(model) == ["Conv", "Conv", "Relu"]


@pytest.mark.parametrize("name", STAYS)
def test_it_stays(name, onnx_text, canonical):
    given = network(onnx_text, STAYS[name])
    assert types(canonical(given, rewriting=True)) == types(canonical(given))


def test_a_clip_in_front_of_an_output_leaves_the_turn_to_the_port(onnx_text, canonical):
    nodes = CONV + "[m] m = DepthToSpace <blocksize = 2> (c) [k] y = Clip (m, low, high)"
    model = canonical(network(onnx_text, nodes), rewriting=True)
    assert types(model) == ["Conv", "Clip", "DepthToSpace"]


def test_slices_of_an_input_are_done_as_it_is_packed(onnx_text, canonical):
    nodes = PAIRS.format("x") + "[d] y = Conv (m, into12)"
    model = canonical(network(onnx_text, nodes), rewriting=True)
    assert types(model) == ["SpaceToDepth", "Conv"]


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_ones_are_none_of_the_models_multiplications(onnx_text):
    nodes = PIXELS["pixel_shuffle"] + "[d] y = Conv (m, into3)"
    compiled = compile_model(ir.from_proto(network(onnx_text, nodes)), load_hw("opu-light"))
    macs = [group.macs for group in compiled.bundle.groups]
    assert macs == [12 * 3 * 9 * 8 * 6, 0, 5 * 3 * 9 * 14 * 10]


@pytest.mark.parametrize("strategy", StrategyName)
def test_only_strategies_that_ask_for_it_get_it_and_it_is_reported(strategy, onnx_text):
    nodes = CHANNELS["space_to_depth"] + ALONE
    dfg, found = partition_model(network(onnx_text, nodes), load_hw("opu-1024"), strategy)
    kinds = [n.op for n in dfg.calls]
    if strategy in REWRITING:
        assert kinds == ["conv", "conv", "relu"]
        assert "convolution with one-hot weights" in found.rewrites["m"]
    else:
        assert kinds == ["conv", "host:SpaceToDepth", "relu"]
        assert not found.rewrites


MACHINES = ("opu-tiny", "opu-1024", "opu-light")
NETWORKS = {
    **{name: nodes + JOINED for name, nodes in CHANNELS.items()},
    **{f"{name}_alone": nodes + ALONE for name, nodes in CHANNELS.items()},
    **{name: nodes + "[d] y = Conv (m, into3)" for name, nodes in PIXELS.items()},
    "slices_of_the_input": PAIRS.format("x") + "[d] y = Conv (m, into12)",
    "clip_behind": PIXELS["dcr"] + "[k] y = Clip (m, low, high)",
}


@pytest.mark.parametrize(("name", "machine"), [*zip(NETWORKS, cycle(MACHINES))])
@pytest.mark.filterwarnings("ignore:no calibration data")
def test_the_machine_runs_all_of_it_with_the_bits_of_onnx_runtime(name, machine, onnx_text, rng):
    hw = load_hw(machine)
    compiled = compile_model(ir.from_proto(network(onnx_text, NETWORKS[name])), hw)
    assert not compiled.partition.host
    x = {"x": rng.standard_normal((1, 3, 8, 6)).astype(np.float32)}
    (found,) = run(compiled.bundle, hw, x).outputs.values()
    expected = reference(some(compiled.prepared.qdq), x)["y"]
    assert len(np.unique(expected)) > 8
    np.testing.assert_array_equal(found, expected)


QUANTISED = """g (float[1,4,8,6] x) => (float[A,B,C,D] y)
    <float s = {{0.5}}, float wide = {{{}}}, int8 z = {{3}}, int8[4,4,1,1] w = {{{}}},
     float one = {{0.03125}}, int8 none = {{0}}> {{
    q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) v = DequantizeLinear(w, one, none)
    [c] c = Conv(d, v) qc = QuantizeLinear(c, s, z) dc = DequantizeLinear(qc, s, z)
    [m] m = DepthToSpace<blocksize = 2>(dc)
    qm = QuantizeLinear(m, wide, z) dm = DequantizeLinear(qm, wide, z)
    [r] r = Relu(dm) qr = QuantizeLinear(r, wide, z) y = DequantizeLinear(qr, wide, z) }}"""


@pytest.mark.parametrize("scale", ["0.5", "0.75"])
def test_in_a_quantised_model_also_where_it_is_rounded_anew(scale, onnx_text, rng):
    weights = rng.integers(-40, 40, 16)
    given = onnx_text(QUANTISED.format(scale, ", ".join(map(str, weights))))
    hw = load_hw("opu-light")
    compiled = compile_model(ir.from_proto(given), hw)
    assert not compiled.partition.host
    x = {"x": rng.standard_normal((1, 4, 8, 6)).astype(np.float32) * 8}
    (found,) = run(compiled.bundle, hw, x).outputs.values()
    expected = reference(given, x)["y"]
    assert len(np.unique(expected)) > 8
    np.testing.assert_array_equal(found, expected)
