"""Networks with channels last, in text: what stays of their Transposes, and that results do, too.

The `canonical` fixture compares the outputs of both graphs.
"""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import partition_model

Text = Callable[..., onnx.ModelProto]
Canonical = Callable[[onnx.ModelProto], ir.Model]
Absorbed = Callable[[onnx.ModelProto], ir.Model]

FIRST, LAST = "Transpose <perm = [0, 3, 1, 2]>", "Transpose <perm = [0, 2, 3, 1]>"
"""To channels first, and back."""
CONV = f"[t] b = {FIRST} (x) [c] d = Conv (b, w) [u] e = {LAST} (d) "
NEXT = f"[v] k = {FIRST} (j) [n] y = Conv (k, v)"


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(11).standard_normal(shape).astype(np.float32)


WEIGHTS = {
    "w": normal(5, 4, 3, 3),
    "v": normal(3, 5, 1, 1),
    "o": normal(5),
    "p": normal(1, 7, 6, 5),
    "thin": normal(2, 1, 3, 3),
}

CASES = {
    "constants of a batch norm go into the convolution": (
        CONV + "[a] f = Add (e, o) [s] g = Sub (f, o) [m] h = Mul (o, g) [r] j = Relu (h) " + NEXT,
        "Transpose Conv Relu Conv",
    ),
    "a constant map is turned": (CONV + "[a] j = Add (p, e) " + NEXT, "Transpose Conv Add Conv"),
    "a residual sum, whose parts are turned alike": (
        CONV + "[r] f = Relu (e) [a] j = Add (f, e) " + NEXT,
        "Transpose Conv Relu Add Conv",
    ),
    "a sum with what is turned in another way": (
        CONV
        + "[q] f = Reshape (d, other) [w] g = Transpose <perm = [0, 3, 2, 1]> (f) "
        + "[a] j = Add (e, g) "
        + NEXT,
        "Transpose Conv Reshape Transpose Add Conv",
    ),
    "an unused bound of a Clip": (
        CONV + "[z] six = Constant <value = float {6.0}> () [r] j = Clip (e, , six) " + NEXT,
        "Transpose Conv Clip Conv",
    ),
    "a gate for each channel": (
        CONV
        + "[g] f = ReduceMean <axes = [1, 2]> (e) [s] h = Sigmoid (f) [m] j = Mul (e, h) "
        + NEXT,
        "Transpose Conv GlobalAveragePool Sigmoid Mul Conv",
    ),
    "channels joined, split and sliced": (
        CONV
        + "[r] f = Relu (e) [i] g = Concat <axis = -1> (e, f) [q] h, k2 = Split <axis = 3> (g) "
        "[l] l1 = Slice (k2, s0, s1, s3) [m] j = Add (h, l1) " + NEXT,
        "Transpose Conv Relu Concat Split Add Conv",
    ),
    "channels cut off, without axes": (
        CONV + "[s] j = Slice (e, none, all) " + NEXT,
        "Transpose Conv Slice Conv",
    ),
    "padding of rows and columns": (
        f"[q] q = Pad (x, pads) [t] b = {FIRST} (q) [c] y = Conv (b, w)",
        "Transpose Conv",
    ),
    "padding before a Reshape to windows": (
        CONV + "[q] q = Pad (e, pads) [r] j = Reshape (q, whole) " + NEXT,
        "Transpose Conv Pad Reshape Conv",
    ),
    "padding of a map with one channel": (
        (
            "[m] f = ReduceMax <axes = [3]> (x) [q] q = Pad (f, pads) "
            f"[t] b = {FIRST} (q) [c] y = Conv (b, thin)"
        ),
        "MaxPool Reshape Conv",
    ),
    "two that make a third": (
        "[t] a = Transpose <perm = [0, 3, 1, 2]> (x) [u] y = Transpose <perm = [0, 1, 3, 2]> (a)",
        "Transpose",
    ),
    "the output is turned behind the function": (
        CONV + "[s] y = Sigmoid (e)",
        "Transpose Conv Sigmoid Transpose",
    ),
}
STAY = {
    "operands that are turned differently": (
        (
            f"[t] a = {FIRST} (x) [q] r = Reshape (x, turned) "
            "[u] b = Transpose <perm = [0, 3, 2, 1]> (r) [a] y = Add (a, b)"
        ),
        "Transpose Reshape Transpose Add",
    ),
    "an operand that grows": (
        (
            "[m] s = ReduceMean <axes = [2]> (x) [t] a = Transpose <perm = [0, 3, 1, 2]> (s) "
            "[b] y = Mul (a, big)"
        ),
        "AveragePool Transpose Mul",
    ),
    "an operand that is a map of its own": (
        f"[t] a = {FIRST} (x) [q] r = Reshape (x, sizes) [a] y = Add (a, r)",
        "Transpose Reshape Add",
    ),
    "padding that somebody else reads": (
        f"[q] q = Pad (x, pads) [t] b = {FIRST} (q) [r] z = Relu (q) [s] y = Neg (b)",
        "Pad Relu Neg Transpose",
    ),
}
MORE = {
    "pads": np.array([0, 1, 1, 0, 0, 1, 2, 0]),
    "whole": np.array([1, 3, 27, 5]),
    "none": np.array([0, 0]),
    "all": np.array([1, 6]),
    "s0": np.array([0]),
    "s1": np.array([5]),
    "s3": np.array([-1]),
    "big": normal(1, 4, 9, 8),
    "sizes": np.array([1, 4, 9, 8]),
    "turned": np.array([1, 8, 9, 4]),
    "other": np.array([1, 5, 6, 7]),
}


def graph(text: Text, nodes: str) -> onnx.ModelProto:
    used = {k: v for k, v in {**WEIGHTS, **MORE}.items() if any(f"{s}{k}" in nodes for s in " (")}
    more = ", float[E, F, G, H] z" if "] z = R" in nodes else ""
    return text(f"g (float[1, 9, 8, 4] x) => (float[A, B, C, D] y{more}) {{ {nodes} }}", **used)


@pytest.mark.parametrize("name", CASES | STAY)
def test_what_is_left_of_them(name: str, onnx_text: Text, canonical: Canonical):
    nodes, left = (CASES | STAY)[name]
    model = canonical(graph(onnx_text, nodes))
    assert " ".join(node.op_type for node in model.graph) == left


def test_who_reads_the_turned_value_too_still_does(onnx_text: Text, canonical: Canonical):
    nodes = CONV + "[r] j = Relu (e) [z] z = ReduceMax <axes = [3]> (e) " + NEXT
    model = canonical(graph(onnx_text, nodes))
    (reader,) = (n for n in model.graph if n.op_type == "ReduceMax")
    assert reader.inputs[0] is not None
    turn = reader.inputs[0].producer()
    assert turn is not None
    assert (turn.op_type, turn.name) == ("Transpose", "u")


def test_one_of_two_vectors_is_moved_once(onnx_text: Text, canonical: Canonical):
    """Moving the sum before it would move the other one."""
    model = onnx_text(
        "g (float[1,33,1,1] a, float[1,1,1,33] b) => (float[1,33,1,1] y) "
        f"{{ [t] c = {FIRST} (b) [s] y = Add (a, c) }}"
    )
    assert [node.op_type for node in canonical(model).graph] == ["Reshape", "Add"]


def test_roundings_stay_where_they_are(onnx_text: Text, absorbed: Absorbed):
    """A model that arrives quantised; the fixture compares every rounded tensor."""
    pair = "q{0} = QuantizeLinear ({0}, s, z) r{0} = DequantizeLinear (q{0}, s, z) "
    weights = "rw = DequantizeLinear (qw, t, z) rv = DequantizeLinear (qv, t, z) "
    nodes = (
        weights
        + pair.format("x")
        + f"[t] b = {FIRST} (rx) "
        + pair.format("b")
        + "[c] d = Conv (rb, rw) "
        + pair.format("d")
        + f"[u] e = {LAST} (rd) "
        + pair.format("e")
        + "[r] j = Sigmoid (re) "
        + pair.format("j")
        + f"[v] k = {FIRST} (rj) "
        + pair.format("k")
        + "[n] m = Conv (rk, rv) "
        + pair.format("m").replace("rm =", "y =")
    )
    rng = np.random.default_rng(2)
    arrays = {
        "qw": rng.integers(-50, 50, (5, 4, 3, 3)).astype(np.int8),
        "qv": rng.integers(-50, 50, (3, 5, 1, 1)).astype(np.int8),
        "s": np.float32(0.0625),
        "t": np.float32(0.0078125),
        "z": np.int8(0),
    }
    text = f"g (float[1, 9, 8, 4] x) => (float[A, B, C, D] y) {{ {nodes} }}"
    model = absorbed(onnx_text(text, **arrays))
    left = " ".join(node.op_type for node in model.graph)
    assert left == "Transpose Conv Sigmoid Conv", left


def test_nothing_is_left_to_the_host(onnx_text: Text):
    dfg, partition = partition_model(
        graph(onnx_text, CASES["a gate for each channel"][0]), load_hw("opu-light")
    )
    assert partition.host == ()
    assert [border is not None for border in dfg.entries] == [True]  # the first Transpose


ROWS = {
    "by a MatMul": "[f] f = Flatten (e) [m] y = MatMul (f, rows)",
    "by a Gemm": "[f] f = Reshape (e, row) [m] y = Gemm <transB = 1> (f, columns, o)",
    "by a Gemm, read by another as well": (
        "[f] f = Flatten (e) [m] g = MatMul (f, rows) [q] q = Softmax (f) [s] r = MatMul (q, rows) "
        "[a] y = Add (g, r)"
    ),
}
ROW_WEIGHTS = {"rows": normal(210, 5), "columns": normal(5, 210), "row": np.array([1, 210])}


def row_graph(text: Text, nodes: str, **more: np.ndarray) -> onnx.ModelProto:
    data = {**WEIGHTS, **ROW_WEIGHTS, **more}
    used = {k: v for k, v in data.items() if any(f"{s}{k}" in nodes for s in " (")}
    return text(f"g (float[1, 9, 8, 4] x) => (float[1, 5] y) {{ {nodes} }}", **used)


@pytest.mark.parametrize("name", ROWS)
def test_weights_are_turned_where_a_map_becomes_a_row(
    name: str, onnx_text: Text, canonical: Canonical
):
    model = canonical(row_graph(onnx_text, CONV + ROWS[name]))
    left = [node.op_type for node in model.graph]
    alone = "read by another" not in name
    assert (left == ["Transpose", "Conv", "Reshape", "Gemm"]) == alone
    assert left.count("Transpose") == (1 if alone else 2)


def test_rounded_weights_are_turned_too(onnx_text: Text, absorbed: Absorbed):
    """Each row of them has its scale; the fixture compares every rounded tensor."""
    pair = "q{0} = QuantizeLinear ({0}, s, z) r{0} = DequantizeLinear (q{0}, s, z) "
    nodes = (
        "rw = DequantizeLinear (qw, t, z) rv = DequantizeLinear <axis = 1> (qv, u, v) "
        + f"{pair.format('x')} [t] b = {FIRST} (rx) {pair.format('b')} [c] d = Conv (rb, rw) "
        + f"{pair.format('d')} [l] e = {LAST} (rd) {pair.format('e')} [f] f = Flatten (re) "
        + f"{pair.format('f')} [m] y0 = MatMul (rf, rv) "
        + pair.format("y0").replace("ry0", "y")
    )
    rng = np.random.default_rng(2)
    model = onnx_text(
        f"g (float[1, 9, 8, 4] x) => (float[1, 5] y) {{ {nodes} }}",
        qw=rng.integers(-50, 50, (5, 4, 3, 3)).astype(np.int8),
        qv=rng.integers(-90, 90, (210, 5)).astype(np.int8),
        s=np.float32(0.0625),
        t=np.float32(0.0078125),
        u=2.0 ** -np.arange(8, 13, dtype=np.float32),
        v=np.zeros(5, np.int8),
        z=np.int8(0),
    )
    left = [node.op_type for node in absorbed(model).graph]
    assert left == ["Transpose", "Conv", "Reshape", "Gemm"]
