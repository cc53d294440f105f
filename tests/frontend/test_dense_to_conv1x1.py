"""Dense layers over the last axis of a map, in text: they become convolutions of one pixel.

The `canonical` fixture compares the outputs of both graphs.
"""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise

Text = Callable[..., onnx.ModelProto]
Canonical = Callable[[onnx.ModelProto], ir.Model]

VIEWS = {"Reshape", "Transpose"}
FIRST, LAST = "Transpose <perm = [0, 3, 1, 2]>", "Transpose <perm = [0, 2, 3, 1]>"
CONV = f"[c] a = Conv (x, w) [l] b = {LAST} (a) "
NEXT = f"[f] e = {FIRST} (d) [n] y = Conv (e, v)"


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(11).standard_normal(shape).astype(np.float32)


CONSTANTS = {
    "w": normal(4, 3, 1, 1),
    "v": normal(3, 4, 1, 1),
    "up": normal(4, 9),
    "down": normal(9, 4),
    "across": normal(9, 4).T.copy(),
    "o9": normal(9),
    "o4": normal(4),
    "flat": np.array([-1, 4]),
    "map": np.array([1, 6, 5, 4]),
    "line": np.array([1, 4, 30]),
    "image": np.array([1, 4, 6, 5]),
}
CASES = {
    "over the last axis of an image": (
        CONV + "[m] q = MatMul (b, up) [o] r = Add (q, o9) [s] t = Sigmoid (r) "
        "[k] d = MatMul (t, down) " + NEXT,
        "Conv Conv Sigmoid Conv Conv",
    ),
    "of rows that are pixels": (
        CONV + "[h] p = Reshape (b, flat) [m] q = MatMul (p, up) [o] r = Add (q, o9) "
        "[s] t = Relu (r) [g] z = Gemm (t, down, o4) [i] d = Reshape (z, map) " + NEXT,
        "Conv Conv Relu Conv Conv",
    ),
    "beside what it was made of": (
        CONV + "[h] p = Reshape (b, flat) [g] q = Gemm <alpha = 2.0> (p, up, o9) [t] s = Tanh (q) "
        "[k] z = Gemm <transB = 1> (s, across) [j] k2 = Reshape (z, map) [r] d = Add (k2, b) "
        + NEXT,
        "Conv Conv Tanh Conv Add Conv",
    ),
    "over the last axis of a line": (
        (
            "[c] a = Conv (x, w) [h] p = Reshape (a, line) "
            "[l] b = Transpose <perm = [0, 2, 1]> (p) "
            "[m] q = MatMul (b, up) [s] t = Relu (q) [k] z = MatMul (t, down) "
            "[u] z2 = Transpose <perm = [0, 2, 1]> (z) [i] d = Reshape (z2, image) "
            "[n] y = Conv (d, v)"
        ),
        "Conv Reshape Conv Relu Conv Reshape Conv",
    ),
    "a gate": (
        CONV + "[g] p = ReduceMean <axes = [1, 2]> (b) [m] q = MatMul (p, up) [r] r1 = Relu (q) "
        "[k] z = MatMul (r1, down) [s] t = Sigmoid (z) [u] d = Mul (b, t) " + NEXT,
        "Conv GlobalAveragePool Conv Relu Conv Sigmoid Mul Conv",
    ),
}


def graph(text: Text, nodes: str) -> onnx.ModelProto:
    words = nodes.replace(",", " ").replace("(", " ").replace(")", " ").split()
    used = {name: value for name, value in CONSTANTS.items() if name in words}
    return text(f"g (float[1, 3, 6, 5] x) => (float[A, B, C, D] y) {{ {nodes} }}", **used)


@pytest.mark.parametrize("name", CASES)
def test_they_are_convolutions_of_one_pixel(name: str, onnx_text: Text, canonical: Canonical):
    nodes, left = CASES[name]
    model = canonical(graph(onnx_text, nodes))
    assert " ".join(node.op_type for node in model.graph) == left


def test_rows_of_samples_are_pixels(onnx_text: Text, canonical: Canonical):
    nodes = "[m] p = MatMul (x, up) [r] q = Relu (p) [k] y = MatMul (q, down)"
    rows = onnx_text(
        f"g (float[7, 4] x) => (float[A, B] y) {{ {nodes} }}",
        **{name: CONSTANTS[name] for name in ("up", "down")},
    )
    kinds = [node.op_type for node in canonical(rows).graph if node.op_type not in VIEWS]
    assert kinds == ["Conv", "Relu", "Conv"]


def test_what_differs_from_row_to_row_is_added_to_rows(onnx_text: Text, canonical: Canonical):
    nodes = CONV + "[h] p = Reshape (b, flat) [o] y = Add (p, offsets)"
    rows = onnx_text(
        f"g (float[1, 3, 6, 5] x) => (float[A, B] y) {{ {nodes} }}",
        offsets=normal(30, 4),
        **{name: CONSTANTS[name] for name in ("w", "flat")},
    )
    assert [n.op_type for n in canonical(rows).graph] == ["Conv", "Transpose", "Reshape", "Add"]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("machine", ["opu-1024t", "opu-light"])
def test_the_machine_runs_them(name: str, machine: str, onnx_text: Text):
    hw = load_hw(machine)
    compiled = compile_model(graph(onnx_text, CASES[name][0]), hw)
    assert {compiled.dfg[op.node].op for op in compiled.partition.host} <= {"host:Reshape"}
    inputs = noise(compiled.bundle)
    assert check(compiled.bundle, inputs, run(compiled.bundle, hw, inputs, capture=True)).passed
