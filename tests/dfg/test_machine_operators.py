"""Operators beside convolution, pooling and sums: golden model against ONNX Runtime.

Functions of one value, products, per-channel scaling, transposed convolutions, moves of channels.
"""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from opu_fuse.dfg import integer
from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.function_tables import table_entries
from opu_fuse.dfg.graph import Dfg, Node
from opu_fuse.dfg.integer import operator, requant_params
from opu_fuse.dfg.interpret import interpret, runs_integer
from opu_fuse.errors import ModelError
from opu_fuse.fixedpoint import channel_affine
from opu_fuse.hw.spec.hw_spec import Numeric
from opu_fuse.units.affine import affine_params
from opu_fuse.units.base import Stage
from tests.dfg import canonical
from tests.dfg.test_interpret import differences
from tests.some import some

NUMERIC = Numeric(multiplier_bits=16, average_bits=16)
PLAIN_NORM = "<float[5] m = {0,0,0,0,0}, float[5] v = {1,1,1,1,1}>"

OPERATORS = {
    "multiply": "float[1,5,7,9] z) => (float[1,5,7,9] y) { [n] y = Mul(x, z) }",
    "multiply/gate": "float[1,5,1,1] z) => (float[1,5,7,9] y) { [n] y = Mul(x, z) }",
    "multiply/gate first": "float[1,5,1,1] z) => (float[1,5,7,9] y) { [n] y = Mul(z, x) }",
    "multiply/factors": "float[5,1,1] k1) => (float[1,5,7,9] y) { [n] y = Mul(x, k1) }",
    "multiply/one factor": "float[1] k1) => (float[1,5,7,9] y) { [n] y = Mul(x, k1) }",
    "add/offsets": "float[5,1,1] k1) => (float[1,5,7,9] y) { [n] y = Add(x, k1) }",
    "add/difference": "float[1,5,7,9] z) => (float[1,5,7,9] y) { [n] y = Sub(x, z) }",
    "add/difference the other way": "float[1,5,7,9] z) => (float[1,5,7,9] y) { [n] y = Sub(z, x) }",
    "batch_norm": "float[5] k1, float[5] k2) => (float[1,5,7,9] y) " + PLAIN_NORM +
    " { [n] y = BatchNormalization<epsilon=0.0>(x, k1, k2, m, v) }",
    "transposed_conv": "float[5,4,2,2] w1, float[4] b1) => (float[1,4,14,18] y)"
    " { [n] y = ConvTranspose<kernel_shape=[2,2],strides=[2,2]>(x, w1, b1) }",
    "transposed_conv/uneven": "float[5,6,3,4] w1) => (float[1,6,13,28] y)"
    " { [n] y = ConvTranspose<kernel_shape=[3,4],strides=[2,3],pads=[1,0,1,1],"
    "output_padding=[0,1]>(x, w1) }",
    "transposed_conv/crops": "float[5,3,2,2] w1) => (float[1,3,9,14] y)"
    " { [n] y = ConvTranspose<kernel_shape=[2,2],strides=[2,2],pads=[3,2,2,2]>(x, w1) }",
    "transposed_conv/depthwise": "float[5,1,3,3] w1, float[5] b1) => (float[1,5,14,18] y)"
    " { [n] y = ConvTranspose<group=5,kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1],"
    "output_padding=[1,1]>(x, w1, b1) }",
    "concat": "float[1] b0) => (float[1,10,7,9] y)"
    " { p = MaxPool<kernel_shape=[1,1]>(x) [n] y = Concat<axis=1>(p, x) }",
    "shuffle": "float[1,6,3,4] z) => (float[1,6,3,4] y)"
    " <int64[5] apart = {1,3,2,3,4}, int64[4] whole = {1,6,3,4}> { a = Reshape(z, apart)"
    " t = Transpose<perm=[0,2,1,3,4]>(a) [n] y = Reshape(t, whole) }",
    "shuffle/without batch": "float[1,6,3,4] z) => (float[1,6,3,4] y)"
    " <int64[4] apart = {2,3,3,4}, int64[4] whole = {1,6,3,4}> { a = Reshape(z, apart)"
    " t = Transpose<perm=[1,0,2,3]>(a) [n] y = Reshape(t, whole) }",
    "split": "float[1] b0) => (float[1,2,7,9] y, float[1,3,7,9] z)"
    " <int64[2] parts = {2,3}> { [n] y, z = Split<axis=1>(x, parts) }",
}  # fmt: skip
"""Parameters and body; the name begins with the operator in the data-flow graph."""

FUNCTIONS = {
    "Sigmoid": "y = Sigmoid(x)",
    "HardSigmoid": "y = HardSigmoid<alpha=0.15,beta=0.4>(x)",
    "HardSwish": "y = HardSwish(x)",
    "Tanh": "y = Tanh(x)",
    "Elu": "y = Elu<alpha=0.7>(x)",
    "Selu": "y = Selu(x)",
    "Celu": "y = Celu<alpha=0.6>(x)",
    "Softplus": "y = Softplus(x)",
    "Softsign": "y = Softsign(x)",
    "Gelu": "y = Gelu(x)",
    "Mish": "y = Mish(x)",
    "Erf": "y = Erf(x)",
    "Exp": "y = Exp(x)",
    "Abs": "y = Abs(x)",
    "Neg": "y = Neg(x)",
    "ThresholdedRelu": "y = ThresholdedRelu<alpha=0.3>(x)",
    "LeakyRelu that steepens": "y = LeakyRelu<alpha=1.5>(x)",
    "square": "y = Mul(x, x)",
    "swish": "s = Sigmoid(x) y = Mul(x, s)",
    "swish, factors exchanged": "s = Sigmoid(x) y = Mul(s, x)",
    "hard swish of two": "s = HardSigmoid<alpha=0.1666667>(x) y = Mul(x, s)",
    "hard swish of four": "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c)"
    " y = Mul(m, sixth)",
    "gelu with erf": "d = Mul(x, root) e = Erf(d) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)",
    "mish of three": "p = Softplus(x) t = Tanh(p) y = Mul(x, t)",
    "a chain": "a = Abs(x) b = Add(a, one) s = Sqrt(b) y = Neg(s)",
    "a quotient": "a = Abs(x) b = Add(a, one) y = Div(x, b)",
    "threshold": "c = LessOrEqual(x, half) y = Where(c, zero, x)",
    "softplus of three": "s = Softplus(x) c = Greater(x, one) y = Where(c, x, s)",
    "hard shrink": "a = Greater(x, half) b = Less(x, minus) c = Or(a, b) y = Where(c, x, zero)",
}
NUMBERS = (
    "<float three = {3.0}, float zero = {0.0}, float six = {6.0}, float sixth = {0.1666667},"
    " float root = {0.70710678}, float one = {1.0}, float half = {0.5}, float minus = {-0.5}>"
)


def text(name: str) -> str:
    return f"g (float[1,5,7,9] x, {OPERATORS[name]}"


def function(body: str) -> str:
    return f"g (float[1,5,7,9] x) => (float[1,5,7,9] y) {NUMBERS} {{ {body} }}"


def quantised(source: str, seed: int, **options) -> canonical.Quantised:
    return canonical.quantised(source, seed, opset=20, **options)


@pytest.mark.parametrize("zero_points", [False, True], ids=["symmetric", "zero_points"])
@pytest.mark.parametrize("name", OPERATORS)
def test_with_power_of_two_scales_no_value_differs_from_onnx_runtime(name, zero_points, seed):
    model = quantised(text(name), seed, zero_points=zero_points)
    dfg = build_dfg(model.model)
    call = next(n for n in dfg.calls if n.op == name.split("/")[0])
    assert runs_integer(dfg, call.index), "it went through ONNX Runtime itself"
    assert set(differences(model, seed + 1).values()) == {(0.0, 0)}


@pytest.mark.parametrize("name", OPERATORS)
def test_with_free_scales_an_operator_is_within_one_step(name, seed):
    model = quantised(text(name), seed, pow2=False, zero_points=True)
    for share, largest in differences(model, seed).values():
        assert largest <= 1
        assert share < 0.02


@pytest.mark.parametrize("rounded_inside", [True, False])
@pytest.mark.parametrize("pow2", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_one_value_is_one_table(name, pow2, rounded_inside, seed):
    source = function(FUNCTIONS[name])
    inside = [o for n in canonical.float_model(source, opset=20).graph.node for o in n.output]
    unrounded = () if rounded_inside else tuple(o for o in inside if o != "y")
    model = quantised(source, seed, pow2=pow2, zero_points=True, unrounded=unrounded)
    (node,) = build_dfg(model.model).calls
    assert node.op == "table"
    assert set(differences(model, seed).values()) == {(0.0, 0)}


@pytest.mark.parametrize("name", ["swish", "gelu with erf", "hard swish of four"])
def test_without_a_table_module_the_host_computes_the_same(name, seed):
    model = quantised(function(FUNCTIONS[name]), seed, zero_points=True)
    dfg = build_dfg(model.model)
    inputs = canonical.user_inputs(model.qdq, np.random.default_rng(seed))
    (node,) = dfg.calls
    on_machine = interpret(dfg, inputs, NUMERIC)[node.index]
    on_host = interpret(dfg, inputs, NUMERIC, host={node.index})[node.index]
    np.testing.assert_array_equal(on_machine, on_host)


@pytest.mark.parametrize("body", [
    "r = Relu(x) y = Sigmoid(r)",
    "s = Sigmoid(x) y = Relu(s)",
    "c = Clip(x, zero, six) s = Sigmoid(c) y = Mul(c, s)",
])  # fmt: skip
def test_what_the_comparator_does_stays_outside_of_tables(body):
    ops = [n.op for n in build_dfg(canonical.canonical(function(body))).calls]
    assert sorted(ops) in (["relu", "table"], ["clip", "table"])


@pytest.mark.parametrize(("body", "ops"), [
    ("r = Relu(x) y = Add(x, r)", ["relu", "add"]),
    ("s = Sigmoid(x) y = Add(x, s)", ["table", "add"]),
    ("s = Sigmoid(x) a = Add(x, s) t = Tanh(a)  y = Mul(x, t)", ["table"]),
])  # fmt: skip
def test_a_sum_of_two_maps_stays_one_unless_it_lies_within_a_table(body, ops):
    assert [n.op for n in build_dfg(canonical.canonical(function(body))).calls] == ops


def test_a_value_that_others_read_stays_visible():
    source = """g (float[1,5,7,9] x) => (float[1,5,7,9] y, float[1,5,7,9] s) {
        s = Sigmoid(x) y = Mul(x, s) }"""
    dfg = build_dfg(canonical.canonical(source))
    assert [n.op for n in dfg.calls] == ["table", "multiply"]


def test_a_value_that_others_read_is_where_a_table_begins():
    source = """g (float[1,5,7,9] x) => (float[1,5,7,9] y, float[1,5,7,9] n) {
        n = Neg(x) s = Sigmoid(n) y = Mul(n, s) }"""
    dfg = build_dfg(canonical.canonical(source))
    assert [(n.op, n.title) for n in dfg.calls] == [("table", "Neg"), ("table", "Sigmoid+Mul")]


def test_parts_of_a_split_without_their_own_rounding_are_integers(seed):
    source = """g (float[1,5,7,9] x) => (float[1,2,7,9] y, float[1,3,7,9] z)
        <int64[2] parts = {2,3}> { a, b = Split<axis=1>(x, parts) y = Relu(a) z = Relu(b) }"""
    model = quantised(source, seed, unrounded=("a", "b"))
    dfg = build_dfg(model.model)
    assert all(runs_integer(dfg, n.index) for n in dfg.calls)
    assert set(differences(model, seed).values()) == {(0.0, 0)}


@pytest.mark.parametrize(
    "body",
    ["c = Greater(x, y0) y = Where(c, x, zero)", "c = Greater(x, y0) y = Where(c, one, zero)"],
)
def test_a_choice_by_two_maps_is_no_table(body):
    source = function(body).replace("x)", "x, float[1,5,7,9] y0)", 1)
    ops = [n.op for n in build_dfg(canonical.canonical(source)).calls]
    assert ops == ["host:Greater", "host:Where"]


def test_a_table_stands_for_all_its_nodes_under_the_name_of_the_last():
    source = function("[gate] s = Sigmoid(x) [swish] y = Mul(x, s)")
    (node,) = build_dfg(canonical.canonical(source)).calls
    assert (node.name, node.title) == ("swish", "Sigmoid+Mul")
    assert node.source == ("gate", "swish")
    assert [n.op_type for n in node.body] == ["Sigmoid", "Mul"]


def test_relu_clip_and_slopes_have_entries_too(seed):
    for body in ("y = Relu(x)", "y = Clip(x, zero, six)", "y = LeakyRelu<alpha=0.25>(x)"):
        model = quantised(function(body), seed, zero_points=True)
        dfg = build_dfg(model.model)
        inputs = canonical.user_inputs(model.qdq, np.random.default_rng(seed))
        (node,) = dfg.calls
        values = interpret(dfg, inputs, NUMERIC)
        entries = table_entries(dfg, node.index)
        x = values[node.operands[0]].astype(int)
        np.testing.assert_array_equal(entries[x + 128], values[node.index])


def test_a_function_that_onnx_runtime_does_not_know_is_named():
    model = quantised(function("y = Sigmoid(x)"), 0)
    model.model.graph[0].attributes["alpha"] = ir.AttrFloat32("alpha", 1.0)
    dfg = build_dfg(model.model)
    with pytest.raises(ModelError, match="cannot run Sigmoid"):
        table_entries(dfg, dfg.calls[0].index)


def test_operands_of_a_product_may_be_exchanged(seed):
    model = quantised(text("multiply/gate"), seed, zero_points=True)
    dfg = build_dfg(model.model)
    (node,) = dfg.calls
    plain, swapped = (
        integer.settings(dfg, node.index, Stage.RESIDUAL, NUMERIC, swap=swap).registers
        for swap in (False, True)
    )
    zeros = ("res_a_zero", "res_b_zero")
    assert [plain[name] for name in zeros] == [swapped[name] for name in reversed(zeros)]
    assert all(plain[name] == swapped[name] for name in ("res_a_mult", "res_shift"))


def batch_norm(scale: float, shift: float) -> tuple[Dfg, Node]:
    """A normalisation with all channels alike."""
    dfg = build_dfg(quantised(text("batch_norm"), 3).model)
    (node,) = dfg.calls
    constants = dict(zip(node.operands[1:], (scale, shift), strict=True))
    nodes = [
        replace(n, const=np.full(5, constants[n.index], np.float32)) if n.index in constants else n
        for n in dfg.nodes
    ]
    return replace(dfg, nodes=tuple(nodes)), node


def test_a_factor_that_int16_cannot_write_is_rounded_to_the_nearest():
    dfg, node = batch_norm(scale=np.pi, shift=0.1)
    found = affine_params(operator(dfg, node.index))
    assert (found.mult.dtype, found.bias.dtype, found.shift.dtype) == (np.int16, np.int32, np.int8)
    ratio = (
        np.float32(np.pi)
        * some(dfg[node.operands[0]].quant).per_tensor
        / some(node.quant).per_tensor
    )
    exact = ratio * 2.0 ** found.shift.astype(float)
    assert np.all(np.abs(exact) > 2**14)
    assert np.all((np.abs(exact - found.mult) > 0) & (np.abs(exact - found.mult) <= 0.5))


@pytest.mark.parametrize("scale", [0.0, 1e-12])
def test_a_channel_without_factor_keeps_its_offset(scale):
    dfg, node = batch_norm(scale=scale, shift=0.25)
    found = affine_params(operator(dfg, node.index))
    result = channel_affine(
        np.array([[-128, 0, 127]], np.int8).T,
        mult=found.mult,
        bias=found.bias,
        shift=found.shift,
        y_zero=found.y_zero,
    )
    assert np.all(result == round(0.25 / some(node.quant).per_tensor))


def test_an_offset_beyond_the_adder_is_refused():
    dfg, node = batch_norm(scale=1.0, shift=1e30)
    with pytest.raises(ModelError, match="too large"):
        affine_params(operator(dfg, node.index))


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.tuples(*[st.integers(1, 6)] * 2),
    kernel=st.tuples(*[st.integers(1, 4)] * 2),
    strides=st.tuples(*[st.integers(1, 3)] * 2),
    pads=st.tuples(*[st.integers(0, 3)] * 4),
    more=st.tuples(*[st.integers(0, 2)] * 2),
    depthwise=st.booleans(),
    draw=st.integers(0, 999),
)
def test_transposed_convolutions_of_any_geometry(
    sizes, kernel, strides, pads, more, depthwise, draw
):
    more = tuple(min(m, s - 1) for m, s in zip(more, strides, strict=True))
    shape = [
        (n - 1) * s + k + m - pads[i] - pads[i + 2]
        for i, (n, s, k, m) in enumerate(zip(sizes, strides, kernel, more, strict=True))
    ]
    if min(shape) < 1:
        return
    rows, cols = sizes
    kh, kw = kernel
    filters, group = (f"3,1,{kh},{kw}", 3) if depthwise else (f"3,4,{kh},{kw}", 1)
    source = f"""g (float[1,3,{rows},{cols}] x, float[{filters}] w1) => (float[1,c,h,w] y) {{
        [n] y = ConvTranspose<kernel_shape=[{kh},{kw}],strides=[{strides[0]},{strides[1]}],
        pads=[{pads[0]},{pads[1]},{pads[2]},{pads[3]}],output_padding=[{more[0]},{more[1]}],
        group={group}>(x, w1) }}"""
    assert differences(canonical.quantised(source, draw, zero_points=True), draw)["n"] == (0.0, 0)


def test_every_output_channel_of_a_transposed_convolution_has_its_own_scale(seed):
    dfg = build_dfg(quantised(text("transposed_conv/uneven"), seed).model)
    params = requant_params(dfg, dfg.calls[0].index, NUMERIC)
    assert params.mult.shape == params.shift.shape == params.bias.shape == (6,)


def test_concat_of_different_scales_goes_through_onnx_runtime(seed):
    source = """g (float[1,3,9,11] x, float[1,2,9,11] z) => (float[1,5,9,11] y) {
        [n] y = Concat<axis=1>(x, z) }"""
    model = canonical.quantised(source, seed, zero_points=True, tied=False)
    dfg = build_dfg(model.model)
    assert not runs_integer(dfg, dfg.calls[0].index)
    assert set(differences(model, seed).values()) == {(0.0, 0)}


def test_a_max_pool_between_scales_goes_through_onnx_runtime():
    source = """g (float[1,3,9,11] x) => (float[1,3,8,10] y) {
        [n] y = MaxPool<kernel_shape=[2,2]>(x) }"""
    for tied in (True, False):
        model = canonical.quantised(source, zero_points=True, tied=tied)
        dfg = build_dfg(model.model)
        assert runs_integer(dfg, dfg.calls[0].index) == tied
        assert set(differences(model, 0).values()) == {(0.0, 0)}


def test_models_in_these_tests_are_valid():
    for name in OPERATORS:
        onnx.checker.check_model(canonical.float_model(text(name), opset=20), full_check=True)
