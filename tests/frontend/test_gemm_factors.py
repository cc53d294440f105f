"""Gemms of other forms than the machines': factors of weights that came rounded, several rows.
ONNX Runtime's results, whatever the form.
"""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.engine import run

HW = load_hw("opu-tiny")
X = {"x": np.array([[-1.5, 2, 0.25, -0.5]], np.float32)}
GEMM = """<ir_version: 10, opset_import: ["" : 17]>
    g (float[1,4] x) => (float[1,2] y)
    <float s = {0.25}, int8 z = {0}, float ws = {0.125},
     int8[2,4] wq = {-128, 3, 5, 7, 127, -128, 0, 1}> {
      xq = QuantizeLinear(x, s, z)  xd = DequantizeLinear(xq, s, z)
      w = DequantizeLinear(wq, ws, z)  f = Gemm<transB=1>(xd, w)
      fq = QuantizeLinear(f, s, z)  y = DequantizeLinear(fq, s, z) }"""


@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.5, 1e-44, 3e38, float("nan")])
def test_a_factor_of_rounded_weights(alpha):
    """-(-128) is no int8; 0 and NaN are no scales."""
    model = onnx.parser.parse_model(GEMM)
    gemm = next(n for n in model.graph.node if n.op_type == "Gemm")
    gemm.attribute.append(onnx.helper.make_attribute("alpha", alpha))
    compiled = compile_model(ir.from_proto(model), HW)
    assert len(compiled.partition.host) == (alpha != 0.5)
    (wanted,) = ort.InferenceSession(model.SerializeToString()).run(None, X)
    assert run(compiled.bundle, HW, X).outputs["y"].tolist() == np.asarray(wanted).tolist()


W = np.array([[1, 2, 64], [-2, 1, -64]], np.float32)
"""[inputs, outputs]; a scale for each output keeps all of them, one for each input does not."""
BIASES = {
    "a vector": np.array([1, 2, 3], np.float32),
    "a row": np.array([[1, 2, 3]], np.float32),
    "one number": np.float32(2),
    "none": None,
}
OWN_ROWS = {
    "a column": np.array([[1], [2], [3]], np.float32),
    "a matrix": np.eye(3, dtype=np.float32),
}


@pytest.fixture
def of_rows(onnx_text: Callable[..., onnx.ModelProto]) -> Callable[..., onnx.ModelProto]:
    """Three rows, as many as there are outputs. form: attributes; bias: of the result's columns."""

    def make(form: str, w: np.ndarray, bias: np.ndarray | None, x: str = "3, 2"):
        text = f"g (float[{x}] x) => (float[3, 3] y) {{ y = Gemm <{form}> (x, w, b) }}"
        if bias is None:
            return onnx_text(text.replace(", b)", ")"), w=w)
        return onnx_text(text, w=w, b=bias)

    return make


@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", BIASES)
def test_a_gemm_of_several_rows_has_a_scale_for_each_output(of_rows, bias, transposed, scales):
    model = of_rows(f"transB = {int(transposed)}", W.T if transposed else W, BIASES[bias])
    x = np.array([[1, 2], [0, -1], [2, 0]], np.float32)
    found = prepare(model, calibration={"x": x}, scales=scales)
    assert found.qdq is not None
    (weight,) = (
        onnx.numpy_helper.to_array(t)
        for t in found.qdq.graph.initializer
        if t.data_type == onnx.TensorProto.INT8 and len(t.dims) == 4  # a convolution of 1x1
    )
    assert (np.abs(weight).max(axis=(1, 2, 3)) > 60).all()
    (y,) = session(found.qdq).run(None, {"x": x})
    wanted = x @ W + (0 if BIASES[bias] is None else BIASES[bias])
    np.testing.assert_allclose(np.asarray(y), wanted, atol=1.5)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", OWN_ROWS)
def test_a_gemm_with_a_bias_of_its_own_for_each_row_stays_float(of_rows, bias, transposed):
    model = of_rows(f"transB = {int(transposed)}", W.T if transposed else W, OWN_ROWS[bias])
    found = prepare(model)
    assert found.qdq is not None
    assert [n.op_type for n in found.qdq.graph.node] == ["Gemm"]


def test_a_gemm_that_turns_its_operand_stays_float(of_rows):
    found = prepare(of_rows("transA = 1", W, BIASES["a vector"], x="2, 3"))
    assert found.qdq is not None
    assert [n.op_type for n in found.qdq.graph.node] == ["Gemm"]


def test_rows_of_a_turned_map_keep_their_columns(onnx_text):
    """Only a row that is the whole map is turned in the columns of the weights."""
    model = onnx_text(
        """g (float[1, 2, 3, 1] x) => (float[3, 3] y) {
        t = Transpose <perm = [0, 2, 3, 1]> (x) r = Reshape (t, rows)
        y = Gemm <transB = 1> (r, w) }""",
        w=W.T,
        rows=np.array([3, 2], np.int64),
    )
    x = np.array([1, 0, 2, 2, -1, 0], np.float32).reshape(1, 2, 3, 1)
    found = prepare(model, quantised=False)
    (y,) = session(ir.to_proto(found.canonical)).run(None, {"x": x})
    np.testing.assert_array_equal(y, [[-3, 4, -64], [2, -1, 64], [2, 4, 128]])
