"""A program that leaves most of a network to the host says so in a line."""

import re

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.fuse.explain.coverage import low_coverage
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.model.effort import effort
from opu_fuse.pipeline import compile_model, partition_model

HEADER = '<ir_version: 10, opset_import: ["" : 21]> g (float[1,4,8,8] x) => (float[a,b,c,d] y) '
RNG = np.random.default_rng(2)
WEIGHTS = {
    "w": RNG.normal(size=(4, 4, 3, 3)).astype(np.float32) * 0.2,
    "k": RNG.integers(-100, 100, (4, 4, 3, 3)).astype(np.int8),
    "s": np.float32(0.01),
    "z": np.int16(0),
    "scale": np.float32(1e-4),
}
ON_HOST = {
    "scales of each image": (
        """{ q, t, u = DynamicQuantizeLinear(x)  [c] c = ConvInteger<pads=[1,1,1,1]>(q, k, u)
        f = Cast<to=1>(c)  y = Mul(f, scale) }""",
        "100 % are those of ConvInteger on the host, the largest c: .*; compile the float model",
    ),
    "16 bits": (
        """{ q = QuantizeLinear(x, s, z)  r = DequantizeLinear(q, s, z)  v = DequantizeLinear(k, s)
        [c] a = Conv<pads=[1,1,1,1]>(r, v)  p = QuantizeLinear(a, s, z)
        y = DequantizeLinear(p, s, z) }""",
        "those of conv on the host, the largest c: .*rounded to 16 bits.* the float model",
    ),
}
MOSTLY = "{ c = Conv<pads=[1,1,1,1]>(x, w)  d = Conv<pads=[1,1,1,1]>(c, w)  e = Softmax<axis=1>(d) "


def line(body: str) -> str | None:
    model = onnx.parser.parse_model(HEADER + body)
    for name, data in WEIGHTS.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(data), name))
    hw = load_hw("opu-tiny")
    done = compile_model(model, hw)
    return low_coverage(done.dfg, hw, done.partition)


@pytest.mark.parametrize("kind", ON_HOST)
def test_the_largest_cause_and_the_remedy_are_named(kind):
    body, wanted = ON_HOST[kind]
    said = line(body)
    assert said is not None
    assert "\n" not in said
    assert said.startswith("only 0 % of the multiplications run on opu-tiny; ")
    assert re.search(wanted, said), said


def test_half_on_the_machine_is_nothing_to_say():
    assert line(MOSTLY + "y = Identity(e) }") is None


def test_a_network_without_products_says_nothing():
    assert line("{ y = Softmax<axis=1>(x) }") is None


UNCOUNTED = {
    "an operator of another domain": (
        "{ c = Conv<pads=[1,1,1,1]>(x, w)  [a] y = com.microsoft.Inverse(c) }",
        "opu-tiny; not counted is what the host computes in a (Inverse): ",
    ),
    "unknown shapes": (
        (
            "{ n = NonZero(x)  t = Transpose(n)  f = Cast<to=1>(t)  u = Transpose<perm=[1,0]>(f) "
            "[m] p = MatMul(f, u)  s = ReduceMax<keepdims=1>(p)  y = Add(x, s) }"
        ),
        (
            "none of the multiplications that can be counted run on opu-tiny; not counted is "
            "what the host computes in m (MatMul): "
        ),
    ),
}


@pytest.mark.parametrize("kind", UNCOUNTED)
def test_what_cannot_be_counted_is_said(kind):
    body, wanted = UNCOUNTED[kind]
    model = onnx.parser.parse_model(
        HEADER.replace('"" : 21', '"" : 21, "com.microsoft" : 1') + body
    )
    if "w" in body:
        model.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHTS["w"], "w"))
    hw = load_hw("opu-tiny")
    dfg, found = partition_model(model, hw)
    said = low_coverage(dfg, hw, found)
    assert said is not None
    assert wanted in said, said


NODES = {
    "Einsum": ('y = Einsum<equation="bij,bjk->bik">(a, b)', {"a": (2, 3, 4), "b": (2, 4, 5)}, 120),
    "Einsum of one": ('y = Einsum<equation="ij->ji">(a)', {"a": (3, 4)}, 0),
    "Einsum with dots": (
        'y = Einsum<equation="...ij,jk->...ik">(a, b)',
        {"a": (2, 7, 3, 4), "b": (4, 5)},
        2 * 7 * 3 * 4 * 5,
    ),
    "MatMul of two maps": ("y = MatMul(a, b)", {"a": (2, 3, 4), "b": (2, 4, 5)}, 120),
    "LSTM": (
        "y = LSTM<hidden_size=5>(a, b, c)",
        {"a": (7, 1, 3), "b": (1, 20, 3), "c": (1, 20, 5)},
        7 * (20 * 3 + 20 * 5),
    ),
    "GRU": (
        "y = GRU<hidden_size=5>(a, b, c)",
        {"a": (7, 2, 3), "b": (1, 15, 3), "c": (1, 15, 5)},
        7 * 2 * (15 * 3 + 15 * 5),
    ),
    "Attention": (
        "y = Attention(a, b, c)",
        {"a": (1, 2, 6, 4), "b": (1, 2, 9, 4), "c": (1, 2, 9, 8)},
        2 * 6 * 9 * 4 + 2 * 6 * 9 * 8,
    ),
    "Softmax": ("y = Softmax(a)", {"a": (2, 3)}, 0),
    "of another domain": ("y = other.Thing(a)", {"a": (2, 3)}, None),
    "known of another domain": ("y = com.microsoft.QuickGelu(a)", {"a": (2, 3)}, 0),
    "FusedConv": (
        "y = com.microsoft.FusedConv(a, b)",
        {"a": (1, 3, 5, 5), "b": (8, 3, 3, 3)},
        None,
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_multiplications_of_an_operator_are_counted_where_shapes_are_known(name):
    body, shapes, count = NODES[name]
    inputs = ", ".join(f"float{list(shape)} {v}" for v, shape in shapes.items())
    imports = '"" : 23, "other" : 1, "com.microsoft" : 1'
    text = f"<ir_version: 11, opset_import: [{imports}]> g ({inputs}) => (float y) {{ {body} }}"
    proto = onnx.parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    proto = onnx.shape_inference.infer_shapes(proto)
    model = ir.from_proto(proto)
    (node,) = model.graph
    assert effort(node) == count
