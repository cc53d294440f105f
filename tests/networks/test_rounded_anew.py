"""A model of somebody else may round a value anew behind an operator that only moves it."""

import numpy as np
import onnx
import pytest

from tests.regressions.test_regressions import hold_against_onnxruntime

HEADER = '<ir_version: 10, opset_import: ["" : 17]> g (float[1,4,6,6] x) =>'
CONSTANTS = """<float s = {0.03125}, float r = {0.0625}, int8 z = {0}, int8 far = {3},
 float[4] ws = {0.0078125,0.0078125,0.0078125,0.0078125}, int8[4] wz = {0,0,0,0},
 int64[4] same = {1,4,6,6}, int64[4] other = {1,4,9,4}, int64[2] parts = {2,2}>"""
CONV = """xq = QuantizeLinear(x, s, z)  xd = DequantizeLinear(xq, s, z)
 wd = DequantizeLinear<axis=0>(w, ws, wz)  a = Conv(xd, wd)
 aq = QuantizeLinear(a, s, z)  ad = DequantizeLinear(aq, s, z)"""
ROUNDED = "yq = QuantizeLinear({of}, r, far)  y = DequantizeLinear(yq, r, far)"
CASES = {
    "reshape": (
        "float[1,4,8,3] y",
        "b = Reshape(ad, other)  bq = QuantizeLinear(b, r, far)  bd = DequantizeLinear(bq, r, far)"
        "  c = MaxPool<kernel_shape=[2,2]>(bd)" + ROUNDED.format(of="c"),
    ),
    "flatten": ("float[1,144] y", "b = Flatten(ad)" + ROUNDED.format(of="b")),
    "reshape to the same": ("float[1,4,6,6] y", "b = Reshape(ad, same)" + ROUNDED.format(of="b")),
    "nothing": ("float[1,4,6,6] y", ROUNDED.format(of="ad")),
    "max pool": (
        "float[1,4,5,5] y",
        "b = MaxPool<kernel_shape=[2,2]>(ad)" + ROUNDED.format(of="b"),
    ),
    "relu": ("float[1,4,6,6] y", "b = Relu(ad)" + ROUNDED.format(of="b")),
    "relu in front of the array": (
        "float[1,4,6,6] y",
        "b = Relu(xd)  bq = QuantizeLinear(b, r, far)  bd = DequantizeLinear(bq, r, far)"
        "  c = Conv(bd, wd)" + ROUNDED.format(of="c"),
    ),
    "split": (
        "float[1,2,6,6] y",
        "b, c = Split<axis=1>(ad, parts)  bq = QuantizeLinear(b, r, far)"
        "  bd = DequantizeLinear(bq, r, far)  d = Add(bd, c)" + ROUNDED.format(of="d"),
    ),
    "a sum of one operand, then a view": (
        "float[1,4,8,3] y",
        "b = Sum(xd)  c = Reshape(b, other)  cq = QuantizeLinear(c, r, far)"
        "  cd = DequantizeLinear(cq, r, far)  d = MaxPool<kernel_shape=[2,2]>(cd)"
        + ROUNDED.format(of="d"),
    ),
    "concat": ("float[1,8,6,6] y", "b = Concat<axis=1>(ad, xd)" + ROUNDED.format(of="b")),
}


@pytest.mark.parametrize("machine", ["opu-1024", "opu-light", "opu-micro"])
@pytest.mark.parametrize("case", CASES)
def test_values_rounded_anew_are_those_of_onnxruntime(case, machine):
    output, body = CASES[case]
    model = onnx.parser.parse_model(f"{HEADER} ({output}) {CONSTANTS} {{ {CONV}  {body} }}")
    weights = np.random.default_rng(0).integers(-127, 128, (4, 4, 1, 1)).astype(np.int8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    hold_against_onnxruntime(model, machine)
