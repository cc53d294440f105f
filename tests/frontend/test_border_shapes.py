"""Shapes come from what operators do; what a file declares is believed where nobody can tell."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing.load import load
from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.qdq_reference import session
from tests.some import some

Text = Callable[..., onnx.ModelProto]
REGRESSIONS = Path(__file__).resolve().parent.parent / "regressions"

CHAIN = """g (float[1,4,8,8] x) => (float[1,4,4,4] y)
{ c = Conv(x, w)  y = MaxPool<kernel_shape=[3,3]>(c) }"""
WEIGHT = np.ones((4, 4, 3, 3), np.float32)


def declare(model: onnx.ModelProto, name: str, shape: list[int]) -> onnx.ModelProto:
    for output in model.graph.output:
        if output.name == name:
            output.CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
            return model
    model.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    return model


def shapes(model: onnx.ModelProto) -> dict[str, list[int | ir.SymbolicDim]]:
    return {
        some(v.name): list(some(v.shape)) for node in load(model).model.graph for v in node.outputs
    }


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [("c", [1, 4, 9, 9], "1x4x6x6"), ("y", [1, 4, 1, 1], "1x4x4x4"), ("c", [4], "1x4x6x6")],
)
def test_a_wrong_declaration_is_told_and_not_believed(
    name: str, wrong: list[int], right: str, onnx_text: Text
):
    model = declare(onnx_text(CHAIN, w=WEIGHT), name, wrong)
    assert shapes(model) == {"c": [1, 4, 6, 6], "y": [1, 4, 4, 4]}
    (warning,) = load(model).warnings
    assert f"{name!r} as {'x'.join(map(str, wrong))}, its operators make {right}" in warning
    assert warning in prepare(model).warnings


def test_an_output_that_is_an_input_has_the_inputs_shape(onnx_text: Text):
    model = onnx_text("g (float[1,4] x) => (float[1,-5] x, float[1,4] y) { y = Relu(x) }")
    loaded = load(model)
    assert [list(some(value.shape)) for value in loaded.model.graph.outputs] == [[1, 4], [1, 4]]
    (warning,) = loaded.warnings
    assert "'x' as 1x-5, its operators make 1x4" in warning


def test_right_declarations_are_no_news(onnx_text: Text):
    model = declare(onnx_text(CHAIN, w=WEIGHT), "c", [1, 4, 6, 6])
    assert load(model).warnings == ()


def test_the_stale_shapes_of_the_regression_are_not_believed():
    model = onnx.load(REGRESSIONS / "fl.onnx")
    fresh = onnx.ModelProto.FromString(model.SerializeToString())
    fresh.graph.ClearField("value_info")
    assert shapes(model) == shapes(fresh)
    del fresh.graph.output[0].type.tensor_type.shape.dim[:]
    inputs = {"input": np.zeros((1, 3, 12, 12), np.float32)}
    (made,) = session(fresh).run(None, inputs)
    assert list(np.asarray(made).shape) == shapes(model)[model.graph.output[0].name]


def test_a_declaration_is_believed_behind_an_operator_that_onnx_does_not_know(onnx_text: Text):
    model = onnx_text(
        "g (float[1,4] x) => (float[1,4] y) { r = com.microsoft.Bar(x)  y = Relu(r) }"
    )
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert shapes(declare(model, "r", [1, 4])) == {"r": [1, 4], "y": [1, 4]}


def test_a_declaration_is_believed_where_a_shape_depends_on_data(onnx_text: Text):
    text = "g (float[1,4] x, int64[2] s) => (float[2,2] y) { r = Reshape(x, s)  y = Relu(r) }"
    model = onnx_text(text)
    assert shapes(model)["y"] == [2, 2]
    assert shapes(declare(model, "r", [2, 2])) == {"r": [2, 2], "y": [2, 2]}


def test_calibration_finds_out_a_declaration_that_nobody_could_check(onnx_text: Text):
    text = "g (float[1,4] x, int64[2] s) => (float[1,4] y) { r = Expand(x, s)  y = Relu(r) }"
    model = declare(onnx_text(text), "r", [1, 4])
    data = {"x": np.ones((1, 4), np.float32), "s": np.array([2, 4])}
    message = r"ONNX Runtime computes 2x4 for it, the model says 1x4; let the exporter infer"
    with pytest.raises(ModelError, match=message):
        prepare(model, calibration=data)


def test_a_computed_target_is_not_taken_for_the_declared_shape(onnx_text: Text):
    text = """g (float[1,4,2,2] x, int64[4] s) => (float[1,4,2,2] y)
    { r = Reshape(x, s)  y = Relu(r) }"""
    model = declare(onnx_text(text), "r", [1, 4, 2, 2])
    data = {"x": np.ones((1, 4, 2, 2), np.float32), "s": np.array([1, 1, 4, 4])}
    with pytest.raises(ModelError, match="computes 1x1x4x4 for it, the model says 1x4x2x2; let"):
        prepare(model, calibration=data)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad"), [(4, 2, 3, 1), (6, 3, 4, 2), (5, 2, 2, 0)]
)
def test_pools_that_round_up_have_the_windows_that_onnx_runtime_computes(
    op: str, size: int, kernel: int, stride: int, pad: int, onnx_text: Text
):
    """onnx's inference counts one more, that starts in the end padding."""
    text = f"""g (float[1,1,{size},{size}] x) => (float[1,1,h,h] z) {{
        y = {op}<kernel_shape=[{kernel},{kernel}], strides=[{stride},{stride}], ceil_mode=1,
                 pads=[{pad},{pad},{pad},{pad}]>(x)
        z = Exp(y)
    }}"""
    model = onnx_text(text, opset=18)
    (made,) = session(model).run(["z"], {"x": np.zeros((1, 1, size, size), np.float32)})
    assert set(map(tuple, shapes(model).values())) == {np.asarray(made).shape}
    assert load(model).warnings == ()


def test_a_pool_that_rounds_up_by_as_much_as_its_kernel_stays(onnx_text: Text):
    """As padding ONNX Runtime would refuse it."""
    text = """g (float[1,1,7,7] x) => (float[1,1,3,3] y)
    { y = MaxPool<kernel_shape=[2,2], dilations=[2,2], strides=[3,3], ceil_mode=1>(x) }"""
    canonical = prepare(onnx_text(text), quantised=False).canonical
    x = np.arange(49, dtype=np.float32).reshape(1, 1, 7, 7)
    (made,) = session(ir.to_proto(canonical)).run(["y"], {"x": x})
    assert np.asarray(made).ravel().tolist() == [16, 19, 20, 37, 40, 41, 44, 47, 48]


def test_an_input_that_is_an_output_keeps_its_shape(onnx_text: Text):
    text = """g (float[1,2,4,4] x) => (float[1,8,4,4] y, float[1,2,4,4] x)
    { y = Concat<axis=1>(x, x, x, x) }"""
    assert all(v.shape is not None for v in prepare(onnx_text(text)).canonical.graph.outputs)


def test_an_activation_between_single_numbers_is_rounded():
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 17]> g (float[1,4,8,8] x) => (float[1,4,8,8] y)'
        "<float low = {-1}, float high = {1}> { c = Clip(x, low, high)  y = Relu(c) }"
    )
    qdq = prepare(ir.from_proto(model)).qdq
    rounded = {node.input[0] for node in some(qdq).graph.node if node.op_type == "QuantizeLinear"}
    assert len(rounded) == 3, rounded  # x, c and y


def test_a_constant_that_gives_the_result_its_rank_keeps_its_own(onnx_text: Text):
    """Of a map with as many axes it would be told by its channels alone."""
    model = onnx_text("g (float[1,8] x) => (float[1,4,9,8] y) { y = Mul(x, f) }",
                      f=np.ones((1, 4, 9, 8), np.float32))  # fmt: skip
    (mul,) = prepare(model).canonical.graph
    factor = mul.inputs[1]
    assert factor is not None
    assert list(factor.shape or ()) == [1, 4, 9, 8]


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("a = Add(none, x)  y = Relu(a)", ["Relu"]),  # Python's sum(...) of maps
        ("a = Sub(x, none)  b = Mul(a, one)  c = Div(b, one)  y = Relu(c)", ["Relu"]),
        ("a = Sub(none, x)  y = Relu(a)", ["Sub", "Relu"]),
        ("a = Add(x, wide)  y = Relu(a)", ["Add", "Relu"]),  # larger than x
    ],
)
def test_sums_with_nothing_and_products_with_ones_go(body: str, left: list[str], onnx_text: Text):
    model = onnx_text(
        f"g (float[1,4,8,1] x) => (float[1,4,8,N] y) {{ {body} }}",
        none=np.zeros((), np.float32),
        one=np.ones((4, 1, 1), np.float32),
        wide=np.zeros((1, 1, 1, 8), np.float32),
    )
    canonical = prepare(model, quantised=False).canonical
    assert [node.op_type for node in canonical.graph] == left
