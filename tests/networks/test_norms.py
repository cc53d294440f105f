"""Softmax and layer normalisations on machines that have the unit: ONNX Runtime's bits, at most one
step off, and reasons where they remain on the host.
"""

import numpy as np
import onnx
import pytest

import opu_fuse
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.cycle.run import run_cycle
from tests.hw.norm_machine import norm_machine
from tests.networks import norm_blocks as blocks
from tests.networks.attention_blocks import with_constants
from tests.networks.test_attention import on_host, operators, run

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

CHANNELS = (1, 7, 8, 9, 24, 197)


@pytest.fixture(scope="module")
def machine():
    return norm_machine()


def assert_normalised(program, checked, norm, *, times=1):
    assert checked.passed
    assert checked.mismatches <= checked.elements / 50
    assert operators(program).count(norm) == times


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("norm", blocks.NORMS)
def test_any_number_of_channels_is_normalised(norm, channels, machine):
    program, _, checked = run(blocks.network(norm, channels), machine)
    alone = channels == 1 and norm in {"layer_norm", "rms_norm"}  # it has no deviation
    wide = channels == 197 and norm == "group_norm"  # no bank holds 625 words
    if alone or wide:
        assert checked.passed
        assert len(on_host(program)) > 0
        return
    assert_normalised(program, checked, norm)
    assert on_host(program) == []


@pytest.mark.parametrize("before", blocks.BEFORE)
@pytest.mark.parametrize("norm", blocks.NORMS)
def test_a_norm_follows_whatever_computes_its_operand(norm, before, machine):
    whole = (norm, before) == ("group_norm", "transposed")  # a map of 200 words
    program, _, checked = run(
        blocks.network(norm, 13, before=before), "opu-1024a" if whole else machine
    )
    assert_normalised(program, checked, norm)
    assert on_host(program) == []


@pytest.mark.parametrize(("before", "together"), [
    ("conv", ["conv", "softmax"]),
    ("residual", ["conv", "add", "softmax"]),
    ("bias map", ["conv", "add", "softmax"]),
    ("relu", ["softmax"]),
])  # fmt: skip
def test_a_norm_joins_a_layer_and_a_sum(before, together, machine):
    program, _, _ = run(blocks.network("softmax", 13, before=before), machine)
    assert [op.op for op in program.bundle.groups[-2].ops] == together


@pytest.mark.parametrize("norm", ["LayerNormalization<axis=-1>(t, g, o)", "RMSNormalization(t, g)"])
@pytest.mark.parametrize("channels", [7, 24])
def test_a_norm_of_patches_in_a_row_joins_the_convolution_that_computes_them(
    norm, channels, machine
):
    """SegFormer's embedding: the result is read as a row and as an image."""
    c, rng = channels, np.random.default_rng(channels)
    text = f"""<ir_version: 11, opset_import: ["" : 23]>
g (float[1,3,8,12] x) => (float[1,24,{c}] y, float[1,{c},4,6] z) {{
  a = Conv<strides=[2,2]>(x, w) r = Reshape(a, row) t = Transpose<perm=[0,2,1]>(r) n = {norm}
  h = MatMul(n, v) y = Add(h, n) q = Transpose<perm=[0,2,1]>(n) i = Reshape(q, image)
  z = Conv(i, u) }}"""
    model = with_constants(
        text,
        {
            "w": rng.normal(size=(c, 3, 2, 2)),
            "v": rng.normal(size=(c, c)) / np.sqrt(c),
            "u": rng.normal(size=(c, c, 1, 1)) / np.sqrt(c),
            "g": rng.normal(1, 0.3, c),
            "o": rng.normal(0, 0.3, c),
            "row": np.array([1, c, 24]),
            "image": np.array([1, c, 4, 6]),
        },
    )
    program, _, checked = run(model, machine)
    op = "layer_norm" if norm.startswith("Layer") else "rms_norm"
    assert_normalised(program, checked, op)
    assert [op.op for op in program.bundle.groups[0].ops if op.op != "reshape"] == ["conv", op]
    assert on_host(program) == []


@pytest.mark.parametrize("after", blocks.AFTER)
@pytest.mark.parametrize("norm", blocks.NORMS)
def test_whatever_reads_a_norm_has_its_bits(norm, after):
    program, _, checked = run(blocks.network(norm, 70, after=after), "opu-1024a")
    assert_normalised(program, checked, norm)
    assert on_host(program) == []


@pytest.mark.parametrize("scales", ["free", "pow2-asymmetric"])
@pytest.mark.parametrize("norm", blocks.NORMS)
def test_all_scales_and_zero_points_are_within_a_step(norm, scales, machine):
    program, _, checked = run(blocks.network(norm, 29), machine, scales=scales)
    assert_normalised(program, checked, norm)


@pytest.mark.parametrize("norm", blocks.NORMS)
def test_images_of_a_batch_have_the_same_bits(norm, machine):
    model = blocks.network(norm, 13, before="residual")
    program, together, checked = run(model, machine, batch=2)
    assert_normalised(program, checked, norm)
    x = np.random.default_rng(3).normal(size=(2, 6, 5, 5)).astype(np.float32)
    alone = opu_fuse.compile(model, machine).run({"x": x})
    np.testing.assert_array_equal(alone.outputs["y"], together.outputs["y"])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("norm", ["softmax", "layer_norm"])
def test_every_legal_order_has_the_same_bits(norm, seed, machine):
    model = blocks.network(norm, 40, before="residual", after="several")
    _, result, _ = run(model, machine)
    _, other, _ = run(model, machine, shuffle=seed)
    np.testing.assert_array_equal(result.outputs["y"], other.outputs["y"])


@pytest.mark.parametrize("strategy", ["matched", "optimal", "dominator", "none"])
def test_all_strategies_have_the_bits(strategy, machine):
    model = blocks.network("layer_norm", 13, before="residual", after="table")
    program, _, checked = run(model, machine, strategy=strategy)
    assert_normalised(program, checked, "layer_norm")


@pytest.mark.parametrize("spelling", ["operator", "layer_norm"])
@pytest.mark.parametrize("name", ["norms", "opu-1024a"])
def test_a_transformer_block_leaves_no_norm_to_the_host(spelling, name, machine):
    model = blocks.transformer_block(16, 24, 3, spelling=spelling)
    program, _, checked = run(model, machine if name == "norms" else name)
    assert checked.passed
    counts = [operators(program).count(op) for op in ("softmax", "layer_norm", "matmul")]
    assert counts == [3, 2, 6]
    assert not {*blocks.NORMS} & {op[1] for op in on_host(program)}
    assert not [op for op in on_host(program) if "Norm" in op[1] or "Softmax" in op[1]]


def rounded_softmax(scale: float, zero: int, kind: str) -> onnx.ModelProto:
    """Softmax with pairs of another tool."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
g (float[1,12,4,3] x) => (float[1,12,4,3] y) <
  float i = {{0.0625}}, int8 z = {{3}}, float s = {{{scale!r}}}, {kind} t = {{{zero}}}> {{
  a = QuantizeLinear(x, i, z) b = DequantizeLinear(a, i, z)
  c = Softmax<axis=1>(b)
  d = QuantizeLinear(c, s, t) y = DequantizeLinear(d, s, t) }}"""
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize(("scale", "zero", "kind"), [
    (1 / 255, 0, "uint8"), (1 / 256, 0, "uint8"), (1 / 256, -128, "int8"), (1 / 127, 0, "int8"),
    (0.0031, 7, "int8"),
])  # fmt: skip
def test_a_softmax_has_the_scale_of_a_quantised_model(scale, zero, kind, machine):
    program, _, checked = run(rounded_softmax(scale, zero, kind), machine)
    assert_normalised(program, checked, "softmax")


def test_a_softmax_in_floats_of_a_quantised_model_is_left_to_the_host(machine):
    model = rounded_softmax(1 / 255, 0, "uint8")
    del model.graph.node[3:]
    model.graph.node[2].output[0] = "y"
    program, _, checked = run(model, machine)
    assert checked.passed
    ((_, _, why),) = [op for op in on_host(program) if op[1] == "softmax"]
    assert "the result of Softmax_0 is not rounded to int8 in the model" in why


def test_a_machine_without_the_unit_leaves_norms_to_the_host_in_floats():
    for norm in blocks.NORMS:
        program, _, checked = run(blocks.network(norm, 13, after="output"), "opu-tiny")
        assert checked.mismatches == 0
        assert [op[1] for op in on_host(program)] == [f"host:{HOST[norm]}"]


HOST = {
    "softmax": "Softmax",
    "layer_norm": "LayerNormalization",
    "rms_norm": "RMSNormalization",
    "group_norm": "GroupNormalization",
}


def test_a_softmax_that_is_too_wide_for_a_pixel_has_a_reason(machine):
    program, _, checked = run(blocks.network("softmax", 300), machine)
    assert checked.passed
    ((_, op, why),) = on_host(program)
    assert op == "softmax"
    assert "its smallest tile needs 304 words of the param buffer, a bank holds 256" in why


def test_a_softmax_over_rows_is_the_hosts(machine):
    text = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,12,4,3] x) => (float[1,12,4,3] y) { a = Softmax<axis=2>(x) y = Relu(a) }"""
    program, _, checked = run(onnx.parser.parse_model(text), machine)
    assert checked.passed
    assert "host:Softmax" in [op[1] for op in on_host(program)]


def test_a_scale_that_is_computed_is_the_hosts(machine):
    text = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,12] x) => (float[1,12] y) {
  g = MatMul(x, w) h = Squeeze(g) y = LayerNormalization<axis=-1>(x, h) }"""
    weights = {"w": np.random.default_rng(1).normal(size=(12, 12))}
    program, _, checked = run(with_constants(text, weights), machine)
    assert checked.passed
    assert "layer_norm" not in operators(program)


@pytest.mark.parametrize("norm", ["softmax", "layer_norm"])
def test_a_row_is_normalised(norm, machine):
    call = "Softmax<axis=-1>(a)" if norm == "softmax" else "LayerNormalization<axis=-1>(a, g, o)"
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
g (float[1,20] x) => (float[1,20] y) {{ a = MatMul(x, w) b = {call} y = MatMul(b, w) }}"""
    rng = np.random.default_rng(4)
    constants = {
        "w": rng.normal(size=(20, 20)),
        "g": rng.normal(1, 0.3, 20),
        "o": rng.normal(size=20),
    }
    program, _, checked = run(with_constants(text, constants), machine)
    assert_normalised(program, checked, norm)


@pytest.mark.parametrize("name", ["norms", "opu-tiny"])
def test_a_dense_layer_reads_a_flattened_norm(name, machine):
    """The norm's Transpose stays with it."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,2,11] x) => (float[1,3] y) {
  a = LayerNormalization<axis=-1>(x, g) t = Transpose<perm=[0,3,1,2]>(a)
  r = Reshape(t, sizes) y = MatMul(r, w) }"""
    rng = np.random.default_rng(5)
    constants = {"g": rng.normal(1, 0.3, 11), "w": rng.normal(size=(66, 3))}
    model = with_constants(text, {**constants, "sizes": np.array([1, 66])})
    _, _, checked = run(model, machine if name == "norms" else name)
    assert checked.passed


LAST = {
    "channels last": "a = Conv(x, w) t = Transpose<perm=[0,2,3,1]>(a) s = Softmax<axis=-1>(t)"
    " u = Transpose<perm=[0,3,1,2]>(s) y = Conv(u, v)",
    "tokens": "r = Reshape(x, sizes) t = Transpose<perm=[0,2,1]>(r) a = MatMul(t, wd)"
    " s = Softmax<axis=-1>(a) y = MatMul(s, vd)",
    "tokens at the end": "r = Reshape(x, sizes) t = Transpose<perm=[0,2,1]>(r) a = MatMul(t, wd)"
    " y = Softmax<axis=-1>(a)",
}


@pytest.mark.parametrize("case", LAST)
def test_a_softmax_of_the_last_axis_is_one_of_channels(case):
    rng = np.random.default_rng(2)
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
g (float[1,6,4,5] x) => (float[n,m,k] y) {{ {LAST[case]} }}"""
    if case == "channels last":
        text = text.replace("n,m,k", "n,m,k,l")
    model = with_constants(text, {
        "w": rng.normal(size=(12, 6, 1, 1)), "v": rng.normal(size=(12, 12, 1, 1)),
        "wd": rng.normal(size=(6, 12)), "vd": rng.normal(size=(12, 12)),
        "sizes": np.array([1, 6, 20]),
    })  # fmt: skip
    program, _, checked = run(model, "opu-1024a")
    assert_normalised(program, checked, "softmax")
    assert on_host(program) == []


def test_a_float_model_and_its_quantised_form_have_the_same_groups(machine):
    model = blocks.transformer_block(16, 24, 3)
    parts = opu_fuse.partition(model, machine)
    program = opu_fuse.compile(model, machine)
    wanted = [[op.op for op in g.ops] for g in program.bundle.groups]
    assert len(parts.groups) == len(wanted)


def test_the_scale_of_a_softmax_suits_its_values(machine):
    """197 values that are nearly alike are about 1/197: a fixed scale of 1/256 would round them all
    to 1.
    """
    program, _, checked = run(blocks.network("softmax", 197, before="input"), machine)
    assert checked.passed
    (scale,) = {t.scale for t in program.bundle.tensors if t.name == "n"}
    assert scale < 2.0**-9


def test_the_shipped_machine_keeps_whole_pixels_in_a_tile():
    hw = load_hw("opu-1024a")
    program, _, checked = run(blocks.network("layer_norm", 1024, before="residual"), hw)
    assert_normalised(program, checked, "layer_norm")


SOFTMAX = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,240,{rows},{cols}] x) => (float[1,240,{rows},{cols}] y) {{ y = Softmax<axis=1>(x) }}"""


def test_rows_of_few_pixels_are_not_normalised_one_by_one():
    spec = load_hw("opu-1024a")

    def cycles(rows: int, cols: int) -> float:
        model = onnx.parser.parse_model(SOFTMAX.format(rows=rows, cols=cols))
        return run_cycle(opu_fuse.compile(model, spec).bundle, spec).counters["cycles"]

    assert cycles(4, 16) <= 1.05 * cycles(1, 64)
