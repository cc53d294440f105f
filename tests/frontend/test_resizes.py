"""Interpolation as repetition and means; the `canonical` fixture compares the results too."""

import onnx_ir as ir
import pytest

from opu_fuse.hw.load import load_hw
from opu_fuse.pipeline import compile_model

HALVES = "kernel_shape=[2, 2] pads=[1, 1, 1, 1] strides=[1, 1]"
NETWORK = """g (float[1,3,5,4] x) => (float[A,B,C,D] y)
    <float[4] by = {{1.0, 1.0, {}}}> {{ [r] y = Resize<mode="linear" {}>(x, , by) }}"""
CORNERS = ', coordinate_transformation_mode="asymmetric"'
WANTED = {
    ("2.0, 2.0", ""): ["Resize", "AveragePool", "AveragePool"],
    ("2.0, 3.0", ""): ["Resize", "AveragePool", "AveragePool"],
    ("3.0, 3.0", ""): ["Resize", "AveragePool"],
    ("1.0, 4.0", ""): ["Resize", "AveragePool", "AveragePool"],
    ("2.0, 4.0", CORNERS): ["Resize", "AveragePool"],
    ("1.5, 2.0", ""): ["Resize"],
    ("1.0, 1.0", ""): ["Resize"],
    ("2.0, 2.0", ', coordinate_transformation_mode="align_corners"'): ["Resize"],
}


@pytest.mark.parametrize(("factors", "more"), WANTED)
def test_whole_factors_become_means(factors, more, onnx_text, canonical):
    model = canonical(onnx_text(NETWORK.format(factors, more)), rewriting=True)
    assert [node.op_type for node in model.graph] == WANTED[factors, more]


def test_the_published_strategies_see_one_operator(onnx_text, canonical):
    model = canonical(onnx_text(NETWORK.format("2.0, 2.0", "")))
    assert [node.op_type for node in model.graph] == ["Resize"]


def test_a_quantised_model_says_itself_what_is_rounded(onnx_text):
    text = """g (float[1,3,5,4] x) => (float[1,3,10,8] y)
        <float[4] by = {1.0, 1.0, 2.0, 2.0}, float s = {0.5}, int8 z = {0}> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
        [r] r = Resize<mode="linear">(d, , by)
        p = QuantizeLinear(r, s, z) y = DequantizeLinear(p, s, z) }"""
    compiled = compile_model(ir.from_proto(onnx_text(text)), load_hw("opu-light"))
    assert [compiled.dfg[op.node].op for op in compiled.partition.host] == ["host:Resize"]
