"""What a group's registers say: its integers are ONNX Runtime's."""

import pytest

from opu_fuse.hw.load import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.compare import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from tests.written import written

HEADER = '<ir_version: 10, opset_import: ["" : 17]> g '
AVERAGE = """(float[1,4,60,60] x) => (float[1,4,2,1] y)
    <int64[8] pads = {0,0,1,2,0,0,2,1}, float value = {VALUE}>
    { p = Pad(x, pads, value)
      y = AveragePool<kernel_shape=[62,63], pads=[1,0,0,0], count_include_pad=1>(p) }"""
CASES = {
    "a border around values whose zero is not 0": (
        """(float[1,8,6,6] x) => (float[1,8,5,6] y) <float[8,8,3,3] w>
        { a = Relu(x)  y = Conv<pads=[0,1,1,1]>(a, w) }""",
        1,
    ),
    "a border that goes on as the window's own": (AVERAGE.replace("VALUE", "0"), 1),
    "a border of another value than the window's own": (AVERAGE.replace("VALUE", "-2"), 2),
    "two phases of a transposed convolution with a value inside": (
        """(float[1,4,5,6] x) => (float[1,3,11,8] y) <float[4,3,3,3] w>
        { c = ConvTranspose<strides=[2,1]>(x, w)  y = LeakyRelu<alpha=0.25>(c) }""",
        1,
    ),
}


@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:no calibration data")
def test_a_group_is_right_in_every_tensor(case, scales):
    text, groups = CASES[case]
    model = written(HEADER + text, seed=3)
    hw = load_hw("opu-1024")
    found = compile_model(model, hw, Options(scales=scales)).bundle
    assert (len(found.groups), found.hosts) == (groups, {})
    inputs = noise(found)
    compared = check(found, inputs, run(found, hw, inputs, capture=True))
    assert compared.passed, compared.first
