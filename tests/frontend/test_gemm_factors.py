"""Factors of a Gemm whose weights came rounded: ONNX Runtime's results, whatever the factor."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from opu_fuse.hw.load import load_hw
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
    assert run(compiled.bundle, HW, X).outputs["y"].tolist() == wanted.tolist()
