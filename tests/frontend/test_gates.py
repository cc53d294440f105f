"""Gates of attention in CNNs: whole on the machine, and the same numbers (`canonical` compares)."""

import numpy as np
import onnx
import pytest

import opu_fuse
from opu_fuse.bundle.program import HostSegment
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run

LAST = "[t] t = Transpose <perm = [0, 2, 3, 1]> (a)"
ALONG_CHANNELS = "[d] d = Conv <pads = [1, 1]> (l, v)"
CONV = "[c] a = Conv <pads = [1, 1, 1, 1]> (x, w)"


def weights(rng: np.random.Generator, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {n: rng.normal(scale=0.3, size=s).astype(np.float32) for n, s in shapes.items()}


def graph(nodes: str, result: str = "A, B, C, D") -> str:
    return f"g (float[1, 3, 6, 5] x) => (float[{result}] y) {{ {nodes} }}"


@pytest.mark.parametrize("operator", ["Mul", "Add", "Sub"])
@pytest.mark.parametrize(
    ("gate", "filters", "repeated"),
    [
        ("Identity (a)", 1, ["Gather"]),
        ("ReduceMean <axes = [3]> (a)", 8, ["Resize"]),
        ("ReduceMean <axes = [2]> (a)", 8, ["Resize"]),
        ("ReduceMean <axes = [3]> (a)", 1, ["Gather", "Resize"]),
        ("GlobalAveragePool (a)", 1, ["Gather"]),
        ("GlobalAveragePool (a)", 8, []),
    ],
    ids=["channel", "rows", "columns", "rows of a channel", "number", "per channel"],
)
def test_an_operand_that_broadcasts_is_repeated_unless_it_is_a_value_per_channel(
    operator, gate, filters, repeated, onnx_text, canonical, rng
):
    nodes = f"{CONV} [m] m = {gate} [g] g = Conv (m, v) [y] y = {operator} (a, g)"
    constants = weights(rng, w=(8, 3, 3, 3), v=(filters, 8, 1, 1))
    model = canonical(onnx_text(graph(nodes), **constants), rewriting=True)
    kinds = [node.op_type for node in model.graph]
    assert [kind for kind in kinds if kind in {"Gather", "Resize", "Expand"}] == repeated


@pytest.mark.parametrize(
    "nodes",
    [
        "[m] m = Slice (x, zero, one, one) [y] y = Mul (x, m)",  # the host cuts an input
        f"{CONV} [y] y = Mul (a, k)",
        f"{CONV} [g] g = Conv (a, v) [t] t = Tile (g, twice) [y] y = Mul (a, t)",  # two samples
    ],
    ids=["an input", "a constant", "a batch"],
)
def test_other_operands_remain(nodes, onnx_text, canonical, rng):
    constants = weights(rng, w=(8, 3, 3, 3), v=(1, 8, 1, 1), k=(1, 1, 6, 5))
    constants |= {"zero": np.array([0]), "one": np.array([1]), "twice": np.array([2, 1, 1, 1])}
    used = {name: data for name, data in constants.items() if f"{name}" in nodes}
    kinds = [n.op_type for n in canonical(onnx_text(graph(nodes), **used), rewriting=True).graph]
    assert not {"Gather", "Resize", "Expand"} & {*kinds}


@pytest.mark.parametrize(("channels", "pools"), [(2, 1), (4, 1), (5, 2), (16, 2), (33, 3)])
@pytest.mark.parametrize("kept", [0, 1])
def test_the_largest_channel_is_that_of_pools(channels, pools, kept, onnx_text, canonical, rng):
    nodes = f"{CONV} [m] y = ReduceMax <axes = [1], keepdims = {kept}> (a)"
    proto = onnx_text(
        graph(nodes, "A, B, C, D" if kept else "A, B, C"), **weights(rng, w=(channels, 3, 3, 3))
    )
    kinds = [node.op_type for node in canonical(proto, rewriting=True).graph]
    assert kinds == ["Conv"] + ["ConvTranspose", "MaxPool"] * pools + ["Reshape"] * (not kept)


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        (
            f"{CONV} {LAST} [m] y = ReduceMax <axes = [3], keepdims = 0> (t)",
            False,
        ),
        ("[m] y = ReduceMax <axes = [1], keepdims = 0> (x)", True),
        (f"{CONV} [m] y = ReduceMax <axes = [1, 2], keepdims = 0> (a)", True),
    ],
    ids=["channels last", "of an input", "of rows as well"],
)
def test_that_of_what_the_array_computes(nodes, left, onnx_text, canonical, rng):
    rank = "A, B" if "1, 2" in nodes else "A, B, C"
    used = weights(rng, w=(8, 3, 3, 3)) if "w)" in nodes else {}
    kinds = [
        n.op_type for n in canonical(onnx_text(graph(nodes, rank), **used), rewriting=True).graph
    ]
    assert ("ReduceMax" in kinds) == left


ALONG = {
    "one": ("[d] d = Conv <pads = [1, 1]> (l, v) [s] s = Sigmoid (d)", {"v": (1, 1, 3)}, 8),
    "bias, dilation, uneven pads": (
        "[d] d = Conv <pads = [3, 1], dilations = [2]> (l, v, b) [s] s = Relu (d)",
        {"v": (1, 1, 3), "b": (1,)},
        8,
    ),
    "stride": ("[s] s = Conv <pads = [1, 1], strides = [2]> (l, v)", {"v": (1, 1, 4)}, 4),
    "two": (
        "[d] d = Conv (l, u, b) [r] r = Relu (d) [s] s = Conv <pads = [2, 2]> (r, v)",
        {"u": (5, 1, 1), "b": (5,), "v": (1, 5, 5)},
        8,
    ),
}
MEANS = f"{CONV} [p] p = GlobalAveragePool (a) [l] l = Reshape (p, line)"


@pytest.mark.parametrize("name", ALONG)
def test_a_convolution_along_channels_is_a_dense_layer(name, onnx_text, canonical, rng):
    nodes, shapes, count = ALONG[name]
    sizes = {"line": np.array([1, 1, 8]), "back": np.array([1, count, 1, 1])}
    text = graph(f"{MEANS} {nodes} [o] y = Reshape (s, back)")
    proto = onnx_text(text, **weights(rng, w=(8, 3, 3, 3), **shapes), **sizes)
    kinds = [node.op_type for node in canonical(proto, rewriting=True).graph]
    assert "Reshape" not in kinds
    assert kinds.count("Conv") == 1 + nodes.count("Conv")


@pytest.mark.parametrize(
    ("nodes", "result"),
    [
        ("[d] y = Conv <pads = [1, 1]> (l, v)", "A, B, C"),
        (
            f"{ALONG_CHANNELS} [s] s = Softmax <axis = 2> (d) [o] y = Reshape (s, back)",
            "A, B, C, D",
        ),
        (
            f"{ALONG_CHANNELS} [t] t = Add (d, l) [o] y = Reshape (t, back)",
            "A, B, C, D",
        ),
    ],
    ids=["pixels remain", "another operator between", "the line is read twice"],
)
def test_unless_pixels_remain(nodes, result, onnx_text, canonical, rng):
    sizes = {"line": np.array([1, 1, 8]), "back": np.array([1, 8, 1, 1])}
    sizes = {name: size for name, size in sizes.items() if name in f"{MEANS} {nodes}"}
    constants = weights(rng, w=(8, 3, 3, 3), v=(1, 1, 3))
    proto = onnx_text(graph(f"{MEANS} {nodes}", result), **constants, **sizes)
    assert "Reshape" in [node.op_type for node in canonical(proto, rewriting=True).graph]


NETWORK = """g (float[1, 3, 12, 10] x) => (float[1, 16, 12, 10] y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, w) b = Relu (a)
    p = GlobalAveragePool (b) l = Reshape (p, line) d = Conv <pads = [1, 1]> (l, along)
    e = Sigmoid (d) f = Reshape (e, back) h = Mul (b, f)
    largest = ReduceMax <axes = [1]> (h) mean = ReduceMean <axes = [1]> (h)
    both = Concat <axis = 1> (largest, mean) s = Conv <pads = [3, 3, 3, 3]> (both, wide)
    g = Sigmoid (s) i = Mul (h, g)
    rows = ReduceMean <axes = [3]> (i) r = Conv (rows, one) q = Sigmoid (r) j = Mul (i, q)
    y = Conv <pads = [1, 1, 1, 1]> (j, v)
}"""


@pytest.mark.parametrize("machine", ["opu-light", "opu-1024t", "opu-1024a"])
def test_efficient_channel_spatial_and_coordinate_attention_run_whole(machine, onnx_text, rng):
    constants = weights(
        rng,
        w=(16, 3, 3, 3),
        along=(1, 1, 3),
        wide=(1, 2, 7, 7),
        one=(16, 16, 1, 1),
        v=(16, 16, 3, 3),
    )
    sizes = {"line": np.array([1, 1, 16]), "back": np.array([1, 16, 1, 1])}
    model: onnx.ModelProto = onnx_text(NETWORK, **constants, **sizes)
    hw = opu_fuse.load_hw(machine)
    bundle = compile_model(model, hw).bundle
    assert not any(isinstance(segment, HostSegment) for segment in bundle.segments)
    inputs = {"x": rng.standard_normal((1, 3, 12, 10), np.float32)}
    result = run(bundle, hw, inputs, capture=True)
    assert check(bundle, inputs, result).passed
