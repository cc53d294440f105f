"""What depends on no input is computed when a model is read, of operators with several results,
too: nothing is left of them, and what reads them gets ONNX Runtime's numbers.
"""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.frontend.importing.load import load_model
from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.qdq_reference import session

Text = Callable[..., onnx.ModelProto]
K = np.array([[3, -1, 4, 1], [-5, 9, 2, 6]], np.float32)
ONES = np.ones(4, np.float32)
OPERATORS = {
    "Split": "a, b = Split <axis = 0> (k, halves) c = Add (x, a) y = Sub (c, b)",
    "TopK": "a, b = TopK <axis = 0> (k, one) c = Cast <to = 1> (b) d = Mul (x, a) y = Add (d, c)",
    "Split, then TopK": """a, b = Split <axis = 0> (k, halves)  c, d = TopK (a, four)
        e = Mul (x, c) f = Cast <to = 1> (d) y = Add (e, f)""",
    "LayerNormalization": "a, , c = LayerNormalization (k, ones) d = Add (x, a) y = Mul (d, c)",
    "BatchNormalization": """a, m, v = BatchNormalization <training_mode = 1, momentum = 0.5>
        (k, ones, zeros, twos, fours) b = Add (x, a) c = Mul (b, m) y = Add (c, v)""",
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_on_constants_is_computed(name: str, onnx_text: Text):
    numbers = {
        "halves": np.array([1, 1], np.int64),
        "one": np.array([1], np.int64),
        "four": np.array([4], np.int64),
    }
    # ONNX Runtime without optimisation mixes up operands of a batch norm that are one constant.
    levels = {"zeros": 0 * ONES, "ones": ONES, "twos": 2 * ONES, "fours": 4 * ONES}
    text = f"g (float[1, 4] x) => (float[p, q] y) {{ {OPERATORS[name]} }}"
    model = onnx_text(text, k=K, **levels, **numbers)
    loaded = load_model(model)
    assert {node.op_type for node in loaded.graph} <= {"Add", "Sub", "Mul"}
    inputs = {"x": np.array([[1, 2, 3, 4]], np.float32)}
    got, wanted = (session(m).run(None, inputs)[0] for m in (ir.to_proto(loaded), model))
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-5)


def test_results_that_a_model_hands_out_keep_their_names(onnx_text: Text):
    text = """g (float[1, 4] x) => (float[1, 4] y, float[1, 4] a, float[1, 4] b)
    { a, b = Split <axis = 0> (k, halves)  y = Add (x, a) }"""
    loaded = load_model(onnx_text(text, k=K, halves=np.array([1, 1], np.int64)))
    assert [node.op_type for node in loaded.graph] == ["Add"]
    found = session(ir.to_proto(loaded)).run(["a", "b"], {"x": K[:1]})
    np.testing.assert_array_equal(np.concatenate([np.asarray(v) for v in found]), K)


def test_random_numbers_and_what_depends_on_an_input_stay(onnx_text: Text):
    text = """g (float[1, 4] x) => (float[1, 4] y, float[1, 2] a, float[1, 2] b)
    { a, b = Split <axis = 1> (x, twos)  c, d = Dropout (k, half, on)  y = Add (x, c) }"""
    constants = {"twos": np.array([2, 2], np.int64), "half": np.float32(0.5), "on": np.array(True)}
    loaded = load_model(onnx_text(text, k=K[:1], **constants))
    assert [node.op_type for node in loaded.graph] == ["Split", "Dropout", "Add"]


def test_weights_may_be_standardised_in_the_model(onnx_text: Text):
    """As by weight standardisation: a batch norm in training mode, over the numbers of a filter."""
    text = """g (float[1, 4, 6, 6] x) => (float[1, 2, 4, 4] y)
    { r = Reshape (w, flat)  n, m, v = BatchNormalization <training_mode = 1, epsilon = 0.0>
      (r, gain, zero, zero, gain)  k = Reshape (n, filters)  y = Conv (x, k) }"""
    w = np.random.default_rng(4).standard_normal((2, 4, 3, 3), np.float32)
    model = onnx_text(
        text,
        w=w,
        flat=np.array([1, 2, 36], np.int64),
        filters=np.array([2, 4, 3, 3], np.int64),
        gain=np.array([0.5, 2], np.float32),
        zero=np.zeros(2, np.float32),
    )
    (conv,) = prepare(model, quantised=False).canonical.graph
    assert conv.inputs[1] is not None
    assert conv.inputs[1].const_value is not None
    kernel = conv.inputs[1].const_value.numpy()
    np.testing.assert_allclose(kernel.mean(axis=(1, 2, 3)), [0, 0], atol=1e-6)
    np.testing.assert_allclose(kernel.std(axis=(1, 2, 3)), [0.5, 2], rtol=1e-5)
