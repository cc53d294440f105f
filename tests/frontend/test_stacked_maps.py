"""Split attention: stacks of branches are maps of their channels; `canonical` compares results."""

import numpy as np
import pytest

import opu_fuse
from opu_fuse.bundle.program import HostSegment
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run

LAYERS = "[c] a = Conv (x, w) [r] r = Relu (a) [s] s = Reshape (r, stack)"
GATES = "[p] p = GlobalAveragePool (r) [f] f = Conv (p, v{bias})"


def constants(rng: np.random.Generator, branches: int, channels: int) -> dict[str, np.ndarray]:
    whole = branches * channels
    shapes = {"w": (whole, 3, 1, 1), "v": (whole, whole, 1, 1), "b": (whole,)}
    filters = {n: rng.normal(scale=0.3, size=s).astype(np.float32) for n, s in shapes.items()}
    stacks = {"stack": [1, branches, channels, 6, 5], "gates": [1, branches, channels, 1, 1]}
    stacks |= {"line": [1, branches, 1, channels], "one": [1]}
    return filters | {name: np.array(shape) for name, shape in stacks.items()}


def network(nodes: str, given: dict[str, np.ndarray], result: str = "A, B, C, D"):
    text = f"g (float[1, 3, 6, 5] x) => (float[{result}] y) {{ {nodes} }}"
    words = {word.strip("(),<>") for word in text.split()}
    return text, {name: data for name, data in given.items() if name in words}


@pytest.mark.parametrize(("branches", "channels"), [(2, 4), (3, 5), (2, 64), (3, 64)])
@pytest.mark.parametrize("kept", [0, 1])
def test_a_sum_of_branches_is_one_of_parts(branches, channels, kept, onnx_text, canonical, rng):
    """Whole words are added; others are summed up by the array."""
    nodes = f"{LAYERS} [y] y = ReduceSum <keepdims = {kept}> (s, one)"
    result = "A, B, C, D, E" if kept else "A, B, C, D"
    text, given = network(nodes, constants(rng, branches, channels), result)
    kinds = [n.op_type for n in canonical(onnx_text(text, **given), rewriting=True).graph]
    summed = ["Add"] * (branches - 1) if channels == 64 else ["Conv"]
    parts = {"Split", "Slice"}
    assert [k for k in kinds if k not in parts] == ["Conv", "Relu", *summed] + ["Reshape"] * kept


@pytest.mark.parametrize("bias", ["", ", b"])
@pytest.mark.parametrize(
    "softmax",
    [
        "[g] g = Reshape (f, gates) [t] t = Softmax <axis = 1> (g)",
        "[g] g = Reshape (f, line) [u] u = Softmax <axis = 1> (g) [t] t = Reshape (u, gates)",
    ],
    ids=["SKNet", "ResNeSt"],
)
def test_two_branches_are_weighted_by_a_function_of_their_difference(
    softmax, bias, onnx_text, canonical, rng
):
    nodes = f"{LAYERS} {GATES.format(bias=bias)} {softmax} [m] m = Mul (s, t) "
    nodes += "[y] y = ReduceSum <keepdims = 0> (m, one)"
    text, given = network(nodes, constants(rng, 2, 4))
    kinds = [n.op_type for n in canonical(onnx_text(text, **given), rewriting=True).graph]
    means = ["AveragePool", "GlobalAveragePool"]  # of 30 pixels
    assert kinds == ["Conv", "Relu", *means, "Conv", "Sigmoid", "Mul", "Conv"]


def test_branches_are_joined_by_channels(onnx_text, canonical, rng):
    nodes = f"{LAYERS} [d] d = Sigmoid (a) [e] e = Reshape (d, stack) "
    nodes += "[j] j = Concat <axis = 1> (s, e) [y] y = ReduceSum <keepdims = 0> (j, one)"
    text, given = network(nodes, constants(rng, 1, 4))
    kinds = [n.op_type for n in canonical(onnx_text(text, **given), rewriting=True).graph]
    assert kinds == ["Conv", "Relu", "Sigmoid", "Concat", "Conv"]


SOFTMAX = "[g] g = Reshape (f, gates) [t] t = Softmax <axis = 1> (g)"
STAY = {
    "three branches": ("[y] y = Softmax <axis = 1> (s)", 3),
    "the logits are read twice": (f"{GATES.format(bias='')} {SOFTMAX} [y] y = Mul (t, g)", 2),
    "one weight for all channels": ("[n] n = ReduceMax <axes = [2]> (s) [y] y = Mul (s, n)", 2),
}


@pytest.mark.parametrize("name", STAY)
def test_other_stacks_remain(name, onnx_text, canonical, rng):
    nodes, branches = STAY[name]
    text, given = network(f"{LAYERS} {nodes}", constants(rng, branches, 4), "A, B, C, D, E")
    model = canonical(onnx_text(text, **given), rewriting=True)
    assert any(len(v.shape or ()) == 5 for n in model.graph for v in n.inputs if v is not None)


@pytest.mark.parametrize("channels", [16, 64])
@pytest.mark.parametrize("machine", ["opu-light", "opu-1024a"])
def test_split_attention_runs_whole(machine, channels, onnx_text, rng):
    nodes = f"{LAYERS} {GATES.format(bias=', b')} {SOFTMAX} [m] m = Mul (s, t) "
    nodes += "[h] h = ReduceSum <keepdims = 0> (m, one) [y] y = Conv (h, k)"
    given = constants(rng, 2, channels)
    given["k"] = rng.normal(scale=0.3, size=(8, channels, 1, 1)).astype(np.float32)
    text, given = network(nodes, given)
    hw = opu_fuse.load_hw(machine)
    bundle = compile_model(onnx_text(text, **given), hw).bundle
    assert not any(isinstance(segment, HostSegment) for segment in bundle.segments)
    inputs = {"x": rng.standard_normal((1, 3, 6, 5), np.float32)}
    assert check(bundle, inputs, run(bundle, hw, inputs, capture=True)).passed
