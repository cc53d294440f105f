"""Control flow that is known when the network is compiled becomes the nodes of its bodies."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.errors import ModelError
from opu_fuse.frontend.editing import sources_of
from opu_fuse.frontend.importing.load import load_model
from opu_fuse.frontend.qdq_reference import session

Text = Callable[..., onnx.ModelProto]

BODY = "(int64 i, bool go, float[1,4] v) => (bool on, float[1,4] w)"
CASES: dict[str, str] = {
    "a loop": f"""y = Loop(three, yes, x) <body = b {BODY} {{
        on = Identity(go) r = Relu(v) w = Mul(r, half) }}>""",
    "a loop without a condition": f"""y = Loop(three, , x) <body = b {BODY} {{
        on = Identity(go) w = Sub(v, half) }}>""",
    "a body that sets the condition": f"""y = Loop(three, yes, x) <body = b {BODY} {{
        on = Constant<value = bool {{1}}>() w = Sub(v, half) }}>""",
    "a body that ends it": f"""y = Loop(three, yes, x) <body = b {BODY} {{
        on = Constant<value = bool {{0}}>() w = Sub(v, half) }}>""",
    "one that only its body ends": f"""y = Loop(, yes, x) <body = b {BODY} {{
        on = Constant<value = bool {{0}}>() w = Sub(v, half) }}>""",
    "no iteration": f"""y = Loop(zero, yes, x) <body = b {BODY} {{
        on = Identity(go) w = Sub(v, half) }}>""",
    "a condition that is false": f"""y = Loop(three, no, x) <body = b {BODY} {{
        on = Identity(go) w = Sub(v, half) }}>""",
    "the number of the iteration": f"""y = Loop(three, yes, x) <body = b {BODY} {{
        on = Identity(go) f = Cast<to=1>(i) w = Add(v, f) }}>""",
    "a value from outside": f"""o = Neg(x) y = Loop(three, yes, x) <body = b {BODY} {{
        on = Identity(go) s = Mul(v, half) w = Add(s, o) }}>""",
    "a value that stays": f"""a = Loop(three, yes, x) <body = b {BODY} {{
        on = Identity(go) w = Identity(v) }}> y = Relu(a)""",
    "values that change places": """a, c = Loop(three, yes, x, z) <body = b
        (int64 i, bool go, float[1,4] v, float[1,4] u) =>
        (bool on, float[1,4] u2, float[1,4] v2) {
        on = Identity(go) u2 = Identity(u) v2 = Sub(v, half) }> y = Sub(a, c)""",
    "collected results": """a, s = Loop(three, yes, x) <body = b (int64 i, bool go, float[1,4] v)
        => (bool on, float[1,4] w, float[1,4] t) {
        on = Identity(go) w = Mul(v, half) t = Neg(w) }>
        f = Reshape(s, row) y = Concat<axis=1>(a, f)""",
    "a loop in a loop": f"""y = Loop(three, yes, x) <body = b {BODY} {{ on = Identity(go)
        w = Loop(two, yes, v) <body = c (int64 j, bool go2, float[1,4] p) =>
            (bool on2, float[1,4] q) {{ on2 = Identity(go2) q = Sub(p, half) }}> }}>""",
    "a choice in a loop": f"""y = Loop(three, yes, x) <body = b {BODY} {{ on = Identity(go)
        w = If(no) <then_branch = t () => (float[1,4] p) {{ p = Neg(v) }},
                    else_branch = e () => (float[1,4] q) {{ q = Sub(v, half) }}> }}>""",
    "a choice by the iteration": f"""y = Loop(three, yes, x) <body = b {BODY} {{ on = Identity(go)
        first = Equal(i, one)
        w = If(first) <then_branch = t () => (float[1,4] p) {{ p = Neg(v) }},
                       else_branch = e () => (float[1,4] q) {{ q = Sub(v, half) }}> }}>""",
    "a choice": """y = If(yes) <then_branch = t () => (float[1,4] p) { p = Neg(x) },
        else_branch = e () => (float[1,4] q) { q = Relu(x) }>""",
    "a choice between values from outside": """y = If(no)
        <then_branch = t () => (float[1,4] p) { p = Neg(x) },
         else_branch = e () => (float[1,4] q) { q = Identity(z) }>""",
    "a computed condition that is known": """s = Shape(x) n = Gather(s, one) g = Greater(n, two)
        y = If(g) <then_branch = t () => (float[1,4] p) { p = Neg(x) },
                   else_branch = e () => (float[1,4] q) { q = Relu(x) }>""",
    "a scan": """a, s = Scan(x, m) <num_scan_inputs=1, body = b (float[1,4] v, float[4] r) =>
        (float[1,4] w, float[1,4] t) { w = Add(v, r) t = Mul(w, half) }>
        f = Reshape(s, row) y = Concat<axis=1>(a, f)""",
    "a scan over columns, backwards": """a, s = Scan(x, m) <num_scan_inputs=1,
        scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[-1],
        scan_output_directions=[1], body = b (float[1,4] v, float[3] r) =>
        (float[1,4] w, float[3] t) { c = ReduceSum(r) w = Add(v, c) t = Mul(r, half) }>
        f = Reshape(s, row) y = Concat<axis=1>(a, f)""",
}
CONSTANTS = {
    "three": np.int64(3),
    "two": np.int64(2),
    "one": np.int64(1),
    "zero": np.int64(0),
    "yes": np.array(True),
    "no": np.array(False),
    "half": np.float32(0.5),
    "row": np.array([1, -1], np.int64),
}


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_its_bodies_do(name: str, onnx_text: Text):
    text = f"g (float[1,4] x, float[1,4] z, float[3,4] m) => (float[a,b] y) {{ {CASES[name]} }}"
    model = onnx_text(text, **CONSTANTS)
    loaded = load_model(model)
    kinds = {node.op_type for node in loaded.graph}
    assert kinds.isdisjoint({"Loop", "If", "Scan"})
    rng = np.random.default_rng(3)
    inputs = {
        name: rng.normal(size=size).astype(np.float32)
        for name, size in {"x": (1, 4), "z": (1, 4), "m": (3, 4)}.items()
    }
    (wanted,) = session(model).run(None, inputs)
    (got,) = session(ir.to_proto(loaded)).run(None, inputs)
    np.testing.assert_array_equal(got, wanted)
    assert loaded.graph.outputs[0].shape == np.asarray(wanted).shape


def test_a_node_of_a_body_remembers_its_name_in_the_file(onnx_text: Text):
    text = f"""g (float[1,4] x) => (float[1,4] y) {{ [mine] y = Loop(two, yes, x)
        <body = b {BODY} {{ on = Identity(go) [inner] r = Relu(v) w = Mul(r, half) }}> }}"""
    loaded = load_model(onnx_text(text, **CONSTANTS))
    told = {node.name: sources_of(node) for node in loaded.graph}
    assert told["mine/0/inner"] == told["mine/1/inner"] == ["inner"]
    assert all(told.values())
    assert {name for sources in told.values() for name in sources} <= {"inner", "mine"}


REFUSED = {
    "how often": (
        f"""n = Cast<to=7>(k) y = Loop(n, yes, x) <body = b {BODY} {{
            on = Identity(go) w = Relu(v) }}>""",
        "'mine'.*how often it runs depends on data; export it with a constant trip count",
    ),
    "until": (
        f"""y = Loop(three, yes, x) <body = b {BODY} {{
            s = ReduceSum<keepdims=0>(v) on = Less(s, half) w = Relu(v) }}>""",
        "its condition is computed in each iteration; export it",
    ),
    "whether": (
        f"""c = Cast<to=9>(k) y = Loop(three, c, x) <body = b {BODY} {{
            on = Identity(go) w = Relu(v) }}>""",
        "its condition is computed; export it",
    ),
    "for ever": (
        f"""y = Loop(, yes, x) <body = b {BODY} {{ on = Identity(go) w = Relu(v) }}>""",
        "it has no trip count, and its condition is always true",
    ),
    "too often": (
        f"""y = Loop(many, yes, x) <body = b {BODY} {{ on = Identity(go) w = Relu(v) }}>""",
        "4000 iterations would be 8,000 nodes, up to 4,096 are unrolled; export it with fewer",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_refused_with_its_name(name: str, onnx_text: Text):
    nodes, message = REFUSED[name]
    nodes = nodes.replace("y = Loop", "[mine] y = Loop")
    text = f"g (float[1,4] x, float k) => (float[1,4] y) {{ {nodes} }}"
    with pytest.raises(ModelError, match=message) as caught:
        load_model(onnx_text(text, **CONSTANTS, many=np.int64(4000)))
    assert "'mine'" in str(caught.value)
