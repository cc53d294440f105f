"""Whole channels and every n-th pixel are moved on the machine, with the bits of ONNX Runtime."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from tests.networks.quantised_elsewhere import quantised_elsewhere

CONSTANTS = """<float[70,6,1,1] w, int64[8] after = {0,0,0,0,0,5,0,0},
    int64[8] around = {0,2,0,0,0,3,0,0}, int64[4] some = {69,3,3,-66}, int64[1] one = {1},
    int64[1] last = {-1}, int64[1] before = {-71}, int64[1] fifth = {5}, int64[1] end = {70},
    int64[2] zeros = {0,0}, int64[2] far = {9,9}, int64[2] pixels = {2,3}, int64[2] two = {2,2},
    int64[1] third = {3}, int64[4] every = {0,0,0,0}, int64[4] all = {1,70,9,7}>"""
MOVES = {
    "zeros behind": "y = Pad(c, after)",
    "zeros around": "p = Pad(c, around) y = Relu(p)",
    "a list of channels": "y = Gather<axis=1>(c, some)",
    "every third channel": "y = Slice(c, fifth, end, one, third)",
    "channels backwards": "y = Slice(c, last, before, one, last)",
    "every other pixel": "y = Slice(c, zeros, far, pixels, two)",
    "a shortcut of a CIFAR network": "s = Slice(c, zeros, far, pixels, two) y = Pad(s, around)",
    "everything": "s = Slice(c, every, all) y = Relu(s)",
}
ROUNDED_ANEW = {"zeros around", "everything"}
"""By ONNX Runtime's quantiser: to the scale of the Relu."""


def network(rng, body):
    text = f"""<ir_version: 10, opset_import: ["" : 17]>
        g (float[1,6,9,7] x) => (float[A,B,C,D] y) {CONSTANTS}
        {{ c = Conv(x, w) {body} }}"""
    model = onnx.parser.parse_model(text)
    weight = onnx.numpy_helper.from_array(rng.normal(size=(70, 6, 1, 1)).astype(np.float32), "w")
    kept = [t for t in model.graph.initializer if t.name != "w"]
    del model.graph.initializer[:], model.graph.input[1:]
    model.graph.initializer.extend([*kept, weight])
    return ir.from_proto(model)


@pytest.mark.parametrize("machine", ["opu-light", "opu-1024t"])
@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("name", MOVES)
def test_what_is_moved_is_onnx_runtimes(name, scales, machine, rng):
    hw, model = load_hw(machine), network(rng, MOVES[name])
    samples = {"x": rng.normal(0.5, size=(1, 6, 9, 7)).astype(np.float32)}
    compiled = compile_model(model, hw, Options(calibration=samples, scales=scales))
    assert not compiled.partition.host
    result = run(compiled.bundle, hw, samples, capture=True)
    found = check(compiled.bundle, samples, result)
    assert found.passed
    assert found.mismatches == 0 or scales == "free"  # the convolution's own


@pytest.mark.parametrize("name", [n for n in MOVES if n not in ROUNDED_ANEW])
def test_others_models_keep_the_integers_that_are_moved(name, rng):
    hw = load_hw("opu-light")
    samples = {"x": rng.normal(0.5, size=(1, 6, 9, 7)).astype(np.float32)}
    given = quantised_elsewhere(network(rng, MOVES[name]), samples)
    compiled = compile_model(given, hw)
    assert not [op for op in compiled.partition.host if compiled.dfg[op.node].op == "shuffle"]
    result = run(compiled.bundle, hw, samples, capture=True)
    assert check(compiled.bundle, samples, result).passed


def test_zeros_that_somebody_publishes_as_a_pad_stay_one(rng):
    model = network(rng, MOVES["zeros behind"])
    compiled = compile_model(model, load_hw("opu-light"), Options(strategy="dominator"))
    (left,) = compiled.partition.host
    assert "pads channels" in left.reason
