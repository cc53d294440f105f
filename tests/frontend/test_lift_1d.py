"""Networks of lines, [n, c, l], in text: they become networks of images with one row.

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


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(11).standard_normal(shape).astype(np.float32)


WEIGHTS = {
    "w": normal(8, 4, 3),
    "v": normal(3, 8, 1),
    "s": normal(8),
    "e": np.abs(normal(8)) + 0.5,
    "o": normal(8, 1),
    "u": normal(8, 5, 3),
    "pads": np.array([0, 0, 1, 0, 0, 2]),
    "halves": np.array([4, 4]),
    "p0": np.array([0]),
    "p9": np.array([9]),
    "p2": np.array([2]),
    "six": np.float32(6.0),
}
CONV = "[c] a = Conv <pads = [1, 1]> (x, w) "
LAST = " [l] y = Conv (z, v)"
"""All cases but those that end in something else: what stands between the two."""
CASES = {
    "batch norm": ("z = BatchNormalization (a, s, s, s, e)" + LAST, "Conv Conv"),
    "an offset for each channel, and a function": (
        "[o] b = Add (a, o) [r] d = Clip (b, , six) [f] z = HardSwish (d)" + LAST,
        "Conv Clip HardSwish Conv",
    ),
    "pools": (
        "[m] b = MaxPool <kernel_shape = [3], strides = [2], pads = [1, 0]> (a) "
        "[p] z = AveragePool <kernel_shape = [2], ceil_mode = 1> (b)" + LAST,
        "Conv MaxPool AveragePool Conv",
    ),
    "a residual sum": ("[r] b = Relu (a) [p] z = Add (b, a)" + LAST, "Conv Relu Add Conv"),
    "a gate": (
        "[g] b = GlobalAveragePool (a) [h] d = Sigmoid (b) [p] z = Mul (a, d)" + LAST,
        "Conv GlobalAveragePool Sigmoid Mul Conv",
    ),
    "parts joined": (
        "[q] b, d = Split <axis = 1> (a, halves) [r] e2 = Relu (b) [k] z = Concat <axis = -2> "
        "(d, e2)" + LAST,
        "Conv Split Relu Concat Conv",
    ),
    "zeros at the ends": ("[p] z = Pad (a, pads) [l] y = Conv (z, u3)", "Conv Conv"),
    "an end cut off, without axes": ("[t] z = Slice (a, none, all)" + LAST, "Conv Slice Conv"),
    "every other value": ("[t] z = Slice (a, p0, p99, p2, p2)" + LAST, "Conv MaxPool Conv"),
    "a transposed convolution": (
        (
            "[t] z = ConvTranspose <strides = [2], output_padding = [1], pads = [1, 1]> (a, u) "
            "[r] y = Relu (z)"
        ),
        "Conv ConvTranspose Relu Reshape",
    ),
    "a mean": ("[m] y = ReduceMean <axes = [-1], keepdims = 0> (a)", "Conv GlobalAveragePool"),
    "a maximum": ("[m] y = ReduceMax <axes = [-1], keepdims = 0> (a)", "Conv MaxPool"),
}
STAY = {
    "MaxPool": "[m] b, y = MaxPool <kernel_shape = [2]> (a)",  # places of maxima are asked for
    "Add": "[q] b = Reshape (x, flat) [l] y = Add (a, b)",  # an operand of another form
}


def graph(text: Text, nodes: str) -> onnx.ModelProto:
    more = {
        "none": np.array([0, 0, 1]),
        "all": np.array([1, 8, 9]),
        "p99": np.array([99]),
        "u3": normal(3, 8, 3),
        "w4": normal(4, 4, 3),
        "flat": np.array([4, 20]),
    }
    known = WEIGHTS | more
    used = {
        k: v for k, v in known.items() if any(f"{a}{k}{b}" in nodes for a in " (" for b in ",)")
    }
    ints = "int64" if "b, y = MaxPool" in nodes else "float"
    return text(f"g (float[1, 4, 20] x) => ({ints}[A, B, C] y) {{ {nodes} }}", **used)


@pytest.mark.parametrize("name", CASES)
def test_they_are_images_of_one_row(name: str, onnx_text: Text, canonical: Canonical):
    nodes, left = CASES[name]
    model = canonical(graph(onnx_text, CONV + nodes))
    kinds = [node.op_type for node in model.graph]
    assert kinds[0] == "Reshape"
    assert " ".join(kinds[1:]).removesuffix(" Reshape") == left.removesuffix(" Reshape")


@pytest.mark.parametrize("name", STAY)
def test_what_stays_one_of_lines(name: str, onnx_text: Text, canonical: Canonical):
    nodes = CONV.replace("x, w", "x, w4") + STAY[name]
    *_, last = canonical(graph(onnx_text, nodes)).graph
    assert (last.op_type, len(last.outputs[0].shape or ())) == (name, 3)


def test_nothing_is_left_to_the_host_and_the_bits_are_right(onnx_text: Text):
    nodes = CONV + (
        "[n] b = BatchNormalization (a, s, s, s, e) [f] d = HardSwish (b) "
        "[m] z = MaxPool <kernel_shape = [2], strides = [2]> (d) [l] y = Conv (z, v)"
    )
    hw = load_hw("opu-light")
    compiled = compile_model(graph(onnx_text, nodes), hw)
    assert compiled.partition.host == ()
    inputs = noise(compiled.bundle)
    assert check(compiled.bundle, inputs, run(compiled.bundle, hw, inputs, capture=True)).passed
