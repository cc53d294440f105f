"""Tokens (n, c), (1, n, c) and (b, n, c) become pixels of one row, whatever is between layers.

The `canonical` fixture compares the outputs of both graphs.
"""

from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnxruntime import InferenceSession

import opu_fuse
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model, partition_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise

Text = Callable[..., onnx.ModelProto]
Canonical = Callable[[onnx.ModelProto], ir.Model]

VIEWS = {"Reshape", "Transpose"}
SHAPES = [(5, 6), (1, 7, 6), (3, 5, 6), (2, 3, 5, 6), (1, 1, 4, 6), (2, 1, 6)]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def constants(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {
        "up": normal(6, 10),
        "down": normal(10, 6),
        "rows": normal(6, 10),
        "bias": normal(10),
        "row": normal(1, 10),
        "scale": normal(10),
        "factor": np.array(0.25, np.float32),
        "position": normal(*shape[-2:-1], 10),
        "widths": np.array([4, 6], np.int64),
        "four": np.array([4], np.int64),
        "ten": np.array([10], np.int64),
        "last": np.array([-1], np.int64),
        "narrow": normal(4, 6),
    }


LAYER = "[m] p = MatMul (x, up) [b] q = Add (bias, p)"
NORM = "<axis = -1, epsilon = 1e-6>"
CASES = {
    "two layers": (f"{LAYER} [r] r = Relu (q) [k] y = MatMul (r, down)", "Conv Relu Conv"),
    "a residual sum": (
        f"{LAYER} [r] r = Sigmoid (q) [k] s = MatMul (r, down) [a] y = Add (x, s)",
        "Conv Sigmoid Conv Add",
    ),
    "products of rows": (
        f"{LAYER} [s] r = Mul (q, scale) [o] s = Add (row, r) [k] y = MatMul (s, down)",
        "Conv Conv",
    ),
    "a factor": (f"{LAYER} [s] r = Mul (factor, q) [k] y = MatMul (r, down)", "Conv Conv"),
    "positions": (
        f"{LAYER} [s] r = Add (position, q) [k] y = MatMul (r, down)",
        "Conv Add Conv",
    ),
    "a norm": (
        f"{LAYER} [n] r = LayerNormalization {NORM} (q, scale, bias) [k] y = MatMul (r, down)",
        "Conv LayerNormalization Conv",
    ),
    "halves": (
        (
            f"{LAYER} [s] h, g = Split <axis = -1> (q, widths) [k] t = MatMul (h, narrow) "
            "[u] v = Relu (g) [a] y = Mul (t, v)"
        ),
        "Conv Split Conv Relu Mul",
    ),
    "a part": (
        f"{LAYER} [s] r = Slice (q, four, ten, last) [t] y = Relu (r)",
        "Conv Split Relu",
    ),
}

OF_ONE = {
    "the first token": (
        f"{LAYER} [g] g = Gather <axis = 1> (q, first) [k] y = Gemm (g, down)",
        "Conv Slice Gemm",
    ),
    "the last token": (f"{LAYER} [g] y = Gather <axis = 1> (q, minus)", "Conv Slice"),
    "some tokens": (
        f"{LAYER} [s] s = Slice (q, two, five, one_axis) [k] y = MatMul (s, down)",
        "Conv Slice Conv",
    ),
    "a class token": (
        f"{LAYER} [c] c = Concat <axis = 1> (token, q) [k] y = MatMul (c, down)",
        "Conv Concat Conv",
    ),
    "two layers": (
        f"{LAYER} [n] n = MatMul (x, up) [c] c = Concat <axis = 1> (q, n) [k] y = MatMul (c, down)",
        "Conv Conv Concat Conv",
    ),
}
ONLY_ONE = {
    "first": np.array(0, np.int64),
    "minus": np.array(-1, np.int64),
    "two": np.array([2], np.int64),
    "five": np.array([5], np.int64),
    "one_axis": np.array([1], np.int64),
    "token": normal(1, 1, 10),
}


def graph(text: Text, nodes: str, shape: tuple[int, ...]) -> onnx.ModelProto:
    words = nodes.replace(",", " ").replace("(", " ").replace(")", " ").split()
    used = {name: data for name, data in (constants(shape) | ONLY_ONE).items() if name in words}
    sizes = ", ".join(map(str, shape))
    rank = 2 if "Gather" in words else len(shape)
    free = ", ".join("ABCD"[:rank])
    return text(f"g (float[{sizes}] x) => (float[{free}] y) {{ {nodes} }}", **used)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_layers_of_tokens_are_convolutions(
    name: str, shape: tuple[int, ...], onnx_text: Text, canonical: Canonical
):
    nodes, left = CASES[name]
    if name == "positions" and shape[-2] == 1:  # the same for all tokens
        left = "Conv Conv"
    model = canonical(graph(onnx_text, nodes, shape))
    assert [n.op_type for n in model.graph if n.op_type not in VIEWS] == left.split()


@pytest.mark.parametrize("bias", ["bias", "row"])
def test_a_gemm_of_tokens_is_a_convolution(bias: str, onnx_text: Text, canonical: Canonical):
    nodes = f"[g] p = Gemm <alpha = 0.5> (x, up, {bias}) [r] q = Relu (p) [k] y = Gemm (q, down)"
    model = canonical(graph(onnx_text, nodes, (9, 6)))
    assert [n.op_type for n in model.graph if n.op_type not in VIEWS] == ["Conv", "Relu", "Conv"]


def test_one_token_stays_a_row(onnx_text: Text, canonical: Canonical):
    model = canonical(graph(onnx_text, CASES["two layers"][0], (1, 6)))
    assert [n.op_type for n in model.graph] == ["Gemm", "Relu", "Gemm"]


@pytest.mark.parametrize("name", [n for n in CASES if n not in {"halves", "a part"}])
def test_what_reads_one_token_reads_a_row(name: str, onnx_text: Text, canonical: Canonical):
    nodes, left = CASES[name]
    if name == "positions":  # one for each channel
        left = "Conv Conv"
    model = canonical(graph(onnx_text, nodes, (1, 1, 6)))
    kinds = [n.op_type for n in model.graph if n.op_type not in VIEWS]
    assert kinds == left.replace("Conv", "Gemm").split()


def test_the_machine_runs_layers_of_a_class_token(onnx_text: Text):
    nodes = (
        f"{LAYER} [s] s = Slice (q, two, three, one_axis) [k] t = MatMul (s, square) "
        "[o] u = Mul (t, scale) [a] v = Add (s, u) [r] r = Relu (v) [c] "
        "c = Concat <axis = 1> (r, q) [k] y = MatMul (c, down)"
    )
    words = {"three": np.array([3], np.int64), "square": normal(10, 10)}
    used = constants((1, 7, 6)) | ONLY_ONE | words
    read = nodes.replace(",", " ").replace("(", " ").replace(")", " ").split()
    model = onnx_text(
        f"g (float[1, 7, 6] x) => (float[1, 8, 6] y) {{ {nodes} }}",
        **{name: data for name, data in used.items() if name in read},
    )
    hw = load_hw("opu-light")
    compiled = compile_model(model, hw)
    host = {compiled.dfg[op.node].op for op in compiled.partition.host}
    assert host <= {"host:Reshape", "host:Transpose", "reshape"}
    inputs = noise(compiled.bundle)
    assert check(compiled.bundle, inputs, run(compiled.bundle, hw, inputs, capture=True)).passed


def test_a_norm_of_tokens_is_one_host_operator_without_views_beside_it(onnx_text: Text):
    nodes = CASES["a norm"][0]
    hw = load_hw("opu-light")
    dfg, partition = partition_model(graph(onnx_text, nodes, (3, 5, 6)), hw)
    assert [dfg[op.node].op for op in partition.host] == ["host:LayerNormalization"]
    (norm,) = (dfg[op.node] for op in partition.host)
    assert norm.shape == dfg[norm.operands[0]].shape == (1, 10, 3, 5)


@pytest.mark.parametrize("shape", [(5, 6), (3, 5, 6)], ids=str)
@pytest.mark.parametrize("name", [n for n in CASES if n not in {"positions", "halves"}])
def test_the_machine_runs_all_but_norms(name: str, shape: tuple[int, ...], onnx_text: Text):
    hw, model = load_hw("opu-light"), graph(onnx_text, CASES[name][0], shape)
    compiled = compile_model(model, hw)
    host = {compiled.dfg[op.node].op for op in compiled.partition.host}
    assert host <= {"host:LayerNormalization", "host:Reshape", "host:Transpose", "reshape"}
    inputs = noise(compiled.bundle)
    assert check(compiled.bundle, inputs, run(compiled.bundle, hw, inputs, capture=True)).passed


@pytest.mark.parametrize("name", OF_ONE)
def test_tokens_of_one_image_are_joined_and_cut_as_columns(
    name: str, onnx_text: Text, canonical: Canonical
):
    nodes, left = OF_ONE[name]
    model = canonical(graph(onnx_text, nodes, (1, 7, 6)))
    assert [n.op_type for n in model.graph if n.op_type not in VIEWS] == left.split()


@pytest.mark.parametrize("machine", ["opu-light", "opu-tiny"])
@pytest.mark.parametrize("name", OF_ONE)
def test_the_machine_joins_and_cuts_tokens(name: str, machine: str, onnx_text: Text):
    hw, model = load_hw(machine), graph(onnx_text, OF_ONE[name][0], (1, 7, 6))
    compiled = compile_model(model, hw)
    host = {compiled.dfg[op.node].op for op in compiled.partition.host}
    assert host <= {"host:Reshape", "host:Transpose", "reshape"}
    inputs = noise(compiled.bundle)
    assert check(compiled.bundle, inputs, run(compiled.bundle, hw, inputs, capture=True)).passed


def test_a_dense_layer_after_a_norm_that_stays_is_a_convolution(
    onnx_text: Text, canonical: Canonical
):
    nodes = (
        "[r] p = Reshape (x, flat) [n] q = LayerNormalization <axis = -1> (p, one) "
        "[g] y = Gemm <alpha = 0.5> (q, narrow_up, bias)"
    )
    model = onnx_text(
        f"g (float[1, 3, 3, 1] x) => (float[A, B] y) {{ {nodes} }}",
        flat=np.array([9, 1], np.int64),
        one=np.array([1.5], np.float32),
        narrow_up=normal(1, 10),
        bias=normal(10),
    )
    kinds = [n.op_type for n in canonical(model).graph if n.op_type not in VIEWS]
    assert kinds == ["LayerNormalization", "Conv"]


TURNED = "c = Conv (x, w) t = Transpose <perm = [0, 2, 3, 1]> (c)"
OF_ROWS = {
    "a batch normalisation of rows": (
        "float[N, C] y",
        (
            f"{TURNED} r = Reshape (t, rows) "
            "n = BatchNormalization (r, scale, shift, mean, variance) y = Relu (n)"
        ),
        "Conv Relu",
    ),
    "a mean of tokens": (
        "float[N, C] y",
        (
            f"{TURNED} r = Reshape (t, tokens) m = ReduceMean <axes = [1], keepdims = 0> (r) "
            "y = Relu (m)"
        ),
        "Conv GlobalAveragePool Relu",
    ),
    "a mean of tokens that remain": (
        "float[N, M, C] y",
        f"{TURNED} r = Reshape (t, tokens) m = ReduceMean <axes = [1]> (r) y = Relu (m)",
        "Conv GlobalAveragePool Relu",
    ),
    "a mean of a map with channels last": (
        "float[N, C] y",
        "r = Reshape (x, image) m = ReduceMean <axes = [1, 2], keepdims = 0> (r) y = Relu (m)",
        "ReduceMean Relu",
    ),
    "a mean of a map that was last": (
        "float[N, C] y",
        (
            f"{TURNED} r = Reshape (t, tokens) s = Relu (r) i = Reshape (s, image) "
            "f = Transpose <perm = [0, 3, 1, 2]> (i) "
            "m = ReduceMean <axes = [2, 3], keepdims = 0> (f) y = Relu (m)"
        ),
        "Conv Relu GlobalAveragePool Relu",
    ),
}


@pytest.mark.parametrize("name", OF_ROWS)
def test_statistics_of_rows_of_tokens_are_those_of_the_map(
    name: str, onnx_text: Text, canonical: Canonical
):
    result, nodes, expected = OF_ROWS[name]
    known = {
        "w": normal(5, 4, 1, 1),
        "rows": np.array([6, 5]),
        "tokens": np.array([1, 6, 5]),
        "image": np.array([1, 3, 2, -1]),
        **{what: normal(5) for what in ("scale", "shift", "mean")},
        "variance": np.square(normal(5)) + np.float32(0.1),
    }
    words = nodes.replace(",", " ").replace("(", " ").replace(")", " ").split()
    constants = {name: data for name, data in known.items() if name in words}
    model = canonical(
        onnx_text(f"g (float[1, 4, 3, 2] x) => ({result}) {{ {nodes} }}", **constants)
    )
    kinds = [node.op_type for node in model.graph if node.op_type not in VIEWS]
    assert " ".join(kinds) == expected


def test_what_a_reshape_rounds_remains_rounded():
    """It has a scale, which its operand in 16 bits has not, and cuts off numbers above 15.875."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
        g (float[1,6,2,4] x) => (float[1,6,8] y)
        <float s16 = {0.001}, int16 z16 = {0}, float s = {0.125}, int8 z = {0}, float t = {0.25},
         int8 u = {-60}, int64[3] size = {1, 6, 8}> {
        a = QuantizeLinear(x, s16, z16)  b = DequantizeLinear(a, s16, z16)  c = Reshape(b, size)
        d = QuantizeLinear(c, s, z)  e = DequantizeLinear(d, s, z)  f = QuantizeLinear(e, t, u)
        h = DequantizeLinear(f, t, u)  i = Relu(h)  j = QuantizeLinear(i, t, u)
        y = DequantizeLinear(j, t, u) }"""
    model = onnx.parser.parse_model(text)
    x = np.random.default_rng(1).normal(0, 16, (1, 6, 2, 4)).astype(np.float32)
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    assert np.asarray(wanted).max() == 16, "nothing is cut off"
    np.testing.assert_array_equal(
        opu_fuse.compile(model, "opu-light").run({"x": x}).outputs["y"], wanted
    )
