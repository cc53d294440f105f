"""A maximum over rows and columns is a pool of the whole map; `canonical` compares the results."""

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
