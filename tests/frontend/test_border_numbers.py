"""Constants that float32 arithmetic does not survive are refused where they are read, or not fused;
the suite turns numpy's warnings into failures.
"""

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing.load import load_model
from opu_fuse.frontend.prepare import prepare

Text = Callable[..., onnx.ModelProto]
HEAD = "g (float[1,4,4,4] x) => (float[1,4,4,4] y)"
INTEGERS = "g (int32[4] x) => (int32[4] y)"


def constant(value: float, *shape: int) -> np.ndarray:
    return np.full(shape, value, np.float32)


W = constant(1.0, 4, 4, 1, 1)
NORM = "y = BatchNormalization<epsilon=0.0>(x, a, b, b, v)"
ONES = {"a": constant(1, 4), "b": constant(1, 4), "v": constant(1, 4)}
REFUSED = {
    "NaN": ("y = Conv(x, w)", {"w": W * np.nan}, "'w' holds nan, numbers up to 1e.36 are allowed"),
    "infinity": ("y = Conv(x, w, b)", {"w": W, "b": constant(-np.inf, 4)}, "'b' holds -inf"),
    "huge": ("y = Conv(x, w)", {"w": W * np.float32(3e38)}, "'w' holds 3e.38, numbers up to"),
    "variance": (NORM, ONES | {"v": constant(-1, 4)}, "its variance is -1, epsilon 0;"),
    "scale": (
        NORM,
        ONES | {"a": constant(1e30, 4), "v": constant(1e-30, 4)},
        r"\(BatchNormalization\): it scales or shifts by 1e.45",
    ),
    "shift": (NORM, ONES | {"a": constant(1e30, 4), "b": constant(1e30, 4)}, "by -1e.60"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_weights_of_unusual_numbers(kind: str, onnx_text: Text):
    body, weights, message = REFUSED[kind]
    with pytest.raises(ModelError, match=message) as caught:
        load_model(onnx_text(f"{HEAD} {{ {body} }}", **weights))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("index", [4, -5])
def test_an_index_out_of_range(index: int, onnx_text: Text):
    model = onnx_text(f"{HEAD} {{ y = Gather<axis=1>(x, i) }}", i=np.array([0, index, 1, -4]))
    with pytest.raises(
        ModelError, match=rf"\(Gather\): it reads index {index} of axis 1, which has 4"
    ):
        load_model(model)


def test_a_shape_that_its_operand_does_not_fill(onnx_text: Text):
    """Inference believes the shape, and in a quantised model nobody runs it before the machine."""
    head = "g (float[1,16,1,1] x) => (float[1,24] y)"
    model = onnx_text(f"{head} {{ y = Reshape(x, s) }}", s=np.array([1, 24]))
    message = r"\(Reshape\): its operand 'x' of \[1, 16, 1, 1\] does not fill \[1, 24\];"
    with pytest.raises(ModelError, match=message):
        load_model(model)


OVERFLOWS = {
    "weights": "c = Conv(x, w)  y = Mul(c, s)",
    "a bias": "c = Conv(x, w, b)  d = Mul(c, s)  y = Add(d, s)",
    "two steps": "c = Mul(x, s)  y = Mul(c, s)",
    "infinity": "c = Conv(x, w)  y = Mul(c, i)",
}


@pytest.mark.parametrize("kind", OVERFLOWS)
def test_what_overflows_is_not_fused_and_calibration_tells(kind: str, onnx_text: Text):
    big = {"w": W * np.float32(1e20), "b": constant(1e20, 4), "s": constant(1e30, 1, 4, 1, 1)}
    model = onnx_text(f"{HEAD} {{ {OVERFLOWS[kind]} }}", **big, i=constant(np.inf, 1, 4, 1, 1))
    with pytest.raises(ModelError, match="the float model computes NaN or infinity for it"):
        prepare(model)


def test_steps_that_overflow_only_together_stay_two(onnx_text: Text):
    text = f"{HEAD} {{ z = Mul(x, o)  c = Mul(z, s)  y = Mul(c, s) }}"
    model = onnx_text(text, o=constant(0, 4, 1, 1), s=constant(1e30, 4, 1, 1))
    assert [n.op_type for n in prepare(model).canonical.graph][-1] == "BatchNormalization"


def test_a_bias_too_large_for_its_operand(onnx_text: Text):
    text = f"{HEAD} {{ c = Mul(x, t)  y = Conv(c, w, b) }}"
    weights = {"t": constant(1e-18, 4, 1, 1), "w": W, "b": constant(1e36, 4)}
    message = r"node 'Conv_0' \(Conv\): its bias 1e.36 is too large for a scale of"
    with pytest.raises(ModelError, match=message):
        prepare(onnx_text(text, **weights))


def test_a_weight_too_large_for_its_operand_where_that_is_zero(onnx_text: Text):
    text = f"{HEAD} {{ c = Mul(x, t)  y = Conv(c, w) }}"
    data = np.ones((1, 4, 4, 4), np.float32) * np.array([1, 0, 0, 0], np.float32)[:, None, None]
    weight = W.copy()
    weight[:, 1:] = 1e33
    model = onnx_text(text, t=constant(1e30, 4, 1, 1), w=weight)
    message = r"node 'Conv_0' \(Conv\): its weight 1e.33 is too large for a scale of"
    with pytest.raises(ModelError, match=message):
        prepare(model, calibration={"x": data})


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_constants_that_are_almost_nothing(op: str, onnx_text: Text):
    prepare(onnx_text(f"{HEAD} {{ y = {op}(x, s) }}", s=constant(1e-44, 1, 4, 4, 4)))


def test_a_normalisation_that_multiplies_by_almost_nothing(onnx_text: Text):
    prepare(onnx_text(f"{HEAD} {{ {NORM} }}", **ONES | {"a": constant(1e-42, 4)}))


def test_infinity_is_welcome_where_it_is_a_bound(onnx_text: Text):
    text = f"{HEAD} {{ y = Clip(x, low, high) }}"
    prepare(onnx_text(text, low=np.float32(0.0), high=np.float32(np.inf)))


@pytest.mark.parametrize("op", ["Div", "Mod"])
@pytest.mark.parametrize("by", ["y = {}(x, d)", "c = {}(d, d)  y = Add(x, c)"])
def test_division_of_integers_by_zero(op: str, by: str, onnx_text: Text):
    text = f"{INTEGERS} {{ {by.format(op)} }}"
    load_model(onnx_text(text, d=np.array([1, 2, 3, -4], np.int32)))
    with pytest.raises(ModelError, match=rf"\({op}\): it divides integers by zero"):
        load_model(onnx_text(text, d=np.array([1, 2, 0, 4], np.int32)))


def test_the_rest_of_real_numbers_needs_fmod(onnx_text: Text):
    text = HEAD + " { y = Mod<fmod=%d>(x, d) }"
    load_model(onnx_text(text % 1, d=constant(2, 1)))
    with pytest.raises(ModelError, match="it takes integers, of real numbers it needs fmod=1 or "):
        load_model(onnx_text(text % 0, d=constant(2, 1)))


def test_infinite_scales_of_weights_are_told_without_a_warning_of_numpy(onnx_text: Text):
    text = HEAD + " { w = DequantizeLinear(q, s)  y = Conv(x, w) }"
    q = np.arange(16, dtype=np.int8).reshape(4, 4, 1, 1)  # 0 times infinity is no number
    model = onnx_text(text, q=q, s=np.array(np.inf, np.float32))
    with pytest.raises(ModelError, match="computes NaN or infinity for it; check the weights"):
        prepare(model)
