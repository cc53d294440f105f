"""A map whose pixels are read in other rows and columns: no host, no copy, ONNX Runtime's bits."""

import numpy as np
import onnx
import pytest

from tests.networks.attention_blocks import with_constants
from tests.networks.test_attention import on_host, run

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")


def weights(channels: int, **kernels: int) -> dict[str, np.ndarray]:
    """Of square convolutions from `channels` to as many, by name. kernels: their rows."""
    rng = np.random.default_rng(channels)
    sizes = {name: (channels, channels, side, side) for name, side in kernels.items()}
    return {name: rng.normal(size=size) / channels for name, size in sizes.items()}


def tokens_and_maps(c: int, h: int, w: int) -> onnx.ModelProto:
    """A map as one row, as h rows and as w rows: with residuals and a join of such views."""
    text = f"""<ir_version: 9, opset_import: ["" : 17]>
        g (float[1,{c},{h},{w}] x) => (float[1,{c},{w},{h}] y, float[1,{2 * c},1,{h * w}] z)
        <int64[4] row = {{1, {c}, 1, {h * w}}}, int64[4] turned = {{1, {c}, {w}, {h}}}> {{
            [conv] a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w0)
            [relu] b = Relu(a)
            [flat] c = Reshape(b, row)
            [point] d = Conv(c, w1)
            [again] e = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(b, w2)
            [flat2] f = Reshape(e, row)
            [sum] s = Add(d, f)
            [join] z = Concat<axis=1>(s, c)
            [tall] t = Reshape(s, turned)
            [last] y = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(t, w3)
        }}"""
    return with_constants(text, weights(c, w0=3, w1=1, w2=3, w3=3))


def two_readers(c: int, h: int, w: int) -> onnx.ModelProto:
    """A map that fits a word several times, read at once as it is and as one row."""
    text = f"""<ir_version: 9, opset_import: ["" : 17]>
        g (float[1,{c},{h},{w}] x) => (float[1,{c},1,{h * w}] y, float[1,{c},{h},{w}] z)
        <int64[4] row = {{1, {c}, 1, {h * w}}}> {{
            [conv] a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w0)
            [whole] z = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(a, w1)
            [flat] b = Reshape(a, row)
            [point] y = Conv(b, w2)
        }}"""
    return with_constants(text, weights(c, w0=3, w1=3, w2=1))


SIZES = [(8, 4, 6), (3, 5, 7), (24, 3, 3), (5, 1, 9), (65, 9, 2)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("machine", ["opu-tiny", "opu-1024", "opu-light"])
def test_views_of_pixels_have_onnxruntimes_bits_and_need_no_host(machine, size):
    program, _, checked = run(tokens_and_maps(*size), machine)
    assert checked.passed
    assert checked.mismatches == 0
    assert {op.op for op in on_host(program)} <= {"concat"}  # of machines that join no maps


@pytest.mark.parametrize("machine", ["opu-tiny", "opu-1024"])
@pytest.mark.parametrize("size", [(8, 4, 6), (16, 5, 7), (64, 4, 4)])
def test_readers_in_other_rows_see_the_same_pixels(machine, size):
    program, _, checked = run(two_readers(*size), machine)
    assert checked.passed
    assert checked.mismatches == 0
    assert on_host(program) == []


@pytest.mark.parametrize("options", [{"batch": 3}, {"reuse_memory": False}])
def test_views_of_pixels_of_a_batch_and_in_memory_of_their_own(options):
    _, _, checked = run(tokens_and_maps(8, 4, 6), "opu-1024", **options)
    assert checked.passed
    assert checked.mismatches == 0


def test_no_order_of_the_engines_changes_views_of_pixels():
    for seed in range(3):
        _, _, checked = run(tokens_and_maps(24, 3, 5), "opu-1024", shuffle=seed)
        assert checked.mismatches == 0


def test_a_map_that_is_flattened_for_a_dense_layer_may_pack_its_pixels():
    text = """<ir_version: 9, opset_import: ["" : 17]>
        g (float[1,8,4,8] x) => (float[1,10] y) <int64[2] flat = {1, 512}> {
            [conv] a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w0)
            [relu] b = Relu(a)
            [flatten] c = Reshape(b, flat)
            [dense] y = Gemm<transB=1>(c, w1)
        }"""
    rng = np.random.default_rng(0)
    constants = {"w0": rng.normal(size=(16, 8, 3, 3)), "w1": rng.normal(size=(10, 512))}
    program, _, checked = run(with_constants(text, constants), "opu-1024", reuse_memory=False)
    assert checked.mismatches == 0
    slots = {tensor.name: tensor.layout.slot for tensor in program.bundle.tensors}
    assert slots["b"] == 16
