"""Biases between the steps of the sums that they are added to, and those that no machine adds."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.frontend.prepare import prepare
from opu_fuse.quant import META_KEY
from tests.some import some

Text = Callable[..., onnx.ModelProto]
Absorbed = Callable[[onnx.ModelProto], ir.Model]

LAYER = """g (float[1,4,6,6] x) => (float[1,4,6,6] y) <float s = {0.0625}, int8 z = {0}> {
    x_q = QuantizeLinear(x, s, z)  x_r = DequantizeLinear(x_q, s, z)
    w_r = DequantizeLinear(w, s, z) """
ROUNDED = """b_r = DequantizeLinear(b, fine, z)  a = Conv(x_r, w_r, b_r)
    a_q = QuantizeLinear(a, t, z)  y = DequantizeLinear(a_q, t, z) }"""
ROWS = np.array([[31, -3, 1, 0], [127, 5, 1, 1], [-63, 2, 3, 4], [0, 0, 0, 0]], np.int8)


@pytest.mark.parametrize(("largest", "exact"), [(31, True), (32, False)])
def test_one_finer_than_the_sums_makes_weights_finer_where_int8_holds_them(
    onnx_text: Text, absorbed: Absorbed, largest: int, exact: bool
):
    """A channel with room for two bits, one that needs none, one that needs one, one of zeros."""
    rows = np.where(ROWS == 31, largest, ROWS).astype(np.int8)
    constants = {"w": rows.reshape(4, 4, 1, 1), "b": np.array([-7, 8, 6, 1], np.int8)}
    scales = {"t": np.array(0.125, np.float32), "fine": np.array(2**-10, np.float32)}
    model = onnx_text(LAYER + ROUNDED, **constants, **scales)
    (conv,) = (absorbed(model) if exact else prepare(model).canonical).graph
    weight, bias = conv.inputs[1:]
    bits = [2 if exact else 0, 0, 1, 2]
    assert np.log2(np.float32(0.0625) / some(weight).meta[META_KEY].scale).tolist() == bits
    finer = rows.astype(int) << np.array(bits)[:, None]
    assert some(some(weight).const_value).numpy().reshape(4, 4).tolist() == finer.tolist()
    assert some(some(bias).const_value).numpy().tolist() == [-7 if exact else -2, 2, 3, 1]
    assert some(bias).meta[META_KEY].scale == tuple(
        0.0625 * s for s in some(weight).meta[META_KEY].scale
    )


def test_an_operator_without_rounding_keeps_its_own(onnx_text: Text, absorbed: Absorbed):
    """The last layer of a detector, in floats: the host's."""
    b = np.array([0.1, -0.2, 0.3, 3.0], np.float32)
    nodes = LAYER + "y = Conv(x_r, w_r, b) }"
    model = absorbed(onnx_text(nodes, w=ROWS.reshape(4, 4, 1, 1), b=b))
    (bias,) = (node.inputs[2] for node in model.graph if node.op_type == "Conv")
    assert META_KEY not in some(bias).meta
    np.testing.assert_array_equal(some(some(bias).const_value).numpy(), b)


@pytest.mark.parametrize("scales", [(1e-30, 1e-30), (1e30, 1e30)], ids=["underflow", "overflow"])
def test_one_whose_sums_have_a_scale_that_float32_does_not_hold_stays_in_floats(
    onnx_text: Text, scales: tuple[float, float]
):
    """Such a layer is the host's; the others of its model are not affected."""
    operand, weight = map(np.float32, scales)
    text = """g (float[1,4,6,6] x) => (float[1,4,6,6] y) <int8 z = {0}> {
        x_q = QuantizeLinear(x, s, z)  x_r = DequantizeLinear(x_q, s, z)
        w_r = DequantizeLinear(w, ws, z)  a = Conv(x_r, w_r, b)
        a_q = QuantizeLinear(a, s, z)  y = DequantizeLinear(a_q, s, z) }"""
    constants = {"w": ROWS.reshape(4, 4, 1, 1), "b": np.array([1, 2, 3, 4], np.float32)}
    model = onnx_text(text, **constants, s=np.array(operand), ws=np.array(weight))
    (bias,) = (n.inputs[2] for n in prepare(model).canonical.graph if n.op_type == "Conv")
    assert META_KEY not in some(bias).meta
    np.testing.assert_array_equal(some(some(bias).const_value).numpy(), constants["b"])
