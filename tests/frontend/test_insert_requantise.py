"""Quantised models that move integers to another scale: no operator stays on the host for that, and
the numbers are those of ONNX Runtime on the user's file.
"""

import re

import numpy as np
import onnx
import onnxruntime
import pytest

from opu_fuse.frontend.prepare import prepare
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, Program, compile_model
from opu_fuse.sim.compare.runs import check

CONSTANTS = """int8[8,8,1,1] wq = {WEIGHTS}, float ws = {0.0078125}, int8 wz = {0},
    float fill = {1.5}, float zero = {0.0}, int64[8] pads = {0,0,1,2,0,0,0,1},
    float[4] up = {1,1,2,3}, int64[2] parts = {3,5}, int64[2] flat = {1,-1},
    int64[8] order = {1,0,3,2,5,4,7,6}, int64[1] one = {1}, int64[1] first = {0},
    int64[1] last = {4}, int64[5] groups = {1,2,4,8,8}, int64[4] map = {1,8,8,8}"""
STYLES = {
    "zero points": [("0.031", "5"), ("0.045", "-128"), ("0.02", "-3")],
    "zero points alone": [("0.031", "5"), ("0.031", "-128"), ("0.031", "-3")],
    "int8 and uint8": [("0.045", "u3"), ("0.03", "9"), ("0.07", "u128")],
    "powers of two": [("0.03125", "0"), ("0.125", "0"), ("0.0625", "7")],
}
"""Scale and zero point of roundings a, b and c; those of uint8 have a `u`."""
OUTPUT, TWO = "float[A,B,C,D] y", "float[A,B,C,D] y, float[E,F,G,H] y2"
NEAREST = 'coordinate_transformation_mode="asymmetric",nearest_mode="floor"'
RESIZE = f'Resize<mode="nearest",{NEAREST}>'
HALVES = "MaxPool<kernel_shape=[2,2],strides=[2,2]>"
INTERLEAVED = "g = Reshape({}, groups) t = Transpose<perm=[0,2,1,3,4]>(g) m = Reshape(t, map)"
TURNED, BACK = "Transpose<perm=[0,2,3,1]>", "Transpose<perm=[0,3,1,2]>"
BODIES: dict[str, tuple[str, str]] = {
    "concat": ("@a(c,d) r = Relu(c2) @b(r,e) j = Concat<axis=1>(d,e) @c(j,y)", OUTPUT),
    "several concats": (
        """@a(c,d) k = Conv(d,w) @b(k,e) j = Concat<axis=1>(d,e) @c(j,p) y = Relu(p)
        i = Concat<axis=1>(e,d,e) @a(i,y2)""",
        TWO,
    ),
    "concat of an input": ("@a(c,d) j = Concat<axis=1>(xd,d,xd) @b(j,y)", OUTPUT),
    "concat of a concat": (
        "@a(c,d) @b(c2,e) i = Concat<axis=1>(d,e) j = Concat<axis=1>(i,xd) @c(j,y)",
        OUTPUT,
    ),
    "concat of a rounded concat": (
        "@a(c,d) @b(c2,e) i = Concat<axis=1>(d,e) @c(i,k) j = Concat<axis=1>(k,xd,d) @b(j,y)",
        OUTPUT,
    ),
    "concat read in two scales": (
        "@a(c,d) @b(c2,e) j = Concat<axis=1>(d,e) @c(j,y) @a(j,y2)",
        TWO,
    ),
    "concat behind which more moves": (
        f"@a(c,d) @b(c2,e) j = Concat<axis=1>(d,e) m = {HALVES}(j) r = Relu(m) @c(r,y)",
        OUTPUT,
    ),
    "concat of what is not rounded": ("@b(c2,e) j = Concat<axis=1>(c,e) @c(j,y)", OUTPUT),
    "concat, then resize": (
        f"@a(c,d) j = Concat<axis=1>(d,xd) r = {RESIZE}(j,,up) @c(r,y)",
        OUTPUT,
    ),
    "concat of functions": (
        """@a(c,d) g = Sigmoid(d) s = Mul(d,g) @b(s,e) l = LeakyRelu<alpha=0.125>(d) @a(l,f)
        j = Concat<axis=1>(e,f) @c(j,y)""",
        OUTPUT,
    ),
    "concat of channels last": (
        f"""@a(c,d) t = {TURNED}(d) u = {TURNED}(xd) j = Concat<axis=3>(t,u) @b(j,k)
        v = {BACK}(k) @b(v,p) y = Relu(p)""",
        OUTPUT,
    ),
    "max pool": ("@a(c,d) m = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(d) @b(m,y)", OUTPUT),
    "max pool in two scales": (
        f"@a(c,d) m = {HALVES}(d) @b(m,k) @c(m,l) y = Relu(k) y2 = Relu(l)",
        TWO,
    ),
    "max pool that is an output": (f"@a(c,d) y2 = {HALVES}(d) @b(y2,y)", TWO),
    "max pool of a relu": (f"@a(c,d) r = Relu(d) m = {HALVES}(r) @b(m,y)", OUTPUT),
    "resize": (f"@a(c,d) m = {RESIZE}(d,,up) @b(m,y)", OUTPUT),
    "pad": ("@a(c,d) m = Pad(d,pads,zero) @b(m,k) n = Conv(k,w) @c(n,y)", OUTPUT),
    "pad by another number": ("@a(c,d) m = Pad(d,pads,fill) @b(m,k) y = Relu(k)", OUTPUT),
    "split": ("@a(c,d) m,n = Split<axis=1>(d,parts) @b(m,y) @c(n,y2)", TWO),
    "split into one scale": ("@a(c,d) m,n = Split<axis=1>(d,parts) @b(m,y) @b(n,y2)", TWO),
    "split, a part of which is an output": (
        "@a(c,d) y,m = Split<axis=1>(d,parts) @b(m,y2)",
        TWO,
    ),
    "split, then concat": (
        "@a(c,d) m,n = Split<axis=1>(d,parts) @b(m,k) j = Concat<axis=1>(n,k,xd) @c(j,y)",
        OUTPUT,
    ),
    "slice": ("@a(c,d) m = Slice(d,first,last,one) @b(m,y)", OUTPUT),
    "gather": ("@a(c,d) m = Gather<axis=1>(d,order) @b(m,y)", OUTPUT),
    "shuffle": (f"@a(c,d) {INTERLEAVED.format('d')} @b(m,y)", OUTPUT),
    "space to depth": ("@a(c,d) m = DepthToSpace<blocksize=2>(d) @b(m,y)", OUTPUT),
    "three pairs": ("@a(c,d) @b(d,e) @c(e,f) n = Conv(f,w) @a(n,y)", OUTPUT),
    "two scales of one value": (
        "@a(c,d) @b(d,e) n = Conv(e,w) @a(n,f) s = Add(f,d) @c(s,y)",
        OUTPUT,
    ),
    "an input": ("@b(xd,e) n = Conv(e,w) @a(n,y)", OUTPUT),
    "an output": ("@a(c,d) @b(d,y)", OUTPUT),
    "a row": (
        """@a(c,d) p = GlobalMaxPool(d) m = Flatten(p) @b(m,l) @c(l,k)
        j = Concat<axis=1>(k,m) @a(j,y)""",
        "float[A,B] y",
    ),
    "a view": (
        "@a(c,d) p = MaxPool<kernel_shape=[8,8]>(d) m = Reshape(p,flat) @b(m,y)",
        "float[A,B] y",
    ),
    "transposes": (
        f"@a(c,d) t = {TURNED}(d) @b(t,u) v = {BACK}(u) @b(v,p) n = Conv(p,w) @c(n,y)",
        OUTPUT,
    ),
}
"""What follows two convolutions c and c2 of the input: `@a(v,d)` rounds v as a does, to d."""
X = {"x": np.random.default_rng(5).normal(size=(1, 8, 8, 8)).astype(np.float32)}


def model(name: str, style: str) -> onnx.ModelProto:
    body, outputs = BODIES[name]
    body = f"@a(x,xd) w = DequantizeLinear(wq,ws,wz) c = Conv(xd,w) c2 = Conv(xd,w) {body}"
    weights = np.random.default_rng(1).integers(-90, 90, 64)
    constants = CONSTANTS.replace("WEIGHTS", ",".join(map(str, weights)))
    for letter, (scale, zero) in zip("abc", STYLES[style], strict=True):
        kind = "uint8" if zero[0] == "u" else "int8"
        numbers = f"scale_{letter}, zero_{letter}"
        constants += f", float scale_{letter} = {{{scale}}}"
        constants += f", {kind} zero_{letter} = {{{zero.lstrip('u')}}}"
        body = re.sub(
            rf"@{letter}\((\w+),(\w+)\)",
            rf"q_\2 = QuantizeLinear(\1, {numbers}) \2 = DequantizeLinear(q_\2, {numbers})",
            body,
        )
    head = f'<ir_version: 8, opset_import: ["" : 17]> g (float[1,8,8,8] x) => ({outputs})'
    return onnx.parser.parse_model(f"{head} <{constants}> {{ {body} }}")


def computed(given: onnx.ModelProto) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(given.SerializeToString(), options)
    names = [output.name for output in given.graph.output]
    return dict(zip(names, map(np.asarray, session.run(names, X)), strict=True))


@pytest.mark.parametrize("name", BODIES)
def test_the_reference_has_the_users_bits_and_is_left_as_it_is(name):
    given = model(name, list(STYLES)[len(name) % 4])
    qdq = prepare(given, rewriting=True).qdq
    assert qdq is not None
    expected, found = computed(given), computed(qdq)
    for output, array in expected.items():
        assert len(np.unique(array)) > 4
        np.testing.assert_array_equal(array, found[output])
    again = prepare(qdq).qdq
    assert again is not None
    assert len(again.graph.node) == len(qdq.graph.node), "rounded anew once more"


@pytest.mark.parametrize("name", BODIES)
def test_it_runs_on_the_machine_as_check_promises(name):
    machines = ("opu-light", "opu-1024t") if "functions" in name else ("opu-light", "opu-1024")
    first = len(name) % 2
    for style, machine in zip(list(STYLES)[first::2], machines, strict=True):
        hw = load_hw(machine)
        made = compile_model(model(name, style), hw)
        assert not made.partition.host, style
        program = Program(bundle=made.bundle, hw=hw)
        found = check(made.bundle, X, program.run(X, capture=True))
        assert found.passed, (style, hw.name, found.first)


@pytest.mark.parametrize("strategy", ["none", "optimal", "dominator"])
def test_every_strategy_knows_it(strategy):
    hw = load_hw("opu-light")
    for name in ("several concats", "split, then concat", "three pairs", "max pool in two scales"):
        made = compile_model(model(name, "zero points"), hw, Options(strategy=strategy))
        assert not made.partition.host
        result = Program(bundle=made.bundle, hw=hw).run(X, capture=True)
        assert check(made.bundle, X, result).passed, name


def test_with_tables_scales_change_without_any_difference():
    hw = load_hw("opu-light")
    made = compile_model(model("three pairs", "zero points"), hw, Options(strategy="none"))
    result = Program(bundle=made.bundle, hw=hw).run(X, capture=True)
    found = check(made.bundle, X, result)
    assert found.passed
    tables = [g for g in made.bundle.groups if g.ops[-1].op == "table"]
    assert tables
    assert "Requantise" in {f for n in made.dfg.calls for f in n.attrs.get("functions", ())}


def test_a_model_of_one_scale_gets_no_pair():
    given = model("concat", "zero points")
    for node in given.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = re.sub("^(scale|zero)_[bc]$", r"\1_a", name)
    qdq = prepare(given).qdq
    assert qdq is not None
    assert len(qdq.graph.node) == len(given.graph.node)
