"""Patches of an image become channels as it is packed, where a Conv reads each pixel once."""

import numpy as np
import onnx
import pytest

import opu_fuse
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.ports import noise
from tests.regressions.test_regressions import hold_against_onnxruntime

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

RUN = {"conv", "add", "relu"}
EMBEDDING = "c = Conv <strides = [{side}, {side}]> (x, w, bias) y = Relu (c)"
OTHERS = {
    "windows that overlap": "c = Conv <strides = [3, 3]> (x, w, bias) y = Relu (c)",
    "windows with gaps": "c = Conv <strides = [6, 6]> (x, w, bias) y = Relu (c)",
    "padding": "c = Conv <strides = [4, 4], pads = [0, 0, 4, 0]> (x, w, bias) y = Relu (c)",
    "dilations": "c = Conv <strides = [4, 4], dilations = [2, 2]> (x, w, bias) y = Relu (c)",
    "another reader": (
        "c = Conv <strides = [4, 4]> (x, w, bias)"
        " m = MaxPool <kernel_shape = [4, 4], strides = [4, 4]> (x) d = Conv (m, v) y = Add (c, d)"
    ),
    "a computed map": "d = Conv (x, u) c = Conv <strides = [4, 4]> (d, w, bias) y = Relu (c)",
}


def network(body: str, *, side=4, channels=3, patches=(2, 3), filters=10, rest=0):
    rows, cols = patches[0] * side + rest, patches[1] * side
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1,{channels},{rows},{cols}] x) => (float[A,B,C,D] y) {{ {body} }}""")
    rng = np.random.default_rng(side)
    sizes = {
        "w": (filters, channels, side, side),
        "bias": (filters,),
        "u": (channels, channels, 1, 1),
        "v": (filters, channels, 1, 1),
    }
    for name, shape in sizes.items():
        if any(name in node.input for node in model.graph.node):
            data = rng.normal(size=shape).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    return model


@pytest.mark.parametrize(("side", "channels"), [(2, 3), (3, 1), (4, 3), (4, 5), (16, 3)])
def test_the_port_packs_patches(side, channels, canonical):
    model = network(EMBEDDING.format(side=side), side=side, channels=channels)
    found = canonical(model, rewriting=True)
    assert [node.op_type for node in found.graph] == ["SpaceToDepth", "Conv", "Relu"]
    assert found.graph[1].inputs[0].shape == (1, channels * side**2, 2, 3)


@pytest.mark.parametrize("case", OTHERS)
def test_it_stays(case, canonical):
    model = network(OTHERS[case], patches=(4, 6))
    assert "SpaceToDepth" not in [n.op_type for n in canonical(model, rewriting=True).graph]


def test_rows_that_no_patch_reads_keep_the_image(canonical):
    model = network(EMBEDDING.format(side=4), rest=2)
    assert [n.op_type for n in canonical(model, rewriting=True).graph] == ["Conv", "Relu"]


@pytest.mark.parametrize("machine", ["opu-tiny", "opu-1024a", "opu-light", "opu-micro"])
@pytest.mark.parametrize(("side", "channels"), [(2, 1), (4, 3), (7, 5), (16, 3)])
def test_the_bits_are_those_of_the_model(side, channels, machine):
    model = network(EMBEDDING.format(side=side), side=side, channels=channels, filters=20)
    hold_against_onnxruntime(model, machine)


def test_images_of_a_batch_and_a_quantised_model_are_packed_too():
    first = opu_fuse.compile(network(EMBEDDING.format(side=4)), "opu-tiny", batch=3)
    again = opu_fuse.compile(onnx.load_from_string(first.bundle.qdq), "opu-tiny", batch=3)
    for program in (first, again):
        inputs = noise(program.bundle)
        result = program.run(inputs, capture=True)
        checked = check(program.bundle, inputs, result)
        assert checked.passed
        assert checked.mismatches == 0
        assert program.bundle.inputs[0].shape == (1, 3, 8, 12)
        assert {op.op for group in program.bundle.groups for op in group.ops} <= RUN


def test_fewer_lanes_of_the_array_are_idle():
    """Of 768 products for a filter, 48 at a time leave a quarter of 64 lanes idle."""
    model = network(EMBEDDING.format(side=16), side=16, patches=(14, 14), filters=192)
    hw = load_hw("opu-1024a")
    (group,) = compile_model(model, hw).bundle.groups
    assert group.macs == 14 * 14 * 192 * 768
    assert group.cycles < 1.2 * group.macs / hw.macs
