"""Linear upsampling on the array, as a transposed convolution that repeats the border."""

import numpy as np
import onnx
import pytest

import opu_fuse
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.cycle.run import run_cycle
from tests.networks.attention_blocks import with_constants

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")


def network(channels: int, size: tuple[int, int], factor: int, mode: str) -> onnx.ModelProto:
    rows, cols = size
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,3,{rows},{cols}] x) => (float[1,{channels},{rows * factor},{cols * factor}] y) {{
      a = Conv(x, w)
      b = Resize<mode="linear", coordinate_transformation_mode="{mode}">(a, , s)
      y = Relu(b) }}"""
    weights = np.random.default_rng(1).normal(size=(channels, 3, 1, 1))
    return with_constants(text, {"w": weights, "s": np.array([1, 1, factor, factor], np.float32)})


def operators(program):
    return [op.op for group in program.bundle.groups for op in group.ops]


@pytest.mark.parametrize("scales", ["pow2", "free", "pow2-asymmetric"])
@pytest.mark.parametrize(("channels", "size"), [
    (5, (2, 3)), (70, (7, 5)), (64, (40, 30)), (24, (2, 20)),
])  # fmt: skip
def test_a_resize_has_onnxruntimes_bits(channels, size, scales):
    model = network(channels, size, 2, "half_pixel")
    program = opu_fuse.compile(model, "opu-1024a", scales=scales)
    x = np.random.default_rng(2).normal(size=(1, 3, *size)).astype(np.float32)
    result = program.run({"x": x}, capture=True, shuffle=1)
    checked = check(program.bundle, {"x": x}, result)
    native = program.run({"x": x}, engine="native")
    assert checked.passed
    assert checked.mismatches <= (checked.elements / 50 if scales != "pow2" else 0)
    assert "transposed_conv" in operators(program)
    assert not {"avg_pool", "upsample"} & {*operators(program)}
    np.testing.assert_array_equal(native.outputs["y"], result.outputs["y"])


@pytest.mark.parametrize(("factor", "mode"), [(3, "half_pixel"), (2, "asymmetric")])
def test_other_resizes_remain_repeated_pixels_and_means(factor, mode):
    program = opu_fuse.compile(network(8, (5, 4), factor, mode), "opu-1024a")
    assert "transposed_conv" not in operators(program)
    assert {"avg_pool", "upsample"} <= {*operators(program)}


@pytest.mark.parametrize("machine", ["opu-1024t", "opu-light"])
def test_machines_without_norms_keep_their_programs(machine):
    program = opu_fuse.compile(network(8, (5, 4), 2, "half_pixel"), machine)
    assert "transposed_conv" not in operators(program)


def test_the_array_takes_two_cycles_a_word_and_stores_a_third_more():
    hw = load_hw("opu-1024a")
    bundle = opu_fuse.compile(network(256, (28, 28), 2, "half_pixel"), hw).bundle
    resize = next(g for g in bundle.groups if "transposed_conv" in [op.op for op in g.ops])
    (counted,) = [g.cycles for g in run_cycle(bundle, hw).groups if g.index == resize.index]
    array = 56 * 56 * 4 * hw.array.window_cycles
    assert array < resize.cycles < counted < 1.75 * array


def test_a_resize_by_more_ends_with_a_convolution():
    program = opu_fuse.compile(network(8, (5, 4), 4, "half_pixel"), "opu-1024a")
    assert operators(program)[-2:] == ["conv", "relu"]
    assert operators(program).count("avg_pool") == 1
