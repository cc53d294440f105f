"""Lowered ONNX operators against ONNX Runtime: bit for bit, or left to it."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from opu_fuse.host.build.linalg.lower import generic_of
from opu_fuse.host.build.linalg.pointwise import POINTWISE
from opu_fuse.host.build.linalg.site import TensorType, constants_of, types_of
from opu_fuse.host.build.linalg.views import VIEWS
from opu_fuse.host.kernel import Kernel
from opu_fuse.host.run.generic import run_kernel
from tests.host.runtime import dense_floats, model_of, run_model, zeros_and_neighbours
from tests.host.sketch import same_bits


def compare(node, values, constants=None, *, opset=17, exact=True):
    """(ours, ONNX Runtime's) result of one node."""
    model = model_of([node], values, [node.output[0]], constants, opset=opset)
    op = generic_of(node, types_of(model), constants_of(model.graph), exact=exact)
    assert op is not None, f"{node.op_type} is not lowered"
    ours = run_kernel(Kernel(op=op, constants=constants or {}), values)
    return ours[node.output[0]], run_model(model, values)[node.output[0]]


def lowered(node, values, constants=None, *, exact=True):
    model = model_of([node], values, [node.output[0]], constants)
    return generic_of(node, types_of(model), constants_of(model.graph), exact=exact)


UNARY = {
    "Neg": {}, "Abs": {}, "Sign": {}, "Sqrt": {}, "Floor": {}, "Ceil": {}, "Round": {},
    "Reciprocal": {}, "Relu": {}, "LeakyRelu": {"alpha": 0.1}, "ThresholdedRelu": {"alpha": 0.5},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4}, "HardSwish": {}, "Identity": {},
}  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Div", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")
ELSEWHERE = {
    *("Sum", "Max", "Min", "Pow", "PRelu", "Clip", "And", "Or", "Not", "Where", "Cast"),
    *("QuantizeLinear", "DequantizeLinear"),
}


def test_every_lowered_operator_is_compared_with_onnx_runtime():
    inexact = {name for name, p in POINTWISE.items() if not p.exact}
    assert set(POINTWISE) - inexact == {*UNARY, *BINARY, *ELSEWHERE} - {"Identity"}
    assert inexact == set(INEXACT)
    assert set(VIEWS) == {*VIEW_CASES, "Identity"}


@pytest.mark.parametrize("op", UNARY)
def test_unary_operators_give_the_bits_of_onnx_runtime(op, rng):
    node = helper.make_node(op, ["x"], ["y"], **UNARY[op])
    for x in (dense_floats(rng), *(zeros_and_neighbours(rng, n) for n in (1, 7, 16, 33, 100))):
        assert same_bits(*compare(node, {"x": x}))


@pytest.mark.parametrize("op", BINARY)
def test_binary_operators_give_the_bits_of_onnx_runtime(op, rng):
    node = helper.make_node(op, ["x", "w"], ["y"])
    x = dense_floats(rng)
    assert same_bits(*compare(node, {"x": x, "w": rng.permutation(x)}))
    for n in (1, 5, 64):
        x, w = zeros_and_neighbours(rng, n), zeros_and_neighbours(rng, n)
        assert same_bits(*compare(node, {"x": x, "w": w}))
    big = rng.integers(-(2**31), 2**31, (5, 100)).astype(np.int32)
    if op != "Div":
        values = {"x": big[0], "w": np.where(rng.random(100) < 0.5, big[1], big[0])}
        assert same_bits(*compare(node, values))


@pytest.mark.parametrize("op", ["Neg", "Abs", "Relu"])
def test_unary_operators_on_int32_wrap_as_in_onnx_runtime(op, rng):
    x = rng.integers(-(2**31), 2**31, 500).astype(np.int32)
    x[:2] = -(2**31), 2**31 - 1
    assert same_bits(*compare(helper.make_node(op, ["x"], ["y"]), {"x": x}))


def test_three_operands_are_added_from_the_left(rng):
    values = {n: rng.permutation(dense_floats(rng)) for n in "abc"}
    assert same_bits(*compare(helper.make_node("Sum", list("abc"), ["y"]), values))


@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("bound", [-1.0, 0.25, 6.0])
def test_max_and_min_against_a_constant_give_the_bits_of_onnx_runtime(op, bound, rng):
    constants = {"c": np.array([bound], np.float32)}
    x = dense_floats(rng)
    for operands in (["x", "c"], ["c", "x"]):
        assert same_bits(*compare(helper.make_node(op, operands, ["y"]), {"x": x}, constants))
    x = rng.integers(-(2**31), 2**31, (2, 500)).astype(np.int32)
    assert same_bits(*compare(helper.make_node(op, ["x", "w"], ["y"]), {"x": x[0], "w": x[1]}))


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_max_of_two_computed_floats_stays_since_of_two_zeros_onnx_runtime_returns_either(op, rng):
    x = rng.normal(size=8).astype(np.float32)
    assert lowered(helper.make_node(op, ["x", "w"], ["y"]), {"x": x, "w": x}) is None
    zero = {"c": np.zeros(1, np.float32)}
    assert lowered(helper.make_node(op, ["x", "c"], ["y"]), {"x": x}, zero) is None


@pytest.mark.parametrize("power", [1, 2, 3])
def test_small_powers_are_multiplied_out_as_in_onnx_runtime(power, rng):
    node = helper.make_node("Pow", ["x", "p"], ["y"])
    constants = {"p": np.array(power, np.float32)}
    assert same_bits(*compare(node, {"x": dense_floats(rng)}, constants))
    for shape in ((1, 2), (7, 3), (2, 1, 5), (1, 3, 1, 17)):
        x = rng.normal(size=shape).astype(np.float32)
        for rank in range(len(shape)):
            constants = {"p": np.full((1,) * rank, power, np.float32)}
            assert same_bits(*compare(node, {"x": x}, constants))
    assert lowered(node, {"x": x[..., :1]}, constants) is None, "rows of one element: other bits"


@pytest.mark.parametrize("power", [0.5, -1.0, 4.0, 0.0])
def test_other_powers_stay_with_onnx_runtime(power):
    node = helper.make_node("Pow", ["x", "p"], ["y"])
    constants = {"p": np.array(power, np.float32)}
    assert lowered(node, {"x": np.ones(4, np.float32)}, constants) is None


@pytest.mark.parametrize("low", [-1.0, -0.0, 0.0, None])
@pytest.mark.parametrize("high", [0.0, -0.0, 6.0, None])
def test_clip_keeps_nan_and_the_sign_of_zeros(low, high, rng):
    given = {"low": low, "high": high}
    constants = {n: np.array(v, np.float32) for n, v in given.items() if v is not None}
    names = [n if n in constants else "" for n in given]
    node = helper.make_node("Clip", ["x", *names], ["y"])
    for x in (dense_floats(rng, 3000), zeros_and_neighbours(rng, 37)):
        assert same_bits(*compare(node, {"x": x}, constants))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_clip_of_integers(dtype):
    kind = np.iinfo(dtype)
    x = np.linspace(kind.min, kind.max, 256).astype(dtype)
    constants = {"low": np.array(3, dtype), "high": np.array(100, dtype)}
    node = helper.make_node("Clip", ["x", "low", "high"], ["y"])
    assert same_bits(*compare(node, {"x": x}, constants))


def test_prelu_with_slopes_per_channel_and_of_both_signs(rng):
    x = rng.permutation(dense_floats(rng)[:6000]).reshape(1, 6, 50, 20)
    slopes = {"s": np.array([0.25, -0.5, 0, -0.0, 1, 2], np.float32).reshape(6, 1, 1)}
    node = helper.make_node("PRelu", ["x", "s"], ["y"])
    assert same_bits(*compare(node, {"x": x}, slopes))


def test_logic_and_selection(rng):
    a, b = rng.random((2, 4, 1, 5)) < 0.5
    values = {"a": a, "b": b.reshape(1, 4, 5)}
    for op in ("And", "Or"):
        assert same_bits(*compare(helper.make_node(op, ["a", "b"], ["y"]), values))
    assert same_bits(*compare(helper.make_node("Not", ["a"], ["y"]), {"a": a}))


@pytest.mark.parametrize("shapes", [((50,),) * 3, ((4, 1, 5), (3, 5), (1,)), ((1,), (9, 4), (4,))])
def test_where_keeps_nan_and_makes_onnx_runtimes_zeros(shapes, rng):
    node = helper.make_node("Where", ["a", "x", "w"], ["y"])
    a, x = np.zeros(0), np.zeros(0)
    for _ in range(10):
        a = rng.random(shapes[0]) < 0.5
        x, w = (zeros_and_neighbours(rng, int(np.prod(s))).reshape(s) for s in shapes[1:])
        assert same_bits(*compare(node, {"a": a, "x": x, "w": w}))
    values = {"a": a, "x": (x > 0).astype(np.int64), "w": np.full(shapes[2], 7)}
    assert same_bits(*compare(node, values))


CASTS = [
    *[(a, b) for a in ("bool", "int8", "uint8", "int32", "int64") for b in ("float32", "int32")],
    *[("int64", "int8"), ("int32", "uint8"), ("int8", "bool"), ("float32", "bool")],
]


@pytest.mark.parametrize(("source", "target"), CASTS)
def test_casts_give_the_bits_of_onnx_runtime(source, target, rng):
    if source == "float32":
        x = dense_floats(rng)
    elif source == "bool":
        x = rng.random(99) < 0.5
    else:
        kind = np.iinfo(source)
        x = rng.integers(kind.min, kind.max, 5000, dtype=source, endpoint=True)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    assert same_bits(*compare(helper.make_node("Cast", ["x"], ["y"], to=to), {"x": x}))


def test_casts_from_floats_to_integers_stay_since_overflow_is_undefined():
    node = helper.make_node("Cast", ["x"], ["y"], to=6)
    assert lowered(node, {"x": np.ones(3, np.float32)}) is None


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("scale", [0.03125, 0.0371, 1.0])
@pytest.mark.parametrize("zero", [0, 5, 127])
def test_quantise_rounds_halves_to_even_and_sends_nan_where_onnx_runtime_does(
    dtype, scale, zero, rng
):
    constants = {"s": np.array(scale, np.float32), "z": np.array(zero, dtype)}
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    x = dense_floats(rng)
    assert same_bits(*compare(node, {"x": x}, constants))
    assert same_bits(*compare(node, {"x": x[:4096] * np.float32(scale)}, constants)), "ties"


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("zero", [0, 7])
def test_dequantise(dtype, zero, rng):
    kind = np.iinfo(dtype)
    x = rng.integers(kind.min, kind.max, 4000, dtype=dtype, endpoint=True)
    constants = {"s": np.array(0.0371, np.float32), "z": np.array(zero, dtype)}
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"])
    if dtype == "int32" and zero:
        assert lowered(node, {"x": x}, constants) is None
    else:
        assert same_bits(*compare(node, {"x": x}, constants))


@pytest.mark.parametrize("axis", [1, -1])
def test_quantise_and_dequantise_per_channel(axis, rng):
    x = rng.normal(size=(2, 4, 3, 4)).astype(np.float32) * 4
    constants = {
        "s": np.array([0.1, 0.02, 0.5, 0.0371], np.float32),
        "z": np.array([0, -3, 100, -128], np.int8),
    }
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], axis=axis)
    ours, reference = compare(node, {"x": x}, constants)
    assert same_bits(ours, reference)
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=axis)
    assert same_bits(*compare(node, {"x": reference}, constants))


VIEW_CASES = {
    "Transpose": ((2, 3, 4, 5), {"perm": [0, 2, 3, 1]}, {}),
    "Expand": ((3, 1, 5), {}, {"shape": [2, 3, 4, 5]}),
    "Reshape": ((1, 4, 1, 5), {}, {"shape": [4, 1, 1, 1, 5]}),
    "Flatten": ((3, 7, 1, 1), {}, {}),
    "Squeeze": ((1, 4, 1, 5), {}, {"axes": [0, 2]}),
    "Unsqueeze": ((4, 5), {}, {"axes": [0, 3]}),
    "Slice": ((7, 9), {}, {"starts": [-2, 8], "ends": [-99, 1], "axes": [0, 1], "steps": [-1, -3]}),
}


@pytest.mark.parametrize("op", VIEW_CASES)
def test_changes_of_view_move_the_same_elements(op, rng):
    shape, attributes, operands = VIEW_CASES[op]
    constants = {n: np.array(v, np.int64) for n, v in operands.items()}
    node = helper.make_node(op, ["x", *constants], ["y"], **attributes)
    x = rng.normal(size=shape).astype(np.float32)
    assert same_bits(*compare(node, {"x": x}, constants))


def test_a_reshape_that_divides_indices_stays():
    constants = {"shape": np.array([6, 4], np.int64)}
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    assert lowered(node, {"x": np.ones((2, 12), np.float32)}, constants) is None


def test_a_view_whose_shape_is_computed_stays_since_the_shape_would_still_be_needed():
    values = {"x": np.ones((1, 4), np.float32), "shape": np.array([4], np.int64)}
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    model = model_of([node], values, ["y"])
    types = types_of(model) | {"y": types_of(model)["shape"]}
    assert generic_of(node, types, {}) is None


def test_operands_are_broadcast_from_the_right(rng):
    x, w = rng.normal(size=(2, 3, 4, 5)), rng.normal(size=(3, 1, 5))
    values = {"x": x.astype(np.float32), "w": w.astype(np.float32)}
    node = helper.make_node("Mul", ["w", "x"], ["y"])
    assert same_bits(*compare(node, values))


INEXACT = {"Exp": (2.5e-7, 0), "Tanh": (0, 5e-7), "Sigmoid": (0, 2.5e-7)}
"""Largest relative and absolute differences seen, rounded up."""


@pytest.mark.parametrize("op", INEXACT)
def test_operators_with_an_exponential_are_taken_only_where_bits_may_differ(op, rng):
    x = rng.normal(size=20_000).astype(np.float32) * 4
    node = helper.make_node(op, ["x"], ["y"])
    assert lowered(node, {"x": x}) is None
    ours, reference = compare(node, {"x": x}, exact=False)
    relative, absolute = INEXACT[op]
    np.testing.assert_allclose(ours, reference, rtol=relative, atol=absolute)
    assert not same_bits(ours, reference), "equal by now? then it can be taken"


@pytest.mark.parametrize("op", ["Softmax", "Erf", "Conv", "MatMul", "Concat", "ReduceMax"])
def test_operators_that_are_not_element_wise_are_none_of_ours(op):
    assert op not in POINTWISE
    assert op not in VIEWS


def test_nodes_of_the_ir_are_lowered_like_protos(rng):
    node = helper.make_node("Relu", ["x"], ["y"], name="relu")
    model = model_of([node], {"x": np.ones((2, 3), np.float32)}, ["y"])
    types = types_of(model)
    of_ir = ir.serde.deserialize_model(model).graph.node(0)
    assert generic_of(of_ir, types) == generic_of(node, types)


def test_unknown_and_empty_shapes_stay():
    node = helper.make_node("Relu", ["x"], ["y"])
    types = types_of(model_of([node], {"x": np.ones((2, 0), np.float32)}, ["y"]))
    assert generic_of(node, types) is None
    assert generic_of(node, {}) is None


@pytest.mark.parametrize("op", ["Relu", "Transpose"])
def test_a_model_that_declares_a_shape_wrong_is_left_to_onnx_runtime(op):
    node = helper.make_node(op, ["x"], ["y"])
    types = types_of(model_of([node], {"x": np.ones((2, 3), np.float32)}, ["y"]))
    assert generic_of(node, types) is not None
    assert generic_of(node, types | {"y": TensorType(shape=(2, 4), dtype="float32")}) is None
    assert generic_of(node, types | {"y": TensorType(shape=(), dtype="float32")}) is None
