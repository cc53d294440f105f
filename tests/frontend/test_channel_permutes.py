"""Ways to write that channels are chosen, in text; the `canonical` fixture compares results."""

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
PAIRS = "[r] a = Reshape (x, s1) [t] b = Transpose <perm = [1, 0, 2]> (a) [q] d = Reshape (b, s2) "
"""[2, 1, 4, 5, 6]: channels with even numbers, then those with odd ones."""
CASES = {
    "two Gathers": PAIRS + "[g] e = Gather (d, zero) [h] f = Gather (d, one)",
    "two Slices": PAIRS
    + "[g] e5 = Slice (d, n0, n1, n0) [s] e = Squeeze (e5, n0) "
    + "[h] f5 = Slice (d, n1, n2, n0) [v] f = Squeeze (f5, n0)",
    "a Split": PAIRS
    + "[g] e5, f5 = Split <axis = 0> (d, halves) [s] e = Squeeze (e5, n0) [v] f = Squeeze (f5, n0)",
}
BOTH = " [z] u = Relu (f) [p] y = Sub (e, u)"
EVEN, ODD = [0, 2, 4, 6], [1, 3, 5, 7]
STAY = {
    "rows and columns change places": (
        "[t] b = Transpose <perm = [0, 2, 1, 3]> (x) [q] y = Reshape (b, s4)"
    ),
    "a channel is taken from several": (
        "[r] a = Reshape (x, s5) [t] b = Transpose <perm = [1, 0]> (a) [q] y = Reshape (b, s4)"
    ),
}
ARRAYS = {
    "s1": np.array([4, 2, 30]),
    "s2": np.array([2, -1, 4, 5, 6]),
    "s4": np.array([1, 8, 5, 6]),
    "s5": np.array([16, 15]),
    "zero": np.array(0),
    "one": np.array(1),
    "n0": np.array([0]),
    "n1": np.array([1]),
    "n2": np.array([2]),
    "halves": np.array([1, 1]),
}


def graph(text: Text, nodes: str) -> onnx.ModelProto:
    used = {k: v for k, v in ARRAYS.items() if f", {k}" in nodes}
    return text(f"g (float[1, 8, 5, 6] x) => (float[A, B, C, D] y) {{ {nodes} }}", **used)


@pytest.mark.parametrize("name", CASES)
def test_they_are_one_gather_of_channels(
    name: str, onnx_text: Text, canonical: Callable[[onnx.ModelProto], ir.Model]
):
    model = canonical(graph(onnx_text, CASES[name] + BOTH))
    chosen = [n.inputs[1] for n in model.graph if n.op_type == "Gather"]
    orders = [v.const_value.numpy().tolist() for v in chosen if v is not None and v.const_value]
    assert orders == [EVEN, ODD]
    assert [n.op_type for n in model.graph] == ["Gather", "Gather", "Relu", "Sub"]


@pytest.mark.parametrize("name", STAY)
def test_what_moves_single_values_stays(
    name: str, onnx_text: Text, canonical: Callable[[onnx.ModelProto], ir.Model]
):
    model = canonical(graph(onnx_text, STAY[name]))
    assert "Gather" not in {n.op_type for n in model.graph}


def test_the_machine_runs_them(onnx_text: Text):
    nodes = CASES["two Gathers"] + " [z] u = Relu (f) [p] y = Concat <axis = 1> (e, u)"
    hw = load_hw("opu-light")
    compiled = compile_model(graph(onnx_text, nodes), hw)
    assert not compiled.partition.host
    inputs = noise(compiled.bundle)
    assert check(compiled.bundle, inputs, run(compiled.bundle, hw, inputs, capture=True)).passed
