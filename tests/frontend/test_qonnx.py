"""Quant nodes of QONNX mean QuantizeLinear, Clip and DequantizeLinear, as qonnx converts them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import opu_fuse
from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing.load import load_model
from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.qdq_reference import reference, session
from opu_fuse.sim.compare.runs import check

Text = Callable[..., onnx.ModelProto]
RNG = np.random.default_rng(4)
W = RNG.normal(size=(6, 3, 3, 3)).astype(np.float32) * 0.4
QUANT = "qonnx.custom_op.general.Quant"
F = np.float32


def qonnx(onnx_text: Text, text: str, **constants: Any) -> onnx.ModelProto:
    model = onnx_text(text, **constants)
    model.opset_import.append(onnx.helper.make_opsetid("qonnx.custom_op.general", 1))
    return model


def by_definition(
    x: np.ndarray, scale: Any, zero: Any, bits: int, *, signed: bool, narrow: bool
) -> np.ndarray:
    """What qonnx computes: clamp, then round to the nearest, halves to even."""
    low = -(2 ** (bits - 1)) + narrow if signed else 0
    high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1 - narrow
    places = np.clip(x / np.float32(scale) + zero, low, high)
    return ((np.round(places) - zero) * np.float32(scale)).astype(np.float32)


@pytest.mark.parametrize("bits", [8, 5, 2])
@pytest.mark.parametrize(("signed", "narrow"), [(1, 0), (1, 1), (0, 0), (0, 1)])
@pytest.mark.parametrize("zero", [0, 1])
def test_a_map_is_rounded_as_qonnx_does(bits, signed, narrow, zero, onnx_text: Text):
    text = f"""g (float[1,3,4,4] x) => (float[1,3,4,4] y) {{
        y = {QUANT}<signed={signed}, narrow={narrow}, rounding_mode="ROUND">(x, s, z, b) }}"""
    model = qonnx(onnx_text, text, s=F(0.3), z=F(zero), b=F(bits))
    loaded = load_model(model)
    clipped = bits < 8 or bool(narrow)
    expected = ["QuantizeLinear", "DequantizeLinear"]
    kinds = [node.op_type for node in loaded.graph]
    assert kinds == (
        ["QuantizeLinear", "DequantizeLinear", "Clip", *expected] if clipped else expected
    )
    x = RNG.normal(size=(1, 3, 4, 4)).astype(np.float32) * 20
    (got,) = session(ir.to_proto(loaded)).run(None, {"x": x})
    flags = {"signed": bool(signed), "narrow": bool(narrow)}
    np.testing.assert_array_equal(got, by_definition(x, 0.3, zero, bits, **flags))


@pytest.mark.parametrize(
    "scale", [F(0.1), np.array([0.1], F), (RNG.random((6, 1, 1, 1)) + 0.01).astype(F)]
)
@pytest.mark.parametrize("bits", [8, 4, 1])
def test_weights_are_stored_as_their_integers(scale, bits, onnx_text: Text):
    text = f"""g (float[1,3,4,4] x) => (float[1,6,2,2] y) {{
        [mine] w = {QUANT}<signed=1, narrow=0>(k, s, z, b)  y = Conv(x, w) }}"""
    loaded = load_model(qonnx(onnx_text, text, k=W, s=scale, z=F(0), b=F(bits)))
    assert [node.op_type for node in loaded.graph] == ["DequantizeLinear", "Conv"]
    assert loaded.graph[0].name == "mine"
    x = RNG.normal(size=(1, 3, 4, 4)).astype(np.float32)
    weights = by_definition(W, scale, 0, bits, signed=True, narrow=False)
    plain = onnx_text("g (float[1,3,4,4] x) => (float[1,6,2,2] y) { y = Conv(x, w) }", w=weights)
    (wanted,), (got,) = (session(m).run(None, {"x": x}) for m in (plain, ir.to_proto(loaded)))
    np.testing.assert_array_equal(got, wanted)


NETWORK = f"""g (float[1,3,8,8] x) => (float[1,6,8,8] y) {{
    w = {QUANT}<signed=1, narrow=1>(k, rows, z, four)  v = {QUANT}<signed=1>(c, cs, z, wide)
    q = {QUANT}<signed=1>(x, s, z, eight)  a = Conv<pads=[1,1,1,1]>(q, w, v)
    r = Relu(a)  y = {QUANT}<signed=0>(r, t, z, six) }}"""
CONVERTED = """g (float[1,3,8,8] x) => (float[1,6,8,8] y) {
    w = DequantizeLinear<axis=0>(ki, row, z6)  v = DequantizeLinear(ci, cs)
    q = QuantizeLinear(x, s, z8)  qr = DequantizeLinear(q, s, z8)
    a = Conv<pads=[1,1,1,1]>(qr, w, v)  r = Relu(a)
    p = QuantizeLinear(r, t, u8)  l = Clip(p, u8, u63)  y = DequantizeLinear(l, t, u8) }"""


@pytest.mark.parametrize("machine", ["opu-light", "opu-tiny"])
def test_a_network_has_the_bits_of_its_qcdq_form(machine: str, onnx_text: Text):
    rows = (RNG.random((6, 1, 1, 1)) * 0.1 + 0.05).astype(F)
    bias, s, t = RNG.normal(size=6).astype(F), F(1 / 32), F(1 / 16)
    steps = F(2.0**-10)
    constants = {"k": W, "c": bias, "rows": rows, "s": s, "t": t, "cs": steps, "z": F(0)}
    widths = {"four": F(4), "six": F(6), "eight": F(8), "wide": F(16)}
    model = qonnx(onnx_text, NETWORK, **constants, **widths)
    converted = onnx_text(
        CONVERTED,
        ki=np.clip(np.round(W / rows), -7, 7).astype(np.int8),
        row=rows.reshape(-1),
        z6=np.zeros(6, np.int8),
        ci=np.clip(np.round(bias / steps), -(2**15), 2**15 - 1).astype(np.int32),
        cs=steps,
        s=s,
        t=t,
        z8=np.int8(0),
        u8=np.uint8(0),
        u63=np.uint8(63),
    )
    x = RNG.normal(size=(1, 3, 8, 8)).astype(F)
    (wanted,) = session(converted).run(None, {"x": x})
    qdq = prepare(model).qdq
    assert qdq is not None
    np.testing.assert_array_equal(reference(qdq, {"x": x})["y"], wanted)
    program = opu_fuse.compile(model, machine)
    result = program.run({"x": x}, capture=True)
    assert check(program.bundle, {"x": x}, result).passed
    assert np.abs(result.outputs["y"] - np.asarray(wanted)).max() <= t
    assert len(program.bundle.groups) == len(opu_fuse.compile(converted, machine).bundle.groups)


REFUSED = {
    "sixteen": (f"{QUANT}(x, s, z, sixteen)", "it rounds to 16 bits, machines keep 8; .*QCDQ"),
    "floor": (f'{QUANT}<rounding_mode="FLOOR">(x, s, z, b)', "it rounds by FLOOR"),
    "computed": (f"{QUANT}(x, k, z, b)", "its scale is computed"),
    "bipolar": ("qonnx.custom_op.general.BipolarQuant(x, s)", "BipolarQuant has no form in"),
    "trunc": ("qonnx.custom_op.general.Trunc(x, s, z, b, b)", "Trunc has no form in operators"),
    "half": (f"{QUANT}(x, s, z, half)", "its bit width is no whole number"),
    "negative": (f"{QUANT}(x, minus, z, b)", "its scale is not positive"),
    "two axes": (f"{QUANT}(x, grid, z, b)", "it has scales along several axes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_such_form_is_refused_with_the_way_out(name: str, onnx_text: Text):
    node, message = REFUSED[name]
    text = f"g (float[1,3,4,4] x, float k) => (float[1,3,4,4] y) {{ [mine] y = {node} }}"
    numbers = {"s": F(0.1), "z": F(0), "b": F(8), "sixteen": F(16), "half": F(3.5)}
    model = qonnx(onnx_text, text, **numbers, minus=F(-1), grid=np.ones((1, 3, 4, 1), F))
    with pytest.raises(ModelError, match=f"'mine'.*{message}") as caught:
        load_model(model)
    assert "\n" not in str(caught.value)
    assert "export_onnx_qcdq" in str(caught.value)
