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
        ("axes = [3]", "A, B, C, D", ["ReduceMax"]),
        ("axes = [1]", "A, B, C, D", ["ReduceMax"]),
    ],
)
def test_a_maximum_over_rows_and_columns_is_a_pool(
    attributes, result, wanted, onnx_text, canonical
):
    model = canonical(onnx_text(graph(f"ReduceMax <{attributes}> (x)", result)))
    assert [node.op_type for node in model.graph] == wanted
    if wanted[0] == "MaxPool":
        assert model.graph[0].attributes.get_ints("kernel_shape") == (9, 8)


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
