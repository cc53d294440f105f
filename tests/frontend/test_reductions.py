"""A maximum or mean over rows and columns is a pool of the whole map; `canonical` compares."""

import numpy as np
import pytest


def graph(node: str, result: str) -> str:
    return f"g (float[1, 4, 9, 8] x) => (float[{result}] y) {{ [m] y = {node} }}"


@pytest.mark.parametrize(
    ("attributes", "result", "wanted"),
    [
        ("axes = [2, 3]", "A, B, C, D", ["MaxPool"]),
        ("axes = [-1, 2], keepdims = 0", "A, B", ["MaxPool", "Reshape"]),
        ("axes = [3]", "A, B, C, D", ["MaxPool"]),
        ("axes = [2], keepdims = 0", "A, B, C", ["MaxPool", "Reshape"]),
        ("axes = [1]", "A, B, C, D", ["ReduceMax"]),
    ],
)
def test_a_maximum_over_rows_and_columns_is_a_pool(
    attributes, result, wanted, onnx_text, canonical
):
    model = canonical(onnx_text(graph(f"ReduceMax <{attributes}> (x)", result)))
    assert [node.op_type for node in model.graph] == wanted
    windows = {"axes = [3]": (1, 8), "axes = [2], keepdims = 0": (9, 1)}
    if wanted[0] == "MaxPool":
        window = model.graph[0].attributes.get_ints("kernel_shape")
        assert window == windows.get(attributes, (9, 8))


@pytest.mark.parametrize(("kept", "result"), [(1, "A, B, C, D"), (0, "A, B")])
def test_its_axes_may_be_an_operand(kept, result, onnx_text, canonical):
    """As of opset 18: torch's newer exporter writes an AdaptiveMaxPool so."""
    text = graph(f"ReduceMax <keepdims = {kept}> (x, axes)", result)
    model = canonical(onnx_text(text, opset=18, axes=np.array([2, -1])))
    assert model.graph[0].op_type == "MaxPool"


@pytest.mark.parametrize(
    ("kept", "factor", "wanted"),
    [
        ("keepdims = 1", "Div (s, count)", ["GlobalAveragePool", "Reshape"]),
        ("keepdims = 0", "Div (s, count)", ["GlobalAveragePool", "Reshape"]),
        ("keepdims = 1", "Mul (part, s)", ["GlobalAveragePool", "Reshape"]),
        ("keepdims = 1", "Div (s, other)", ["ReduceSum", "Mul"]),
        ("keepdims = 1", "Div (count, s)", ["ReduceSum", "Div"]),
    ],
)
def test_a_sum_over_how_many_there_are_is_a_mean(kept, factor, wanted, onnx_text, canonical):
    nodes = f"[t] t = Transpose <perm = [0, 2, 3, 1]> (x) [m] s = ReduceSum <{kept}> (t, axes)"
    result = "A, B, C, D" if "1" in kept else "A, B"
    text = f"g (float[1, 4, 9, 8] x) => (float[{result}] y) {{ {nodes} [d] y = {factor} }}"
    numbers = {"count": 72.0, "part": 1 / 72, "other": 36.0}
    used = {name: np.float32(n) for name, n in numbers.items() if name in factor}
    kinds = [n.op_type for n in canonical(onnx_text(text, axes=np.array([1, 2]), **used)).graph]
    assert [kind for kind in kinds if kind != "Transpose"] == wanted


@pytest.mark.parametrize(
    "kind", ["ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum"]
)
def test_a_reduction_over_nothing_is_left_out(kind, onnx_text, canonical):
    """Over no axis, where empty axes are to mean none, and over an axis of size 1."""
    text = f"""g (float[1, 1, 9, 8] x) => (float[A, B, C, D] y) {{ [r] r = Relu (x)
        [m] m = {kind} <noop_with_empty_axes = 1> (r, none) [n] y = {kind} (m, first) }}"""
    model = onnx_text(text, opset=18, none=np.array([], np.int64), first=np.array([1]))
    assert [node.op_type for node in canonical(model).graph] == ["Relu"]


def test_no_axes_are_all_axes(onnx_text, canonical):
    text = graph("ReduceMean <keepdims = 1> (x)", "A, B, C, D")
    model = canonical(onnx_text(text), rewriting=True)
    assert [node.op_type for node in model.graph] == ["AveragePool", "GlobalAveragePool", "Conv"]


@pytest.mark.parametrize(
    ("axes", "kept", "wanted"),
    [
        ([1], 1, ["Conv"]),
        ([-3], 0, ["Conv", "Reshape"]),
        ([1, 2], 1, ["AveragePool", "Conv"]),
        ([1, 3], 0, ["AveragePool", "Conv", "Reshape"]),
        ([0, 1], 1, ["Conv"]),
        ([2], 1, ["AveragePool"]),
    ],
)
def test_a_mean_over_channels_is_a_convolution(axes, kept, wanted, onnx_text, canonical):
    result = "A, B, C, D" if kept else ", ".join("ABCD"[: 4 - len(axes)])
    text = graph(f"ReduceMean <keepdims = {kept}> (x, axes)", result)
    model = canonical(onnx_text(text, opset=18, axes=np.array(axes)), rewriting=True)
    assert [node.op_type for node in model.graph] == wanted


@pytest.mark.parametrize(("axes", "group"), [([1], 1), ([1, 2, 3], 1), ([2, 3], 4), ([2], 4)])
def test_a_sum_is_a_convolution_with_ones(axes, group, onnx_text, canonical):
    text = graph("ReduceSum (x, axes)", "A, B, C, D")
    (node,) = canonical(onnx_text(text, axes=np.array(axes)), rewriting=True).graph
    assert (node.op_type, node.attributes.get_int("group")) == ("Conv", group)
    assert np.all(node.inputs[1].const_value.numpy() == 1.0)


def test_the_published_strategies_see_the_users_reduction(onnx_text, canonical):
    model = canonical(onnx_text(graph("ReduceMean <axes = [1]> (x)", "A, B, C, D")))
    assert [node.op_type for node in model.graph] == ["ReduceMean"]


@pytest.mark.parametrize("node", ["ReduceL2 <axes = [1]> (x)", "ReduceMax <axes = [1]> (x)"])
def test_what_the_array_cannot_sum_up_stays(node, onnx_text, canonical):
    (left,) = canonical(onnx_text(graph(node, "A, B, C, D")), rewriting=True).graph
    assert left.op_type == node.split()[0]
