"""What neither the machine nor a quantised operator touches has ONNX Runtime's bits, whatever else
reads the same input.
"""

import numpy as np
import onnx
import pytest

import opu_fuse
from opu_fuse.pipeline import compile_model, partition_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.ports import noise
from tests.regressions.test_found import of_the_users_file

CONV = "Conv<kernel_shape=[3,3], pads=[1,1,1,1]>"
HEADER = '<ir_version: 10, opset_import: ["" : 17]>'

# name -> (inputs, outputs, body, outputs that are exact, operators on the host)
CASES = {
    "identity of a convolution's input": (
        "float[1,3,8,8] x",
        "float[1,3,8,8] o, float[1,4,8,8] y",
        f"o = Identity(x) y = {CONV}(x, w)",
        ["o"],
        [],
    ),
    "the input itself": (
        "float[1,3,8,8] x",
        "float[1,3,8,8] x, float[1,4,8,8] y",
        f"y = {CONV}(x, w)",
        ["x"],
        [],
    ),
    "nothing but an identity": (
        "float[1,3,8,8] x",
        "float[1,3,8,8] o",
        "o = Identity(x)",
        ["o"],
        [],
    ),
    "an identity twice": (
        "float[1,3,8,8] x",
        "float[1,3,8,8] o, float[1,3,8,8] p, float[1,4,8,8] y",
        f"o = Identity(x) t = Identity(x) p = Identity(t) y = {CONV}(x, w)",
        ["o", "p"],
        [],
    ),
    "an identity of a result": (
        "float[1,3,8,8] x",
        "float[1,4,8,8] y, float[1,4,8,8] z",
        f"y = {CONV}(x, w) z = Identity(y)",
        [],
        [],
    ),
    "a transpose beside": (
        "float[1,3,8,8] x",
        "float[1,8,8,3] o, float[1,4,8,8] y",
        f"o = Transpose<perm=[0,2,3,1]>(x) y = {CONV}(x, w)",
        ["o"],
        ["Transpose"],
    ),
    "a chain of views": (
        "float[1,3,8,8] x",
        "float[3,64] o, float[1,4,8,8] y",
        (
            f"s = Constant<value_ints=[3,64]>() a = Transpose<perm=[0,1,3,2]>(x) "
            f"o = Reshape(a, s) y = {CONV}(x, w)"
        ),
        ["o"],
        ["Transpose"],
    ),
    "channels last, moved for both": (
        "float[1,8,8,3] x",
        "float[1,3,8,8] o, float[1,4,8,8] y",
        f"o = Transpose<perm=[0,3,1,2]>(x) y = {CONV}(o, w)",
        ["o"],
        ["Transpose"],
    ),
    "moved for a convolution and for a host operator": (
        "float[1,8,8,3] x",
        "float[1,3,8,8] o, float[1,4,8,8] y",
        f"t = Transpose<perm=[0,3,1,2]>(x) o = CumSum(t, one) y = {CONV}(t, w)",
        ["o"],
        ["CumSum", "Transpose"],
    ),
    "a slice and a concat": (
        "float[1,3,8,8] x, float[1,3,8,8] z",
        "float[1,6,8,8] o, float[1,3,4,8] p, float[1,4,8,8] y",
        (
            "o = Concat<axis=1>(x, z) a = Constant<value_ints=[0]>() "
            "b = Constant<value_ints=[4]>() c = Constant<value_ints=[2]>() "
            f"p = Slice(x, a, b, c) y = {CONV}(x, w)"
        ),
        ["o", "p"],
        None,
    ),
    "pixels into channels, for both": (
        "float[1,1,8,8] x",
        "float[1,4,4,4] o, float[1,4,4,4] y",
        f"t = SpaceToDepth<blocksize=2>(x) o = CumSum(t, one) y = {CONV}(t, v)",
        ["o"],
        None,
    ),
    "a split beside": (
        "float[1,4,8,8] x",
        "float[1,2,8,8] o, float[1,2,8,8] p, float[1,4,8,8] y",
        f"o, p = Split<axis=1>(x) y = {CONV}(x, v)",
        ["o", "p"],
        None,
    ),
    "half precision through casts": (
        "float16[1,3,8,8] x",
        "float16[1,3,8,8] o, float16[1,4,8,8] y",
        f"o = Identity(x) a = Cast<to=1>(x) b = {CONV}(a, w) y = Cast<to=10>(b)",
        ["o"],
        [],
    ),
    "half precision and back": (
        "float16[1,3,8,8] x",
        "float16[1,3,8,8] o, float[1,4,8,8] y",
        f"a = Cast<to=1>(x) o = Cast<to=10>(a) y = {CONV}(a, w)",
        ["o"],
        None,
    ),
    "integers and truths": (
        "float[1,3,8,8] x, int64[1,5] n, bool[4] b, uint8[1,3,8,8] u",
        "int64[1,5] i, bool[4] t, uint8[1,3,8,8] v, float[1,4,8,8] y",
        (
            f"i = Identity(n) t = Identity(b) v = Identity(u) f = Cast<to=1>(u) s = Add(x, f) "
            f"y = {CONV}(s, w)"
        ),
        ["i", "t", "v"],
        [],
    ),
    "a host operator reads the input too": (
        "float[1,3,8,8] x",
        "float[1,3,8,8] o, float[1,4,8,8] y",
        f"o = CumSum(x, one) y = {CONV}(x, w)",
        ["o"],
        ["CumSum"],
    ),
    "views between host operators": (
        "float[1,3,8,8] x",
        "float[1,64,3,1] o, float[1,4,8,8] y",
        (
            f"a = CumSum(x, one) s = Constant<value_ints=[1,64,3,1]>() r = Reshape(a, s) "
            f"o = CumSum(r, one) y = {CONV}(x, w)"
        ),
        ["o"],
        None,
    ),
    "no convolution at all": (
        "float[1,3,8,8] x",
        "float[1,8,3,8] o",
        "a = Transpose<perm=[0,2,1,3]>(x) o = Identity(a)",
        ["o"],
        ["Transpose"],
    ),
    "every other channel of an input": (
        "float[1,4,8,8] x, float[1,3,8,8] z",
        "float[1,2,8,8] o, float[1,4,8,8] y",
        (
            "a = Constant<value_ints=[0]>() b = Constant<value_ints=[4]>() "
            "c = Constant<value_ints=[1]>() d = Constant<value_ints=[2]>() "
            f"o = Slice(x, a, b, c, d) y = {CONV}(z, w)"
        ),
        ["o"],
        ["shuffle"],
    ),
    "every other column of an input": (
        "float[1,3,8,8] x",
        "float[1,3,8,4] o, float[1,4,8,8] y",
        (
            "a = Constant<value_ints=[0]>() b = Constant<value_ints=[8]>() "
            "c = Constant<value_ints=[3]>() d = Constant<value_ints=[2]>() "
            f"o = Slice(x, a, b, c, d) y = {CONV}(x, w)"
        ),
        ["o"],
        ["max_pool"],
    ),
    "every other column, for a convolution too": (
        "float[1,3,64] x",
        "float[1,3,8,4] o, float[1,4,8,4] y",
        (
            "s = Constant<value_ints=[1,3,8,8]>() m = Reshape(x, s) "
            "a = Constant<value_ints=[0]>() b = Constant<value_ints=[8]>() "
            "c = Constant<value_ints=[3]>() d = Constant<value_ints=[2]>() "
            f"o = Slice(m, a, b, c, d) y = {CONV}(o, w)"
        ),
        ["o"],
        None,
    ),
    "a shuffle of an input": (
        "float[1,4,8,8] x",
        "float[1,4,8,8] o, float[1,4,8,8] y",
        (
            "a = Constant<value_ints=[1,2,2,8,8]>() b = Constant<value_ints=[1,4,8,8]>() "
            "r = Reshape(x, a) t = Transpose<perm=[0,2,1,3,4]>(r) "
            f"o = Reshape(t, b) y = {CONV}(x, v)"
        ),
        ["o"],
        ["shuffle"],
    ),
    "a roll of an input": (
        "float[1,3,8,8] x",
        "float[1,3,8,8] o, float[1,4,8,8] y",
        (
            "a = Constant<value_ints=[0]>() b = Constant<value_ints=[3]>() "
            "c = Constant<value_ints=[8]>() d = Constant<value_ints=[2]>() "
            "f = Slice(x, a, b, d) r = Slice(x, b, c, d) "
            f"o = Concat<axis=2>(r, f) y = {CONV}(x, w)"
        ),
        ["o"],
        ["Slice", "Slice", "concat"],
    ),
}


def model(name: str) -> onnx.ModelProto:
    inputs, outputs, body, *_ = CASES[name]
    text = f"{HEADER} g ({inputs}) => ({outputs}) <int64 one = {{1}}> {{ {body} }}"
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(5)
    for weight, channels in (("w", 3), ("v", 4)):
        data = rng.normal(size=(4, channels, 3, 3)).astype(np.float32)
        if any(weight in node.input for node in proto.graph.node):
            proto.graph.initializer.append(onnx.numpy_helper.from_array(data, weight))
    onnx.checker.check_model(proto)
    return proto


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_what_nothing_quantised_touches_is_exact(name, tmp_path):
    *_, exact, host = CASES[name]
    path, hw = tmp_path / "model.onnx", opu_fuse.load_hw("opu-light")
    onnx.save(model(name), path)
    done = compile_model(str(path), hw)
    opu_fuse.Program(bundle=done.bundle, hw=hw).save(tmp_path / "model.opu")
    program = opu_fuse.Program.load(tmp_path / "model.opu")
    inputs = noise(program.bundle)
    result = program.run(inputs, capture=True)
    right = of_the_users_file(path, inputs)
    assert list(result.outputs) == list(right)
    for output, got in result.outputs.items():
        assert (got.dtype, got.shape) == (right[output].dtype, right[output].shape)
        assert output not in exact or np.array_equal(got, right[output]), output
    if program.bundle.qdq:
        found = check(program.bundle, inputs, result)
        assert found.passed or not program.bundle.groups
    ops = sorted(done.dfg[op.node].op.removeprefix("host:") for op in done.partition.host)
    assert host is None or ops == host
    dfg, floating = partition_model(str(path), hw)  # the same partition
    assert ops == sorted(dfg[op.node].op.removeprefix("host:") for op in floating.host)
    assert [len(g.matches) for g in floating.groups] == [
        len(g.matches) for g in done.partition.groups
    ]


@pytest.mark.filterwarnings("ignore")
def test_several_samples_and_batches_keep_what_is_exact(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(model("identity of a convolution's input"), path)
    x = np.random.default_rng(3).normal(size=(5, 3, 8, 8)).astype(np.float32)
    for batch in (1, 2):
        program = opu_fuse.compile(str(path), "opu-light", batch=batch)
        assert np.array_equal(program.run({"x": x}).outputs["o"], x)


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_model_that_reads_its_input_unrounded_rounds_it_in_the_port(tmp_path):
    text = f"""{HEADER} g (float[1,3,8,8] x) => (float[1,3,8,8] o, float[1,4,8,8] y)
      <float s = {{0.0625}}, int8 z = {{0}}> {{
        o = CumSum(x, one) q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
        c = {CONV}(d, e) p = QuantizeLinear(c, s, z) y = DequantizeLinear(p, s, z)
      }}"""
    proto = onnx.parser.parse_model(text)
    weight = np.random.default_rng(2).integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    constants = {"k": weight, "ws": np.float32(2**-7), "one": np.int64(1)}
    for name, data in constants.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(data), name))
    proto.graph.node.insert(0, onnx.helper.make_node("DequantizeLinear", ["k", "ws", "z"], ["e"]))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    hw = opu_fuse.load_hw("opu-light")
    done = compile_model(str(path), hw)
    assert [done.dfg[op.node].op for op in done.partition.host] == ["host:CumSum"]
    program = opu_fuse.Program(bundle=done.bundle, hw=hw)
    inputs = noise(program.bundle)
    outputs = program.run(inputs).outputs
    for name, right in of_the_users_file(path, inputs).items():
        assert np.array_equal(outputs[name], right)
