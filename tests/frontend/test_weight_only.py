"""Models of which nothing but weights is quantised: float models, which are quantised here."""

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import opu_fuse
from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.qdq_reference import reference
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.quant import META_KEY
from opu_fuse.sim.engine import run

Text = Callable[..., onnx.ModelProto]
REGRESSIONS = Path(__file__).resolve().parent.parent / "regressions"
RNG = np.random.default_rng(4)
PER_ROW = {"s": np.array([0.25, 0.5, 1, 2], np.float32) / 128, "z": np.zeros(4, np.int8)}
INTEGERS = RNG.integers(-100, 100, (4, 4))
REALS = RNG.normal(size=(4, 4)).astype(np.float32)

FORMS = {
    "a scale for each row": (
        "r = DequantizeLinear<axis=0>(w, s, z)",
        {"w": INTEGERS.astype(np.int8), **PER_ROW},
    ),
    "uint8 with any zero point": (
        "r = DequantizeLinear(w, s, z)",
        {"w": (INTEGERS + 103).astype(np.uint8), "s": np.float32(0.01), "z": np.uint8(103)},
    ),
    "int32 with a zero point that wraps": (
        "r = DequantizeLinear(w, s, z)",
        {"w": np.int32(INTEGERS * 2**24), "s": np.float32(1e-9), "z": np.int32(-(2**30))},
    ),
    "blocks of 4 bits": (
        "r = DequantizeLinear<axis=1, block_size=2>(w, s)",
        {
            "w": (INTEGERS // 15).astype(ml_dtypes.int4),
            "s": RNG.uniform(0.05, 0.2, (4, 2)).astype(np.float32),
        },
    ),
    "rounded in the model, to 16 bits": (
        "q = QuantizeLinear<axis=-2>(w, s, z)  r = DequantizeLinear<axis=-2>(q, s, z)",
        {"w": REALS, "s": PER_ROW["s"] / 256, "z": np.zeros(4, np.int16)},
    ),
    "16 bits that only an attribute tells": (
        "q = QuantizeLinear<output_dtype=5>(w, s)  r = DequantizeLinear(q, s)",
        {"w": REALS, "s": np.float32(1 / 8192)},
    ),
}


@pytest.mark.parametrize("kind", FORMS)
def test_weights_of_any_form_are_read_as_floats(kind: str, onnx_text: Text):
    form, weights = FORMS[kind]
    text = f"""g (float[1,4] x) => (float[1,4] y)
    {{ {form}  t = Transpose(r)  a = MatMul(x, t)  y = Relu(a) }}"""
    model = onnx_text(text, opset=21, ir_version=10, **weights)
    prepared = prepare(model, calibration={"x": RNG.uniform(-2, 2, (64, 4)).astype(np.float32)})
    assert [n.op_type for n in prepared.canonical.graph] == ["Gemm", "Relu"]
    assert all(META_KEY in n.outputs[0].meta for n in prepared.canonical.graph)
    assert prepared.qdq is not None
    inputs = {"x": RNG.uniform(-2, 2, (1, 4)).astype(np.float32)}
    got, wanted = reference(prepared.qdq, inputs)["y"], reference(model, inputs)["y"]
    np.testing.assert_allclose(got, wanted, atol=0.05 * max(1.0, np.abs(wanted).max()))


def test_they_run_on_the_machine():
    program = opu_fuse.compile(REGRESSIONS / "weight_only.onnx", opu_fuse.load_hw("opu-tiny"))
    assert [op.op for group in program.bundle.groups for op in group.ops] == ["conv", "relu"]


def test_integers_that_come_in_leave_a_float_model_to_be_quantised(onnx_text: Text):
    text = """g (uint8[1,4,6,6] x) => (float[1,4,6,6] y)
    { r = DequantizeLinear(x, s, z)  c = Conv(r, w)  y = Relu(c) }"""
    model = onnx_text(
        text, s=np.float32(0.02), z=np.uint8(128), w=REALS.reshape(4, 4, 1, 1) / np.float32(4)
    )
    conv, relu = list(prepare(model).canonical.graph)[-2:]
    assert META_KEY in conv.outputs[0].meta
    assert META_KEY in relu.outputs[0].meta


@pytest.mark.parametrize(
    "form",
    [
        "d = DequantizeLinear(x, s, z)",
        "d = DequantizeLinear<axis=3>(x, rows, zeros)",
        "t = Exp(s)  d = DequantizeLinear(x, t, z)",  # a constant, too
        "t = Exp(u)  d = DequantizeLinear(x, t, z)",
    ],
)
@pytest.mark.parametrize(
    "next_", ["Transpose<perm=[0,3,1,2]>(d)", "MaxPool<kernel_shape=[1,1]>(d)"]
)
def test_an_image_in_integers_becomes_floats_and_is_rounded_again(form, next_):
    """ONNX Runtime's quantiser would look for the scale of what is moved without end."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (uint8[1,4,4,4] x, float u) => (float[1,4,4,4] y)
        <float s = {{0.25}}, uint8 z = {{7}}, float[4] rows = {{0.25, 0.5, 0.125, 0.25}},
         uint8[4] zeros = {{0, 3, 2, 255}}> {{
        {form}  m = {next_}  r = Relu(m)  y = Add(r, r) }}""")
    samples = {
        "x": RNG.integers(0, 200, (2, 4, 4, 4)).astype(np.uint8),
        "u": np.array([-1.5, -1.5], np.float32),
    }
    hw = load_hw("opu-tiny")
    compiled = compile_model(ir.from_proto(model), hw, Options(calibration=samples))
    inputs = {"x": samples["x"][:1], "u": samples["u"][0, ...]}
    found = run(compiled.bundle, hw, inputs).outputs["y"]
    (wanted,) = ort.InferenceSession(model.SerializeToString()).run(None, inputs)
    assert np.abs(found - wanted).max() <= np.abs(np.asarray(wanted)).max() / 64
    assert compiled.bundle.groups
