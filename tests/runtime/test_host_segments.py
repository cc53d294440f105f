"""Host segments in C against ONNX Runtime: the same bits where values only move or integers are
computed, a stated tolerance for functions of floats.
"""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from opu_fuse import zoo
from opu_fuse.bundle.file import load, save
from opu_fuse.errors import ModelError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import compile_model
from opu_fuse.sim import engine
from opu_fuse.sim.ports import noise
from tests.runtime.libopu import File, Session, Status

TINY = load_hw("opu-tiny")
X = (1, 4, 6, 5)
EXACT = {
    "reshape": ("Reshape", [np.array([2, 60])], {}),
    "transpose": ("Transpose", [], {"perm": [0, 2, 3, 1]}),
    "flip": ("Slice", [np.array([-1]), np.array([-7]), np.array([2]), np.array([-1])], {}),
    "strided": ("Slice", [np.array([1]), np.array([5]), np.array([2]), np.array([2])], {}),
    "gather": ("Gather", [np.array([3, 0, 0, 2, 1])], {"axis": 1}),
    "tile": ("Tile", [np.array([1, 2, 1, 3])], {}),
    "depth": ("DepthToSpace", [], {"blocksize": 2, "mode": "CRD"}),
    "nearest": (
        "Resize",
        [np.zeros(0, np.float32), np.array([1, 1, 1.7, 2.5], np.float32)],
        {"mode": "nearest", "coordinate_transformation_mode": "half_pixel"},
    ),
    "clip": ("Clip", [np.float32(-0.5), np.float32(0.25)], {}),
    "add": ("Add", [np.arange(5, dtype=np.float32)], {}),
    "div": ("Div", [np.float32(3)], {}),
    "abs": ("Abs", [], {}),
    "max pool": ("MaxPool", [], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    "largest": ("ReduceMax", [], {"axes": [2]}),
    "argmax": ("ArgMax", [], {"axis": 1}),
    "argmin of rows": ("ArgMin", [], {"axis": -1, "keepdims": 0, "select_last_index": 1}),
    "pad": ("Pad", [np.array([0, -1, 2, 0, 0, 1, -1, 3]), np.float32(7)], {}),
    "reflected": ("Pad", [np.array([0, 0, 2, 1, 0, 0, 1, 3])], {"mode": "reflect"}),
    "triangle": ("Trilu", [np.array(-1)], {"upper": 0}),
    "remainder": ("Mod", [np.array([0.7, -0.3, np.inf, 2, 1e-3], np.float32)], {"fmod": 1}),
    "not a number": ("IsNaN", [], {}),
    "infinite": ("IsInf", [], {}),
}
INTEGERS = {
    "power": ("Pow", [np.array(7, np.int64)], {}),
    "quotient": ("Div", [np.array([3, -3, 7, 1, -1], np.int64)], {}),
    "modulo": ("Mod", [np.array([3, -3, 7, 1, -1], np.int64)], {}),
    "running sum": ("CumSum", [np.array(3)], {"exclusive": 1, "reverse": 1}),
    "running sum of channels": ("CumSum", [np.array(1)], {}),
    "one hot": ("OneHot", [np.array(6), np.array([2, 9], np.float32)], {"axis": 1}),
}
CLOSE = {
    "softmax": ("Softmax", [], {"axis": 1}),
    "softmax of rows": ("Softmax", [], {"axis": -1}),
    "log softmax": ("LogSoftmax", [], {"axis": 2}),
    "sigmoid": ("Sigmoid", [], {}),
    "tanh": ("Tanh", [], {}),
    "exp": ("Exp", [], {}),
    "erf": ("Erf", [], {}),
    "elu": ("Elu", [], {"alpha": 0.7}),
    "softplus": ("Softplus", [], {}),
    "mean": ("ReduceMean", [], {"axes": [1, 3], "keepdims": 0}),
    "sum": ("ReduceSum", [np.array([2, 3])], {}),
    "layer norm": (
        "LayerNormalization",
        [np.linspace(0.5, 2, 30, dtype=np.float32).reshape(6, 5), np.ones((6, 5), np.float32)],
        {"axis": 2},
    ),
    "linear": (
        "Resize",
        [np.zeros(0, np.float32), np.array([1, 1, 1.7, 2.5], np.float32)],
        {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    ),
    "cubic": (
        "Resize",
        [np.zeros(0, np.float32), np.zeros(0, np.float32), np.array([1, 4, 9, 3])],
        {"mode": "cubic", "coordinate_transformation_mode": "align_corners"},
    ),
    "sine": ("Sin", [], {}),
    "cosine": ("Cos", [], {}),
    "a body of others": ("Celu", [], {"alpha": 2.0}),
    "a body with sizes": ("MeanVarianceNormalization", [], {"axes": [0, 2]}),
    "instance norm": (
        "InstanceNormalization",
        [np.linspace(0.5, 2, 4, dtype=np.float32), np.linspace(-1, 1, 4, dtype=np.float32)],
        {},
    ),
    "einsum": (
        "Einsum",
        [np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)],
        {
            "equation": "bchw,kh->bkc",
        },
    ),
    "matrix and vector": ("MatMul", [np.linspace(-1, 1, 5, dtype=np.float32)], {}),
    "average": (
        "AveragePool",
        [],
        {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1},
    ),
    "average of padding": (
        "AveragePool",
        [],
        {"kernel_shape": [3, 3], "strides": [1, 2], "pads": [1] * 4, "count_include_pad": 1},
    ),
    "grouped": (
        "Conv",
        [np.linspace(-1, 1, 6 * 2 * 6, dtype=np.float32).reshape(6, 2, 3, 2), np.ones(6, "f4")],
        {"group": 2, "strides": [1, 2], "dilations": [2, 1], "pads": [2, 1, 2, 0]},
    ),
    "matmul": ("MatMul", [np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)], {}),
}
RELATIVE = 2e-6
"""Of the largest result: exponentials are within one step of float32, sums within their length."""


def model_of(op, constants, attributes, dtype=TensorProto.FLOAT):
    """One operator between the user's input and output, in floats."""
    names = [f"c{n}" for n in range(len(constants))]
    node = helper.make_node(op, ["x", *names], ["y"], name="only", **attributes)
    known = [
        numpy_helper.from_array(np.asarray(c), n) for n, c in zip(names, constants, strict=True)
    ]
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", dtype, X)],
        [helper.make_empty_tensor_value_info("y")],
        known,
    )
    opset = [helper.make_opsetid("", 17)]
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opset, ir_version=10)
    )


def joined_model(channels=3):
    """Two convolutions whose results are joined on the host of machines without concat."""
    rng = np.random.default_rng(1)
    shapes = {
        "a": (channels, 4, 3, 3),
        "b": (channels + 2, 4, 1, 1),
        "c": (4, 2 * channels + 2, 1, 1),
    }
    weights = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["p"], name="p", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["x", "b"], ["q"], name="q"),
        helper.make_node("Concat", ["p", "q"], ["r"], name="join", axis=1),
        helper.make_node("Conv", ["r", "c"], ["y"], name="y"),
    ]
    graph = helper.make_graph(
        nodes,
        "joined",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, X)],
        weights,
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10)


def compiled(model, tmp_path, spec=TINY, **options):
    bundle = compile_model(model, spec, Options(host="c", **options)).bundle
    path = tmp_path / "x.opu"
    save(bundle, path)
    return bundle, path


def both(bundle, path, spec=TINY, images=1, seed=3):
    """Outputs of Python, and of libopu."""
    inputs = {k: np.concatenate([v] * images)[:images] for k, v in noise(bundle, seed).items()}
    for array in inputs.values():
        array[...] = np.random.default_rng(seed).permuted(array, axis=0)
    expected = engine.run(bundle, spec, inputs).outputs
    file = File(path.read_bytes())
    assert file.status == Status.OK, file.sizes.what
    assert file.refused == ""
    session = Session(file)
    assert session.status == Status.OK
    status, got = session.run([inputs[p.name] for p in bundle.inputs], images=images)
    assert status is Status.OK
    return expected, got


@pytest.mark.parametrize("name", [*EXACT, *CLOSE])
def test_an_operator_on_the_host(name, tmp_path):
    model = model_of(*{**EXACT, **CLOSE}[name])
    bundle, path = compiled(model, tmp_path, keep_float=("only",))
    assert any(op.op for s in bundle.segments for op in getattr(s, "ops", ()))
    expected, got = both(bundle, path)
    assert got["y"].shape == expected["y"].shape
    if name in EXACT:
        assert got["y"].tobytes() == expected["y"].tobytes()
    else:
        np.testing.assert_allclose(
            got["y"], expected["y"], rtol=RELATIVE, atol=RELATIVE * np.abs(expected["y"]).max()
        )


@pytest.mark.parametrize("name", INTEGERS)
def test_an_operator_of_integers(name, tmp_path):
    bundle, path = compiled(model_of(*INTEGERS[name], dtype=TensorProto.INT64), tmp_path)
    x = np.random.default_rng(1).integers(-9, 9, size=X)
    status, got = Session(File(path.read_bytes())).run([x])
    assert status is Status.OK
    assert got["y"].tobytes() == engine.run(bundle, TINY, {"x": x}).outputs["y"].tobytes()


def written(text):
    """A model in onnx's own notation."""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {text}')


RECURRENT = {
    "LSTM": (4, {"direction": "bidirectional"}),
    "GRU": (3, {"direction": "reverse"}),
    "GRU before its product": (3, {"linear_before_reset": 1}),
    "RNN": (1, {}),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_a_recurrent_operator_is_unrolled(name, tmp_path):
    """7 steps, 2 sequences, 5 inputs, 3 outputs."""
    gates, attributes = RECURRENT[name]
    op, ways = name.split()[0], 1 + (attributes.get("direction") == "bidirectional")
    rng = np.random.default_rng(4)
    shapes = {"w": (gates * 3, 5), "r": (gates * 3, 3), "b": (gates * 6,), "": (), "h": (2, 3)}
    known = [
        numpy_helper.from_array(rng.normal(size=(ways, *shape)).astype("f4"), key)
        for key, shape in shapes.items()
        if key
    ]
    outputs = {"y": (7, ways, 2, 3), "last": (ways, 2, 3)}
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *shapes], [*outputs], hidden_size=3, **attributes)],
        "recurrent",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (7, 2, 5))],
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, s) for k, s in outputs.items()],
        known,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    bundle, path = compiled(model, tmp_path)
    x = rng.normal(size=(7, 2, 5)).astype("f4")
    expected = engine.run(bundle, TINY, {"x": x}).outputs
    status, got = Session(File(path.read_bytes())).run([x])
    assert status is Status.OK
    for key in outputs:
        np.testing.assert_allclose(got[key], expected[key], rtol=1e-5, atol=1e-6)


def top_model(axis, largest):
    """The five first along an axis."""
    return onnx.shape_inference.infer_shapes(
        written(f"""agraph (int32[2, 9, 7] x) => (int32[?, ?, ?] v, int64[?, ?, ?] i)
        <int64[1] k = {{5}}> {{ v, i = TopK<axis = {axis}, largest = {largest}>(x, k) }}""")
    )


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("largest", [0, 1])
def test_the_k_first_of_equal_values_are_those_with_the_least_index(axis, largest, tmp_path):
    _, path = compiled(top_model(axis, largest), tmp_path)
    x = np.random.default_rng(2).integers(-3, 3, (2, 9, 7), np.int32)
    status, got = Session(File(path.read_bytes())).run([x])
    assert status is Status.OK
    order = np.argsort(-x if largest else x, axis=axis, kind="stable").take(range(5), axis)
    assert np.array_equal(got["i"], order)
    assert np.array_equal(got["v"], np.take_along_axis(x, order, axis))


LOOKUPS = {
    "Gather<axis = 1>": ((4, 2), (5,)),
    "GatherElements<axis = 2>": ((3, 5, 4), (6,)),
    "GatherND": ((4, 2), (3, 5)),
    "GatherND<batch_dims = 1>": ((3, 1), (5,)),
}
"""Operator -> shape of its indices, and sizes of the axes that they are of."""


def lookup_model(operator):
    """An operator whose indices are an input."""
    shape, _ = LOOKUPS[operator]
    model = written(f"""agraph (float[3, 5, 6] x, int64{list(shape)} i) => (float y)
        {{ y = {operator}(x, i) }}""")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("operator", LOOKUPS)
def test_computed_indices_are_looked_up_and_refused_outside(operator, tmp_path):
    shape, limits = LOOKUPS[operator]
    limit = min(limits)
    bundle, path = compiled(lookup_model(operator), tmp_path)
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=(3, 5, 6)).astype("f4"), rng.integers(-limit, limit, shape)]
    expected = engine.run(bundle, TINY, dict(zip(("x", "i"), inputs, strict=True))).outputs
    session = Session(File(path.read_bytes()))
    status, got = session.run(inputs)
    assert status is Status.OK
    assert got["y"].tobytes() == expected["y"].tobytes()
    for wrong in (6, -7):
        inputs[1].flat[-1] = wrong
        assert session.run(inputs)[0] is Status.BAD_INDEX


@pytest.mark.parametrize("batch", [1, 2])
def test_host_segments_between_those_of_the_machine(batch, tmp_path):
    bundle, path = compiled(joined_model(), tmp_path, batch=batch)
    kinds = [hasattr(segment, "ops") for segment in bundle.segments]
    assert True in kinds[1:-1]
    expected, got = both(bundle, path, images=3)
    assert got["y"].tobytes() == expected["y"].tobytes()


@pytest.mark.parametrize(
    ("name", "machine"), [("efficientnet_b0", "opu-1024"), ("yolov3_tiny", "opu-tiny")]
)
@pytest.mark.nightly
def test_networks_of_the_zoo(name, machine, tmp_path):
    spec = load_hw(machine)
    bundle, path = compiled(zoo.build(name, image=64), tmp_path, spec)
    expected, got = both(bundle, path, spec)
    assert all(got[k].tobytes() == expected[k].tobytes() for k in expected)


def test_an_operator_without_a_form_in_c_is_refused_by_name(tmp_path):
    model = model_of("GridSample", [np.zeros((1, 2, 2, 2), np.float32)], {})
    text = r"host operator only: GridSample has no C form.*compile without --host c"
    with pytest.raises(ModelError, match=text):
        compiled(model, tmp_path, keep_float=("only",))


def test_a_kernel_with_more_operands_than_libopu_takes_is_refused(tmp_path):
    constants = [np.full(5, n, np.float32) for n in range(63)]
    most = model_of("Max", constants[:-1], {})
    expected, got = both(*compiled(most, tmp_path, keep_float=("only",)))
    assert np.array_equal(got["y"], expected["y"])
    with pytest.raises(ModelError, match=r"the kernel of y has 65 operands, libopu takes 64"):
        compiled(model_of("Max", constants, {}), tmp_path, keep_float=("only",))


def test_an_input_that_libopu_does_not_take_is_refused_by_name(tmp_path):
    model = model_of("Identity", [], {}, TensorProto.BFLOAT16)
    with pytest.raises(ModelError, match=r"input x is bfloat16: libopu takes.*without --host c"):
        compiled(model, tmp_path)


def test_a_program_for_onnxruntime_says_what_it_needs(tmp_path):
    bundle = compile_model(joined_model(), TINY).bundle
    path = tmp_path / "x.opu"
    save(bundle, path)
    file = File(path.read_bytes())
    assert file.status == Status.OK
    assert file.refused == "join (concat) on the host: compile with --host c"
    assert Session(file).status == Status.UNSUPPORTED


def test_steps_survive_loading_and_saving(tmp_path):
    bundle, path = compiled(joined_model(), tmp_path)
    again = tmp_path / "again.opu"
    save(load(path), again)
    assert again.read_bytes() == path.read_bytes()
    assert load(path).host_steps == bundle.host_steps


def test_inputs_that_no_operator_of_the_machine_reads_pass_through(tmp_path):
    model = model_of("Transpose", [], {"perm": [0, 3, 1, 2]}, TensorProto.INT64)
    bundle, path = compiled(model, tmp_path)
    expected, got = both(bundle, path, images=2)
    assert got["y"].dtype == np.int64
    assert np.array_equal(got["y"], expected["y"])
