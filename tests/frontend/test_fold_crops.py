"""Rows and columns cut off a map's ends; the `canonical` fixture compares results."""

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
from tests.networks.quantised_elsewhere import quantised_elsewhere

Text = Callable[..., onnx.ModelProto]
Canonical = Callable[..., ir.Model]
CHOMP = "Conv <pads = [0, 4, 0, 4], dilations = [1, 2], kernel_shape = [1, 3]> (x, w13)"


def written(text: Text, nodes: str, **cut: list[int] | np.ndarray) -> onnx.ModelProto:
    """A map of 4 channels, 9 rows and 12 columns; w13, …: weights by their rows and columns."""
    rng = np.random.default_rng(0)
    arrays = {name: np.array(data) for name, data in cut.items()}
    for name, shape in {"w13": (4, 4, 1, 3), "w33": (4, 4, 3, 3), "t": (4, 4, 2, 2)}.items():
        if f", {name})" in nodes:
            arrays[name] = rng.normal(0, 0.3, shape).astype(np.float32)
    if "gate" in nodes:
        arrays["gate"] = rng.normal(size=(4, 1, 1)).astype(np.float32)
    return text(f"g (float[1, 4, 9, 12] x) => (float[A, B, C, D] y) {{ {nodes} }}", **arrays)


def types(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def pads(model: ir.Model) -> list[tuple[int, ...]]:
    return [
        tuple(n.attributes.get_ints("pads") or ()) for n in model.graph if "pads" in n.attributes
    ]


LAST_FOUR = {"starts": [0], "ends": [-4], "axes": [3]}
FRAME = {"starts": [1, 2], "ends": [-2, -1], "axes": [2, 3]}
TAKEN = {
    "chomp": (f"c = {CHOMP} y = Slice (c, starts, ends, axes)", LAST_FOUR, [(0, 4, 0, 0)]),
    "behind functions": (
        (
            f"c = {CHOMP} r = Relu (c) s = Sigmoid (r) m = Mul (s, gate) p = Mul (m, r) "
            "y = Slice (p, starts, ends, axes)"
        ),
        LAST_FOUR,
        [(0, 4, 0, 0)],
    ),
    "a sum of two": (
        (
            f"c = {CHOMP} d = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x) "
            "e = Relu (d) f = Conv <pads = [1, 1, 1, 2]> (e, w33) g = Conv <pads = [1, 1, 1, 1]> "
            "(c, w33) h = Slice (g, zero, minus, rows) y = Relu (h)"
        ),
        {"zero": [0], "minus": [-1], "rows": [2]},
        None,
    ),
    "stride": (
        (
            "c = Conv <pads = [3, 3, 3, 3], strides = [2, 2]> (x, w33) "
            "y = Slice (c, starts, ends, axes)"
        ),
        {"starts": [1, 1], "ends": [-1, -1], "axes": [2, 3]},
        [(1, 1, 1, 0)],
    ),
    "stride with a rest": (
        (
            "c = Conv <pads = [0, 0, 1, 4], strides = [3, 3]> (x, w33) "
            "y = Slice (c, starts, ends, axes)"
        ),
        {"starts": [0], "ends": [-1], "axes": [3]},
        [(0, 0, 0, 0)],
    ),
    "maxima": (
        (
            "c = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x) "
            "y = Slice (c, starts, ends, axes)"
        ),
        {"starts": [1], "ends": [9], "axes": [2]},
        [(0, 1, 1, 1)],
    ),
    "counted means": (
        (
            "c = AveragePool <kernel_shape = [3, 3], pads = [2, 1, 1, 1], count_include_pad = 1> "
            "(x) "
            "y = Slice (c, starts, ends, axes)"
        ),
        {"starts": [1], "ends": [9], "axes": [2]},
        [(1, 1, 0, 1)],
    ),
    "means": (
        (
            "c = AveragePool <kernel_shape = [3, 3], pads = [2, 1, 1, 1]> (x) "
            "y = Slice (c, starts, ends, axes)"
        ),
        {"starts": [1], "ends": [-1], "axes": [2]},
        [(1, 1, 0, 1)],
    ),
    "transposed": (
        (
            "c = ConvTranspose <strides = [2, 2], output_padding = [1, 0]> (x, t) "
            "y = Slice (c, starts, ends, axes)"
        ),
        FRAME,
        [(1, 2, 2, 1)],
    ),
    "through two": (
        (
            "c = Conv <pads = [2, 2, 2, 2]> (x, w33) r = Relu (c) d = Conv (r, w33) "
            "y = Slice (d, starts, ends, axes)"
        ),
        FRAME,
        [(1, 0, 0, 1), (0, 0, 0, 0)],
    ),
    "joined": (
        (
            "c = Conv <pads = [1, 1, 1, 1]> (x, w33) d = Conv <pads = [1, 2, 1, 0]> (x, w33) "
            "j = Concat <axis = 1> (c, d) y = Slice (j, starts, ends, axes)"
        ),
        {"starts": [0], "ends": [-1], "axes": [2]},
        [(1, 1, 0, 1), (1, 2, 0, 0)],
    ),
    "pads below nothing": (
        "c = Conv <pads = [1, 1, 1, 1]> (x, w33) y = Pad (c, amounts)",
        {"amounts": [0, 0, -1, 0, 0, 0, 0, -1]},
        [(0, 1, 1, 0)],
    ),
    "a pad that cuts and pads": (
        "c = Conv <pads = [1, 1, 1, 1]> (x, w33) y = Pad (c, amounts)",
        {"amounts": [0, 0, -1, 2, 0, 0, 0, 0]},
        [(0, 1, 1, 1)],
    ),
}


@pytest.mark.parametrize(("nodes", "cut", "left"), TAKEN.values(), ids=TAKEN)
def test_it_is_taken_by_what_makes_the_map(nodes, cut, left, onnx_text: Text, canonical: Canonical):
    model = canonical(written(onnx_text, nodes, **cut))
    assert "Slice" not in types(model)
    if left is not None:
        assert pads(model) == left


KEPT = {
    "somebody reads the whole": (
        (
            f"c = {CHOMP} s = Slice (c, starts, ends, axes) d = Slice (c, four, end, axes) "
            "y = Add (s, d)"
        ),
        {**LAST_FOUR, "four": [4], "end": [99]},
    ),
    "windows begin inside the input": (
        "c = Conv (x, w33) y = Slice (c, starts, ends, axes)",
        FRAME,
    ),
    "a mean over the whole": (
        f"c = {CHOMP} g = GlobalAveragePool (c) m = Mul (c, g) y = Slice (m, starts, ends, axes)",
        LAST_FOUR,
    ),
    "a window of the whole and the whole": (
        (
            f"c = {CHOMP} r = Relu (c) d = Conv <pads = [1, 1, 1, 1]> (r, w33) s = Add (d, r) "
            "y = Slice (s, starts, ends, axes)"
        ),
        {"starts": [0], "ends": [-1], "axes": [3]},
    ),
    "the whole and a window of it": (
        (
            f"c = {CHOMP} r = Relu (c) d = Conv <pads = [1, 1, 1, 1]> (r, w33) s = Add (r, d) "
            "y = Slice (s, starts, ends, axes)"
        ),
        {"starts": [0], "ends": [-1], "axes": [3]},
    ),
    "an input": ("s = Slice (x, starts, ends, axes) y = Relu (s)", FRAME),
}


@pytest.mark.parametrize(("nodes", "cut"), KEPT.values(), ids=KEPT)
def test_it_stays_where_the_rest_is_needed(nodes, cut, onnx_text: Text, canonical: Canonical):
    assert "Slice" in types(canonical(written(onnx_text, nodes, **cut)))


@pytest.mark.parametrize("machine", ["opu-light", "opu-1024t"])
@pytest.mark.parametrize(("nodes", "cut"), KEPT.values(), ids=KEPT)
def test_then_the_array_makes_a_pass_of_it(nodes, cut, machine, onnx_text: Text):
    hw = load_hw(machine)
    compiled = compile_model(written(onnx_text, nodes, **cut), hw)
    assert not compiled.partition.host
    inputs = noise(compiled.bundle)
    assert check(compiled.bundle, inputs, run(compiled.bundle, hw, inputs, capture=True)).passed


@pytest.mark.parametrize("behind", ["Relu (y)", "MaxPool <kernel_shape = [2, 2]> (y)"])
@pytest.mark.parametrize("case", ["chomp", "transposed", "through two"])
def test_models_that_came_quantised_are_cut_alike(case, behind, onnx_text: Text):
    """That quantiser gives what is left a scale of its own."""
    nodes, cut, _ = TAKEN[case]
    nodes = f"{nodes} b = {behind} z = Conv (b, k11)"
    rng = np.random.default_rng(0)
    weights = {"k11": rng.normal(size=(3, 4, 1, 1)).astype(np.float32)}
    proto = written(onnx_text, nodes, **cut, **weights)
    proto.graph.output[0].name = "z"
    images = {"x": rng.normal(size=(1, 4, 9, 12)).astype(np.float32)}
    hw = load_hw("opu-light")
    compiled = compile_model(quantised_elsewhere(ir.from_proto(proto), images), hw)
    assert not compiled.partition.host
    assert check(compiled.bundle, images, run(compiled.bundle, hw, images, capture=True)).passed


@pytest.mark.parametrize("seed", range(40))
def test_no_crop_changes_a_result(seed: int, onnx_text: Text, canonical: Canonical):
    """Layers one behind the other, of any size and padding, and what is cut from the last."""
    rng = np.random.default_rng(seed)
    nodes, size, last = [], [9, 12], "x"
    for i in range(int(rng.integers(1, 4))):
        kernel, stride = rng.integers(1, 4, 2), rng.integers(1, 3, 2)
        side = rng.integers(0, kernel.repeat(2).reshape(2, 2).T.reshape(-1))
        op = rng.choice(["Conv", "MaxPool", "AveragePool", "ConvTranspose"])
        form = f"kernel_shape = [{kernel[0]}, {kernel[1]}], strides = [{stride[0]}, {stride[1]}]"
        form += f", pads = {side.tolist()}"
        counted = rng.integers(0, 2)
        if op == "AveragePool":
            form += f", count_include_pad = {counted}"
        reach = np.array(size) + side[:2] + side[2:] - kernel
        grown = (np.array(size) - 1) * stride + kernel - side[:2] - side[2:]
        size = (grown if op == "ConvTranspose" else reach // stride + 1).tolist()
        if min(size) < 1:
            return
        weights = f", k{kernel[0]}{kernel[1]}" if op.startswith("Conv") else ""
        nodes += [f"m{i} = {op} <{form}> ({last}{weights})", f"r{i} = Relu (m{i})"]
        last = f"r{i}"
    starts = [int(rng.integers(0, n)) for n in size]
    ends = [int(rng.integers(s + 1, n + 1)) for s, n in zip(starts, size, strict=True)]
    nodes.append(f"y = Slice ({last}, starts, ends, axes)")
    arrays = {"starts": np.array(starts), "ends": np.array(ends), "axes": np.array([2, 3])}
    arrays |= {
        f"k{h}{w}": rng.normal(0, 0.3, (4, 4, h, w)).astype(np.float32)
        for h in range(1, 4)
        for w in range(1, 4)
        if f", k{h}{w})" in " ".join(nodes)
    }
    text = f"g (float[1, 4, 9, 12] x) => (float[A, B, C, D] y) {{ {' '.join(nodes)} }}"
    canonical(onnx_text(text, **arrays))


def test_a_last_step_of_a_line_costs_no_host(onnx_text: Text):
    """A temporal convolutional network: padded at both ends, chomped, and its last step read."""
    rng = np.random.default_rng(0)
    nodes = """
        a = Conv <pads = [2, 2], kernel_shape = [3]> (x, w) b = Slice (a, zero, less, axis)
        c = Relu (b) d = Add (c, x) e = Conv <pads = [4, 4], dilations = [2]> (d, v)
        f = Slice (e, zero, less2, axis) g = Relu (f) h = Add (g, d)
        i = Slice (h, last, end, axis) j = Flatten (i) y = Gemm (j, u)"""
    arrays = {
        "zero": np.array([0]), "less": np.array([-2]), "less2": np.array([-4]),
        "axis": np.array([2]), "last": np.array([-1]), "end": np.array([2**62]),
        "w": rng.normal(0, 0.3, (6, 6, 3)).astype(np.float32),
        "v": rng.normal(0, 0.3, (6, 6, 3)).astype(np.float32),
        "u": rng.normal(0, 0.3, (6, 3)).astype(np.float32),
    }  # fmt: skip
    model = onnx_text(f"g (float[1, 6, 40] x) => (float[1, 3] y) {{ {nodes} }}", **arrays)
    hw = load_hw("opu-light")
    compiled = compile_model(model, hw)
    assert not compiled.partition.host
    inputs = noise(compiled.bundle)
    assert check(compiled.bundle, inputs, run(compiled.bundle, hw, inputs, capture=True)).passed
