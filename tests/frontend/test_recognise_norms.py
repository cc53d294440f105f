"""Layer normalisations and Softmaxes that are spelt out are one operator after loading."""

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx
import pytest

from opu_fuse.frontend.importing.load import load_model
from tests.frontend.conftest import run_plain

Text = Callable[..., onnx.ModelProto]

MEAN = "m = ReduceMean <axes = [-1]> (x) d = Sub (x, m)"
ROOT = "v = ReduceMean <axes = [-1]> (s) e = Add (v, eps) r = Sqrt (e)"
NORMS = {
    "Pow and Div": f"{MEAN} s = Pow (d, two) {ROOT} y = Div (d, r)",
    "with factor and offset": f"{MEAN} s = Pow (d, two) {ROOT} n = Div (d, r) "
    "f = Mul (n, gamma) y = Add (f, beta)",
    "constants first": f"{MEAN} s = Mul (d, d) v = ReduceMean <axes = [-1]> (s) "
    "e = Add (eps, v) r = Sqrt (e) n = Div (d, r) f = Mul (gamma, n) y = Add (beta, f)",
    "two differences": f"{MEAN} d2 = Sub (x, m) s = Mul (d2, d2) {ROOT} y = Div (d, r)",
    "Reciprocal": f"{MEAN} s = Pow (d, two) {ROOT} i = Reciprocal (r) y = Mul (d, i)",
    "one divided": f"{MEAN} s = Pow (d, two) {ROOT} i = Div (one, r) y = Mul (i, d)",
    "negative power": f"{MEAN} s = Pow (d, two) v = ReduceMean <axes = [-1]> (s) "
    "e = Add (v, eps) i = Pow (e, root) y = Mul (d, i)",
    "a scalar factor": f"{MEAN} s = Pow (d, two) {ROOT} n = Div (d, r) y = Mul (n, two)",
}
SQUARES = "s = Pow (x, two) v = ReduceMean <axes = [-1]> (s) e = Add (v, eps) r = Sqrt (e)"
RMS_NORMS = {
    "Pow and Div": f"{SQUARES} y = Div (x, r)",
    "Reciprocal and factor": f"{SQUARES} i = Reciprocal (r) n = Mul (x, i) y = Mul (gamma, n)",
    "a square": "s = Mul (x, x) v = ReduceMean <axes = [-1]> (s) e = Add (eps, v) r = Sqrt (e) "
    "i = Div (one, r) n = Mul (i, x) y = Mul (n, gamma)",
}
UNIT_VECTORS = {
    "torch": "n = ReduceL2 <axes = [-1]> (x) c = Clip (n, least) e = Expand (c, size) "
    "y = Div (x, e)",
    "broadcast": "n = ReduceL2 <axes = [-1]> (x) c = Max (n, least) y = Div (x, c)",
}
OTHER_VECTORS = {
    "another axis": "n = ReduceL2 <axes = [1]> (x) c = Clip (n, least) y = Div (x, c)",
    "a bound that matters": "n = ReduceL2 <axes = [-1]> (x) c = Clip (n, one) y = Div (x, c)",
    "without a bound": "n = ReduceL2 <axes = [-1]> (x) y = Div (x, n)",
    "length of another value": "z = Relu (x) n = ReduceL2 <axes = [-1]> (z) c = Clip (n, least) "
    "y = Div (x, c)",
    "an upper bound": "n = ReduceL2 <axes = [-1]> (x) c = Clip (n, least, one) y = Div (x, c)",
}
OTHERS = {
    "read outside": f"{MEAN} s = Pow (d, two) {ROOT} n = Div (d, r) y = Add (n, d)",
    "other powers": f"{MEAN} s = Pow (d, four) {ROOT} y = Div (d, r)",
    "another axis": "m = ReduceMean <axes = [1]> (x) d = Sub (x, m) s = Pow (d, two) "
    f"{ROOT} y = Div (d, r)",
    "mean of another value": f"{MEAN} s = Pow (x, two) {ROOT} y = Div (d, r)",
    "no epsilon": f"{MEAN} s = Pow (d, two) v = ReduceMean <axes = [-1]> (s) r = Sqrt (v) "
    "y = Div (d, r)",
}
SOFTMAXES = {
    "with the maximum": "m = ReduceMax <axes = [-1]> (x) d = Sub (x, m) e = Exp (d) "
    "s = ReduceSum (e, axis) y = Div (e, s)",
    "without": "e = Exp (x) s = ReduceSum (e, axis) y = Div (e, s)",
}
CONSTANTS = {
    "two": np.array(2, np.float32),
    "four": np.array(4, np.float32),
    "one": np.array(1, np.float32),
    "root": np.array(-0.5, np.float32),
    "eps": np.array(1e-5, np.float32),
    "gamma": np.linspace(0.5, 2, 6, dtype=np.float32),
    "beta": np.linspace(-1, 1, 6, dtype=np.float32),
    "axis": np.array([-1], np.int64),
    "least": np.array(1e-12, np.float32),
    "size": np.array([2, 5, 6], np.int64),
}


def loaded(
    text: Text, nodes: str, shape: str = "2, 5, 6", **more: np.ndarray
) -> tuple[list[str], float]:
    """Operators after loading, and the largest difference of the output."""
    words = nodes.replace(",", " ").replace("(", " ").replace(")", " ").split()
    constants = {name: data for name, data in (CONSTANTS | more).items() if name in words}
    free = ", ".join("ABCD"[: len(shape.split(","))])
    model = text(f"g (float[{shape}] x) => (float[{free}] y) {{ {nodes} }}", **constants)
    size = [int(n) for n in shape.split(",")]
    x = {"x": np.random.default_rng(2).standard_normal(size).astype(np.float32)}
    result = load_model(model)
    off = np.abs(run_plain(model, x)[0] - run_plain(result, x)[0]).max()
    return [node.op_type for node in result.graph], float(off)


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("name", RMS_NORMS)
def test_an_rms_norm_is_one_operator_of_a_newer_opset(name: str, opset: int, onnx_text: Text):
    kinds, off = loaded(partial(onnx_text, opset=opset), RMS_NORMS[name])
    assert kinds == ["RMSNormalization"]
    assert off < 1e-5


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("name", UNIT_VECTORS)
def test_vectors_of_length_1_are_an_rms_norm(name: str, opset: int, onnx_text: Text):
    kinds, off = loaded(partial(onnx_text, opset=opset), UNIT_VECTORS[name])
    assert kinds == ["RMSNormalization"]
    assert off < 1e-6


def test_a_division_by_a_constant_node_is_none(onnx_text: Text):
    """As PyTorch's older exporter writes the root of the channels."""
    nodes = "k = Constant <value_float = 2.5> () y = Div (x, k)"
    assert loaded(onnx_text, nodes) == (["Div"], 0.0)


def test_a_vector_of_length_0_remains_so(onnx_text: Text):
    model = onnx_text(
        f"g (float[2, 5, 6] x) => (float[2, 5, 6] y) {{ {UNIT_VECTORS['torch']} }}",
        least=CONSTANTS["least"],
        size=CONSTANTS["size"],
    )
    x = {"x": np.zeros((2, 5, 6), np.float32)}
    np.testing.assert_array_equal(run_plain(load_model(model), x)[0], x["x"])


@pytest.mark.parametrize("name", OTHER_VECTORS)
def test_other_quotients_of_lengths_stay(name: str, onnx_text: Text):
    kinds, off = loaded(onnx_text, OTHER_VECTORS[name])
    assert "RMSNormalization" not in kinds
    assert off < 1e-6


def test_an_offset_is_no_part_of_an_rms_norm(onnx_text: Text):
    nodes = f"{SQUARES} n = Div (x, r) f = Mul (n, gamma) y = Add (f, beta)"
    assert loaded(onnx_text, nodes)[0] == ["RMSNormalization", "Add"]


@pytest.mark.parametrize("name", NORMS)
def test_a_layer_norm_is_one_operator(name: str, onnx_text: Text):
    kinds, off = loaded(onnx_text, NORMS[name])
    assert kinds == ["LayerNormalization"]
    assert off < 1e-5


def test_a_norm_of_channels_is_one_between_transposes(onnx_text: Text):
    nodes = NORMS["with factor and offset"].replace("[-1]", "[1]")
    columns = {name: CONSTANTS[name].reshape(6, 1, 1) for name in ("gamma", "beta")}
    kinds, off = loaded(onnx_text, nodes, "1, 6, 4, 5", **columns)
    assert kinds == ["Transpose", "LayerNormalization", "Transpose"]
    assert off < 1e-5


def test_a_norm_of_one_row_is_one_operator(onnx_text: Text):
    assert loaded(onnx_text, NORMS["with factor and offset"], "1, 6")[0] == ["LayerNormalization"]


def test_a_factor_for_each_token_stays_outside(onnx_text: Text):
    tokens = np.linspace(0.5, 2, 5, dtype=np.float32).reshape(5, 1)
    kinds, _ = loaded(onnx_text, NORMS["with factor and offset"], gamma=tokens)
    assert kinds == ["LayerNormalization", "Mul", "Add"]


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_layer_norm_stays(name: str, onnx_text: Text):
    kinds, off = loaded(onnx_text, OTHERS[name])
    assert "LayerNormalization" not in kinds
    assert off < 1e-6


@pytest.mark.parametrize("name", SOFTMAXES)
def test_a_softmax_is_one_operator(name: str, onnx_text: Text):
    kinds, off = loaded(onnx_text, SOFTMAXES[name])
    assert kinds == ["Softmax"]
    assert off < 1e-6


def test_a_value_that_is_quantised_between_stays(onnx_text: Text):
    nodes = NORMS["Pow and Div"].replace("y = Div (d, r)", "y = Div (q2, r)")
    pair = "q = QuantizeLinear (d, eps) q2 = DequantizeLinear (q, eps)"
    nodes = nodes.replace(MEAN, f"{MEAN} {pair}")
    kinds, _ = loaded(onnx_text, nodes)
    assert "LayerNormalization" not in kinds
