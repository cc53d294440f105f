"""Scalar factors of attention go into the weights of the layer that computed the values.

The `canonical` fixture compares the outputs of both graphs.
"""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

Text = Callable[..., onnx.ModelProto]
Canonical = Callable[[onnx.ModelProto], ir.Model]

HEAD = "[w] p = MatMul (x, weight) [b] a = Add (p, bias) [r] h = Reshape (a, heads) "
PARTS = (
    HEAD + "[t] t = Transpose <perm = [2, 0, 3, 1, 4]> (h) [q] q = Gather (t, i0) "
    "[k] k = Gather (t, i1) "
    "[u] kt = Transpose <perm = [0, 1, 3, 2]> (k) "
)
FOLDED = {
    "queries": PARTS + "[f] s = Mul (q, half) [m] y = MatMul (s, kt)",
    "queries and keys": PARTS
    + "[f] s = Mul (q, half) [g] z = Mul (kt, half) [m] y = MatMul (s, z)",
    "divided queries": PARTS + "[f] s = Div (q, three) [m] y = MatMul (s, kt)",
    "scores": PARTS + "[m] s = MatMul (q, kt) [f] z = Mul (s, half) [g] y = Softmax (z)",
    "divided scores": PARTS + "[m] s = MatMul (q, kt) [f] z = Div (s, three) [g] y = Softmax (z)",
    "negative": PARTS + "[f] s = Mul (q, minus) [m] y = MatMul (s, kt)",
}
LEFT = {
    "another reader of the same channels": PARTS
    + "[f] s = Mul (q, half) [m] z = MatMul (s, kt) [n] v = MatMul (q, kt) [o] y = Sub (z, v)",
    "a part of the tokens": HEAD
    + "[s] q = Slice (h, zero, two, one) [t] v = Slice (h, two, three_, one) [f] s = Mul (q, half) "
    "[c] y = Concat <axis = 1> (s, v)",
    "a factor for each channel": PARTS + "[f] s = Mul (q, row) [m] y = MatMul (s, kt)",
    "an output": PARTS + "[m] s = MatMul (q, kt) [f] y = Mul (s, half)",
}
HEADS = "[g] a = Gemm <transB = 1> (x, w1, b) [h] c = Gemm <transB = 1> (x, w2, b) "
SUMS = {  # nodes -> how many factors remain
    "the mean of two heads": (HEADS + "[s] t = Add (a, c) [f] y = Div (t, three)", 0),
    "one factor that is read": (
        HEADS + "[s] t = Add (a, c) [f] z = Mul (t, half) [r] y = Tanh (z)",
        0,
    ),
    "another reader of a head": (
        HEADS + "[s] t = Add (a, c) [f] z = Mul (t, half) [m] y = Sub (z, a)",
        1,
    ),
    "a sum that others read": (
        HEADS + "[s] t = Add (a, c) [f] z = Mul (t, half) [r] n = Tanh (t) [m] y = Sub (z, n)",
        1,
    ),
    "a head twice": (HEADS + "[s] t = Add (a, a) [f] z = Mul (t, half) [m] y = Sub (z, c)", 1),
    "an operand of no layer": (
        HEADS + "[r] n = Tanh (c) [s] t = Add (a, n) [f] y = Mul (t, half)",
        1,
    ),
}
CONSTANTS = {
    "weight": np.random.default_rng(1).standard_normal((6, 16)).astype(np.float32),
    "w1": np.random.default_rng(2).standard_normal((4, 6)).astype(np.float32),
    "w2": np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32),
    "b": np.linspace(-1, 1, 4, dtype=np.float32),
    "bias": np.linspace(-1, 1, 16, dtype=np.float32),
    "heads": np.array([2, 3, 2, 2, 4], np.int64),
    "i0": np.array(0, np.int64),
    "i1": np.array(1, np.int64),
    "half": np.array(0.5, np.float32),
    "three": np.array([3.0], np.float32),
    "minus": np.array(-1.5, np.float32),
    "row": np.array([1, 2, 3, 4], np.float32),
    "zero": np.array([0], np.int64),
    "one": np.array([1], np.int64),
    "two": np.array([2], np.int64),
    "three_": np.array([3], np.int64),
}


def kinds(text: Text, canonical: Canonical, nodes: str) -> list[str]:
    words = nodes.replace(",", " ").replace("(", " ").replace(")", " ").split()
    used = {name: data for name, data in CONSTANTS.items() if name in words}
    free = "A, B, C, D, E" if "Concat" in nodes else "A, B, C, D"
    model = text(f"g (float[2, 3, 6] x) => (float[{free}] y) {{ {nodes} }}", **used)
    return [node.op_type for node in canonical(model).graph]


@pytest.mark.parametrize("name", FOLDED)
def test_a_factor_goes_into_the_layer(name: str, onnx_text: Text, canonical: Canonical):
    left = kinds(onnx_text, canonical, FOLDED[name])
    assert not {"Mul", "Div"} & {*left}
    assert left.count("Conv") == 1


@pytest.mark.parametrize("name", LEFT)
def test_a_factor_of_what_others_read_stays(name: str, onnx_text: Text, canonical: Canonical):
    assert "Mul" in kinds(onnx_text, canonical, LEFT[name])


@pytest.mark.parametrize("name", SUMS)
def test_a_factor_of_a_sum_goes_into_both_layers_or_stays(
    name: str, onnx_text: Text, canonical: Canonical
):
    nodes, left = SUMS[name]
    words = nodes.replace(",", " ").replace("(", " ").replace(")", " ").split()
    used = {name: data for name, data in CONSTANTS.items() if name in words}
    model = onnx_text(f"g (float[1, 6] x) => (float[1, 4] y) {{ {nodes} }}", **used)
    graph = canonical(model).graph
    assert sum(n.op_type in {"Mul", "Div"} for n in graph) == left
    assert [v.name for v in graph.outputs] == ["y"]
