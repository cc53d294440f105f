"""What runs on the array without being a convolution, on values whose zero is not 0."""

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from tests.written import written

HEADER = '<ir_version: 10, opset_import: ["" : 17]> g '
CASES = {
    "channels that change places": (
        "opu-micro",
        """(float[1,8,6,6] x) => (float[1,8,6,6] y)
        <int64[5] apart = {1,2,4,6,6}, int64[4] back = {1,8,6,6}>
        { a = Relu(x)  r = Reshape(a, apart)  t = Transpose<perm=[0,2,1,3,4]>(r)
          y = Reshape(t, back) }""",
    ),
    "averages of more values than the pool counts": (
        "opu-light",
        """(float[1,8,61,63] x) => (float[1,8,2,2] y)
        { a = Relu(x)  y = AveragePool<kernel_shape=[60,62]>(a) }""",
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:no calibration data")
def test_every_tensor_is_that_of_onnx_runtime(case):
    machine, text = CASES[case]
    hw = load_hw(machine)
    plan = compile_model(written(HEADER + text, seed=3), hw, Options(scales="free"))
    layers = [parts[0].layer for parts in plan.plan.layers.values()]
    assert any(layer.anchor is not None for layer in layers), "nothing runs on the array"
    found = plan.bundle
    assert any(t.zero_point for t in found.tensors)
    inputs = noise(found)
    compared = check(found, inputs, run(found, hw, inputs, capture=True))
    assert compared.passed, compared.first
