"""Host segments carry tensors of every numeric type and shape, and say so where they cannot."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from opu_fuse.bundle.file import load, save
from opu_fuse.bundle.program import UNKNOWN, Port
from opu_fuse.dtypes import numpy_dtype
from opu_fuse.errors import ModelError, RunError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import from_value, samples_of, to_value
from tests.bundle.sample import sample_bundle
from tests.host.sketch import same_bits

HW = load_hw("opu-tiny")
ORT_VERSION = tuple(int(n) for n in ort.__version__.split(".")[:2])
OF_ONNX = {"float32": "float", "float64": "double"}
NUMBERS = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("bool", "float32"),
)


def outputs_of(text, inputs, tmp_path):
    """What the saved and loaded program computes."""
    model = onnx.parser.parse_model(text)
    compiled = compile_model(ir.from_proto(model), HW, calibration_of(inputs))
    save(compiled.bundle, tmp_path / "p.opu")
    return run(load(tmp_path / "p.opu"), HW, inputs).outputs


def calibration_of(inputs):
    return Options(calibration=inputs)


def graph(signature, body, opset=17):
    return f'<ir_version: 10, opset_import: ["" : {opset}]>\ng {signature} {{ {body} }}'


@pytest.mark.parametrize("dtype", NUMBERS)
def test_values_of_any_type_and_shape_pass_through_the_host(dtype, rng, tmp_path):
    kind, shapes = OF_ONNX.get(dtype, dtype), {"a": (), "b": (3,), "c": (1, 4, 2, 3), "d": (2, 0)}
    dims = {n: f"[{','.join(map(str, s))}]" if s else "" for n, s in shapes.items()}
    inputs = ", ".join(f"{kind}{dims[n]} {n}" for n in shapes)
    outputs = ", ".join(f"{kind}{dims[n]} {n}_out" for n in shapes)
    body = " ".join(f"{n}_out = Identity({n})" for n in shapes)
    x = {n: np.asarray(rng.integers(0, 100, s).astype(dtype)) for n, s in shapes.items()}
    found = outputs_of(graph(f"({inputs}) => ({outputs})", body), x, tmp_path)
    assert all(same_bits(found[f"{n}_out"], x[n]) for n in shapes)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_integer_operators_run_as_integers(dtype, tmp_path):
    text = graph(f"({dtype}[2,3] a, {dtype}[2,3] b) => ({dtype}[2,3] y)", "y = Add(a, b)", 14)
    a = np.arange(6, dtype=dtype).reshape(2, 3)
    found = outputs_of(text, {"a": a, "b": a + a}, tmp_path)
    assert same_bits(found["y"], a * np.array(3, dtype))


def test_results_of_different_types_leave_one_operator(rng, tmp_path):
    text = graph(
        "(float[1,3,4,5] x) => (float[1,3,4,2] y, int64[1,3,4,2] i)",
        "k = Constant<value = int64[1] {2}>() y, i = TopK(x, k)",
    )
    x = rng.permutation(60).reshape(1, 3, 4, 5).astype(np.float32)
    found = outputs_of(text, {"x": x}, tmp_path)
    order = np.argsort(-x, axis=3)[..., :2]
    assert same_bits(found["i"], order)
    assert same_bits(found["y"], np.take_along_axis(x, order, 3))


def test_outputs_that_are_constants_are_shown(tmp_path):
    text = graph(
        "(float[1,3,4,5] x) => (int64[4] s, float c)",
        "s = Shape(x) c = Constant<value = float {2.5}>()",
    )
    found = outputs_of(text, {"x": np.zeros((1, 3, 4, 5), np.float32)}, tmp_path)
    assert same_bits(found["s"], np.array([1, 3, 4, 5]))
    assert same_bits(found["c"], np.array(2.5, np.float32))


def test_an_output_may_have_as_many_rows_as_the_data_say(tmp_path):
    text = graph("(float[1,6] x) => (int64[2,n] y)", "y = NonZero(x)")
    x = np.array([[0, 3, 0, 1, 0, 2]], np.float32)
    compiled = compile_model(ir.from_proto(onnx.parser.parse_model(text)), HW)
    assert compiled.bundle.outputs[0].shape == (2, UNKNOWN)
    assert outputs_of(text, {"x": x}, tmp_path)["y"].tolist() == [[0, 0, 0], [1, 3, 5]]
    two = np.concatenate([x, np.ones_like(x)])
    with pytest.raises(RunError, match=r"output y: has another shape for every sample"):
        run(compiled.bundle, HW, {"x": two})


def test_an_operator_set_newer_than_the_runtime_is_lowered_where_nothing_changed(rng, tmp_path):
    newest = onnx.defs.onnx_opset_version()
    text = graph("(float[3,4] x) => (float[3,4] y)", "y = Sinh(x)", newest)
    x = rng.normal(size=(3, 4)).astype(np.float32)
    found = outputs_of(text, {"x": x}, tmp_path)["y"]
    np.testing.assert_allclose(found, np.sinh(x), rtol=1e-6)


def test_a_network_of_the_newest_operator_set_is_the_network_of_an_older_one(rng):
    text = """<ir_version: 10, opset_import: ["" : {}]>
        g (float[1,2,4,4] x) => (float[1,1,4,4] y) <float[1,2,1,1] w = {{0.5, -0.25}}>
        {{ c = Conv(x, w) r = Relu(c) y = Celu(r) }}"""
    opsets = (17, onnx.defs.onnx_opset_version())
    old, new = (
        compile_model(ir.from_proto(onnx.parser.parse_model(text.format(v))), HW).bundle
        for v in opsets
    )
    assert np.array_equal(old.words, new.words)
    x = {"x": rng.normal(size=(1, 2, 4, 4)).astype(np.float32)}
    result = run(new, HW, x, capture=True)
    assert check(new, x, result).passed


def test_an_operator_that_takes_more_types_since_keeps_what_it_did(tmp_path):
    newest = onnx.defs.onnx_opset_version()
    text = graph(
        "(uint8[1,3] x, uint8[1,3] n) => (uint8[1,3] y)",
        'y = BitShift<direction = "RIGHT">(x, n)',
        newest,
    )
    x, n = np.array([[200, 7, 16]], np.uint8), np.array([[1, 2, 4]], np.uint8)
    assert outputs_of(text, {"x": x, "n": n}, tmp_path)["y"].tolist() == [[100, 1, 1]]


@pytest.mark.skipif(
    ORT_VERSION < (1, 32), reason="ONNX Runtime knows these forms of set 28 from 1.32 on"
)
def test_what_only_the_newest_operator_set_has_keeps_its_stamp(tmp_path):
    """Types and meanings that came with set 28: no older stamp would do."""
    signature = "(int8[1,3] x, int8[1,3] n) => (int8[1,3] y)"
    text = graph(signature, 'y = BitShift<direction = "LEFT">(x, n)', 28)
    x, n = np.array([[-3, 7, 16]], np.int8), np.array([[1, 2, 1]], np.int8)
    assert outputs_of(text, {"x": x, "n": n}, tmp_path)["y"].tolist() == [[-6, 28, 32]]
    text = graph("(float[1,2] x, float[1,2] n) => (float[1,2] y)", "y = Mod(x, n)", 28)
    x, n = np.array([[-4.5, 7.0]], np.float32), np.array([[2.0, -4.0]], np.float32)
    assert outputs_of(text, {"x": x, "n": n}, tmp_path)["y"].tolist() == [[1.5, -1.0]]


def test_infinities_stay_where_a_cast_says_so(tmp_path):
    e5m2 = onnx.TensorProto.FLOAT8E5M2
    like = onnx.helper.make_tensor("like", e5m2, [0], [])
    node = onnx.helper.make_node("CastLike", ["x", "like"], ["y"], saturate=0)
    model = onnx.parser.parse_model(graph("(float[1,2] x) => (float[1,2] y)", "", 19))
    model.graph.node.append(node)
    model.graph.initializer.append(like)
    model.graph.output[0].type.tensor_type.elem_type = e5m2
    bundle = compile_model(ir.from_proto(model), HW).bundle
    found = run(bundle, HW, {"x": np.array([[1e6, 1.0]], np.float32)}).outputs["y"]
    assert found.astype(np.float32).tolist() == [[np.inf, 1.0]]


def test_only_single_images_and_rows_are_rounded(rng, tmp_path):
    text = graph("(float[3,4] x) => (float[3,4] y)", "y = Add(x, x)")
    x = rng.normal(size=(3, 4)).astype(np.float32)
    assert same_bits(outputs_of(text, {"x": x}, tmp_path)["y"], x + x)


def test_a_model_that_the_runtime_cannot_load_is_refused_when_it_is_compiled():
    text = graph("(float[3,1,4] x, float[1,4,4] w, float[1,4,4] r) => (float[3,1,1,4] y)", "")
    node = onnx.helper.make_node("RNN", ["x", "w", "r"], ["y"], name="rnn", hidden_size=4, layout=1)
    model = onnx.parser.parse_model(text)
    model.graph.node.append(node)
    with pytest.raises(ModelError, match=r"host operator rnn: ONNX Runtime cannot run it"):
        compile_model(ir.from_proto(model), HW)


def test_values_at_which_the_runtime_stops_are_the_users(tmp_path):
    text = graph("(float[4,2] x, int64[3] i) => (float[3,2] y)", "[pick] y = Gather(x, i)")
    x = np.zeros((4, 2), np.float32)
    inputs = {"x": x, "i": np.array([0, 1, 3])}
    compiled = compile_model(
        ir.from_proto(onnx.parser.parse_model(text)), HW, calibration_of(inputs)
    )
    run(compiled.bundle, HW, inputs)
    with pytest.raises(RunError, match=r"host operator pick: .*indices element out of data bounds"):
        run(compiled.bundle, HW, {"x": x, "i": np.array([0, 1, 4])})


def test_a_declared_shape_that_the_data_contradict_is_the_users():
    text = """<ir_version: 10, opset_import: ["" : 17]>
        g (float[1,2,3,2] x, int64[4] n) => (float[1,2,3,4] y) <float[1,2,3,4] a>
        { a = Tile(x, n) b = Abs(a) c = Neg(b) y = Sub(c, a) }"""
    inputs = {"x": np.ones((1, 2, 3, 2), np.float32), "n": np.array([1, 1, 1, 2])}
    model = ir.from_proto(onnx.parser.parse_model(text))
    bundle = compile_model(model, HW, calibration_of(inputs)).bundle
    assert run(bundle, HW, inputs).outputs["y"].shape == (1, 2, 3, 4)
    for times in ([1, 1, 2, 1], [1, 1, 1, 3]):
        with pytest.raises(RunError, match=r"^host kernel: .* reads float32\[1, 2, 3, 4\]"):
            run(bundle, HW, inputs | {"n": np.array(times)})


@pytest.mark.parametrize("shape", [(2, 3), (3, 2, 1), (6,)], ids=str)
def test_an_output_of_another_shape_than_declared_is_the_users(shape):
    port = Port(name="y", dtype="float32", shape=(3, 2), value="y", scale=None, zero_point=0)
    value = np.zeros((3, 2), np.float32)
    assert same_bits(from_value(port, value, inside_int8=False), value)
    with pytest.raises(RunError, match=r"output y: has shape .*, the program says \[3, 2\]"):
        from_value(port, value.reshape(shape), inside_int8=False)


def test_a_single_number_can_be_checked():
    text = graph("(float x) => (float y)", "y = Relu(x)")
    bundle = compile_model(ir.from_proto(onnx.parser.parse_model(text)), HW).bundle
    x = {"x": np.array(-2.0, np.float32)}
    assert check(bundle, x, run(bundle, HW, x, capture=True)).passed


def test_a_nan_that_would_have_to_be_quantised_is_refused():
    text = graph("(float[1,4,2,2] x) => (float[1,4,2,2] y)", "y = Relu(x)")
    bundle = compile_model(ir.from_proto(onnx.parser.parse_model(text)), HW).bundle
    with pytest.raises(RunError, match=r"input x: holds NaN"):
        run(bundle, HW, {"x": np.full((1, 4, 2, 2), np.nan, np.float32)})


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint2"])
def test_a_value_of_a_type_that_numpy_has_not_comes_out_exactly(dtype, tmp_path):
    narrow = numpy_dtype(dtype)
    x = np.array([0, 1, 1, 0, 1], np.float32)
    kind = onnx.helper.np_dtype_to_tensor_dtype(narrow)
    node = onnx.helper.make_node("Cast", ["x"], ["y"], to=kind)
    model = onnx.parser.parse_model(graph("(float[1,5] x) => (float[1,5] y)", "", 25))
    model.graph.node.append(node)
    model.graph.output[0].type.tensor_type.elem_type = kind
    bundle = compile_model(ir.from_proto(model), HW).bundle
    save(bundle, tmp_path / "p.opu")
    found = run(load(tmp_path / "p.opu"), HW, {"x": x.reshape(1, -1)}).outputs["y"]
    assert found.dtype == narrow
    assert found.astype(np.float32).tolist() == [x.tolist()]


def test_a_map_between_two_host_segments_may_be_narrower_than_numpys_types(rng, tmp_path):
    text = graph(
        "(float[1,2,4,4] x) => (float[1,2,4,4] y, float[1,2,4,4] z)",
        "b = Cast<to = 16>(x) r = Relu(x) s = Softmax(r) c = Cast<to = 1>(b) y = Add(c, s)"
        " z = Cast<to = 1>(b)",
    )
    x = rng.integers(-16, 17, (1, 2, 4, 4)).astype(np.float32) / 16  # int8 and bfloat16 hold it
    assert same_bits(outputs_of(text, {"x": x}, tmp_path)["z"], x)


@pytest.mark.parametrize(
    "body",
    [
        "<float low = {1.0}, float high = {-1.0}>",
        "<float low = {nan}, float high = {1.0}>",
    ],
)
def test_bounds_without_an_order_stay_on_the_host(body, rng):
    text = f"""<ir_version: 10, opset_import: ["" : 17]>
        g (float[1,2,3,3] x) => (float[1,2,3,3] y) {body} {{ y = Clip(x, low, high) }}"""
    compiled = compile_model(ir.from_proto(onnx.parser.parse_model(text)), load_hw("opu-light"))
    assert [compiled.dfg[h.node].op for h in compiled.partition.host] == ["host:Clip"]
    run(compiled.bundle, load_hw("opu-light"), {"x": rng.normal(size=(1, 2, 3, 3)).astype("f")})


def test_a_padding_that_no_instruction_can_say_keeps_the_operator_on_the_host():
    text = """<ir_version: 10, opset_import: ["" : 17]>
        g (float[1,1,4,4] x) => (float[1,1,70004,4] y) <int64[8] p = {0,0,70000,0,0,0,0,0}>
        { [far] y = Pad(x, p) }"""
    compiled = compile_model(ir.from_proto(onnx.parser.parse_model(text)), HW)
    (op,) = compiled.partition.host
    assert "padding 70000" in op.reason


@pytest.mark.parametrize("dtype", ["bfloat16", "int4"])
def test_narrow_arrays_may_come_from_files_that_cannot_name_their_type(dtype):
    port = Port(name="x", dtype=dtype, shape=(3,), value="x", scale=None, zero_point=0)
    data = np.array([1, 0, 1], np.float32).astype(numpy_dtype(dtype))
    nameless = data.view(f"V{data.itemsize}")
    found, count = samples_of(sample_bundle(inputs=(port,)), {"x": nameless})
    assert count == 1
    assert to_value(port, found["x"][0], inside_int8=False).tolist() == [1, 0, 1]
