"""A crop moves before what computes single pixels; with a Pad after it, it is one operator."""

import numpy as np
import pytest

from opu_fuse.frontend.prepare import prepare
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from tests.frontend.conftest import run_plain
from tests.some import some

LAYER = "a = Conv (x, w)"
FIRST = "y = Slice (b, zero, one, three)"
MOVED = {
    "a function": (f"{LAYER} b = Relu (a) {FIRST}", 1),
    "a sum of constants": (f"{LAYER} b = Add (a, positions) {FIRST}", 1),
    "a residual sum": (f"{LAYER} r = Conv (a, w) s = Relu (r) b = Add (s, a) {FIRST}", 1),
    "a gate": (f"{LAYER} g = GlobalAveragePool (x) b = Mul (a, g) {FIRST}", 1),
    "one of two joined maps": (
        (
            f"{LAYER} r = Sigmoid (a) p = Pad (r, after) c = Conv (x, w) d = Sigmoid (c) "
            "q = Pad (d, ahead) b = Add (p, q) y = Slice (b, zero, one, three)"
        ),
        1,
    ),
    "two parts": (
        f"{LAYER} c = Slice (a, zero, one, three) d = Slice (a, one, two, three) y = Sub (c, d)",
        2,
    ),
}
"""Operators, and columns that the layer computes then."""
WHOLE = {
    "pixels of a map and of its padding": (
        (
            f"{LAYER} r = Sigmoid (a) p = Pad (r, before) b = Add (p, wide) "
            "y = Slice (b, zero, two, three)"
        ),
        8,
    ),
    "a window": (f"{LAYER} b = MaxPool <kernel_shape = [1, 3]> (a) {FIRST}", 8),
    "a reader of the rest": (
        f"{LAYER} b = Relu (a) {FIRST} z = MaxPool <kernel_shape=[2, 2]> (b)",
        8,
    ),
    "most of the map": (f"{LAYER} b = Relu (a) y = Slice (b, one, six, three)", 8),
}
SHIFTS = {
    "to one side": ("c = Slice (a, one, eight, three) y = Pad (c, behind)", 1),
    "cropped where it is padded": ("c = Slice (a, one, eight, three) y = Pad (c, before)", 2),
    "both sides": ("c = Slice (a, one, six, three) y = Pad (c, rows)", 1),
    "before a layer": (
        "c = Slice (a, one, eight, three) b = Pad (c, behind) y = Conv <pads=[1, 1, 1, 1]> (b, v)",
        1,
    ),
}
"""What follows a layer, and the passes that crop and pad."""


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


CONSTANTS = {
    **{name: np.array([n]) for n, name in enumerate(("zero", "one", "two", "three"))},
    "six": np.array([6]),
    "eight": np.array([8]),
    "w": numbers(5, 5, 1, 1),
    "v": numbers(5, 5, 3, 3),
    "positions": numbers(1, 5, 6, 8),
    "behind": np.array([0, 0, 0, 0, 0, 0, 0, 1]),
    "before": np.array([0, 0, 0, 1, 0, 0, 0, 0]),
    "after": np.array([0, 0, 0, 0, 0, 0, 0, 8]),
    "ahead": np.array([0, 0, 0, 8, 0, 0, 0, 0]),
    "wide": numbers(1, 5, 6, 9),
    "rows": np.array([0, 0, 1, 0, 0, 0, 2, 0]),
}


def network(onnx_text, nodes: str):
    words = nodes.replace(",", " ").replace("(", " ").replace(")", " ").split()
    constants = {name: data for name, data in CONSTANTS.items() if name in words}
    results = ", ".join(f"float[A, B, C, D] {v}" for v in ("y", "z") if v in words)
    return onnx_text(f"g (float[1, 5, 6, 8] x) => ({results}) {{ {nodes} }}", **constants)


@pytest.mark.parametrize("name", [*MOVED, *WHOLE])
def test_a_layer_computes_the_pixels_that_are_read(name: str, onnx_text):
    nodes, columns = (MOVED | WHOLE)[name]
    model = network(onnx_text, nodes)
    canonical = prepare(model, quantised=False, rewriting=True).canonical
    layers = [
        n
        for n in canonical.graph
        if n.op_type == "Conv" and some(some(n.inputs[1]).shape)[2:] == (1, 1)
    ]
    assert {some(n.outputs[0].shape)[3] for n in layers} == {columns}
    data = {"x": numbers(1, 5, 6, 8)}
    for before, after in zip(run_plain(model, data), run_plain(canonical, data), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("machine", ["opu-tiny", "opu-light"])
@pytest.mark.parametrize("name", SHIFTS)
def test_a_crop_and_a_pad_are_a_pass(name: str, machine: str, onnx_text):
    nodes, passes = SHIFTS[name]
    hw, model = load_hw(machine), network(onnx_text, f"{LAYER} {nodes}")
    compiled = compile_model(model, hw)
    assert not compiled.partition.host
    moves = [
        g for g in compiled.bundle.groups if {o.op for o in g.ops} <= {"pad", "transposed_conv"}
    ]
    assert len(moves) == passes
    inputs = noise(compiled.bundle)
    assert check(compiled.bundle, inputs, run(compiled.bundle, hw, inputs, capture=True)).passed
