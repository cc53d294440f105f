"""TFLite files: refused in one line, or read by tf2onnx with the file's own scales."""

import importlib.util
import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import helper

from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing import tflite
from opu_fuse.frontend.importing.load import load
from opu_fuse.frontend.importing.tflite_process import dense, rewrite, stateful
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run

BYTES = b"\0\0\0\0TFL3 and no more"


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    (tmp_path / "net.tflite").write_bytes(BYTES)
    with pytest.raises(ModelError, match=r"not installed; pip install 'opu-fuse\[tflite\]'"):
        load(tmp_path / "net.tflite")


def test_what_cannot_be_converted_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(tflite.sys, "executable", "/bin/false")
    (tmp_path / "net.tflite").write_bytes(BYTES)
    with pytest.raises(ModelError, match=r"tf2onnx cannot convert it \(exit status 1\)"):
        load(tmp_path / "net.tflite")


def test_operators_that_onnx_has_not_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """tf2onnx lets them stand under the name TFL_…, which said that the graph is invalid."""
    node = helper.make_node("TFL_TransformLandmarks", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [], [])
    (tmp_path / "made").write_bytes(helper.make_model(graph).SerializeToString())

    def convert(command, **_):
        Path(command[-2]).write_bytes((tmp_path / "made").read_bytes())
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(tflite.subprocess, "run", convert)
    words = r"knows nothing in ONNX for .* \(TransformLandmarks\); leave the part"
    with pytest.raises(ModelError, match=words):
        tflite.to_onnx(BYTES, "net.tflite")


def test_what_a_network_remembers_with_is_named():
    codes = {"CALL_ONCE": 129, "VAR_HANDLE": 142, "READ_VARIABLE": 143, "ASSIGN_VARIABLE": 144}
    schema = SimpleNamespace(BuiltinOperator=SimpleNamespace(**codes))
    kinds = [
        SimpleNamespace(builtinCode=c, deprecatedBuiltinCode=min(c, 127)) for c in (3, 144, 142)
    ]
    used = [SimpleNamespace(opcodeIndex=index) for index in (0, 2, 2)]
    model = SimpleNamespace(operatorCodes=kinds, subgraphs=[SimpleNamespace(operators=used)])
    assert stateful(schema, model) == ["VAR_HANDLE"]


def _level(numbers: int | tuple[list[int], list[int]]) -> SimpleNamespace:
    """A level of a sparse tensor: its size, or segments and indices."""
    if isinstance(numbers, int):
        return SimpleNamespace(format=0, denseSize=numbers)
    segments, indices = (SimpleNamespace(values=n) for n in numbers)
    return SimpleNamespace(format=1, denseSize=0, arraySegments=segments, arrayIndices=indices)


@pytest.mark.parametrize(
    ("order", "blocks", "levels", "values"),
    [
        # rows, then columns where something stands
        ([0, 1], None, [4, ([0, 2, 2, 3, 5], [0, 3, 2, 1, 2])], [1, 2, 3, 4, 5]),
        # columns first
        ([1, 0], None, [4, ([0, 1, 2, 4, 5], [0, 3, 2, 3, 0])], [1, 4, 3, 5, 2]),
        # blocks of 2 x 2: two in the first row of blocks, one in the second
        (
            [0, 1, 2, 3],
            [0, 1],
            [2, ([0, 2, 4], [0, 1, 0, 1]), 2, 2],
            [1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 4, 3, 0, 5, 0],
        ),
    ],
)
def test_sparse_weights_are_put_where_they_belong(order, blocks, levels, values):
    sparsity = SimpleNamespace(
        traversalOrder=order, blockMap=blocks, dimMetadata=[_level(n) for n in levels]
    )
    whole = [[1, 0, 0, 2], [0, 0, 0, 0], [0, 0, 3, 0], [0, 4, 5, 0]]
    found = dense(np.array(values, np.float16), (4, 4), sparsity)
    assert found.dtype == np.float16
    assert found.tolist() == whole


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # of TensorFlow
@pytest.mark.parametrize("kind", ["sparse", "transposed"])
def test_what_tf2onnx_does_not_know_is_put_in_other_words(
    kind: str, tmp_path: Path, rng: np.random.Generator
):
    """Weights stored sparse, and the transposed convolution of MediaPipe: the same numbers as
    TFLite's interpreter has, of the latter from its own operator.
    """
    pytest.importorskip("tf2onnx", reason="extra `tflite` is not installed")
    tf = pytest.importorskip("tensorflow", reason="extra `tflite` is not installed")
    layers = tf.keras.layers
    given = tf.keras.Input((8, 8, 16), batch_size=1)
    x = layers.Conv2D(16, 1, activation="relu")(given)
    if kind == "transposed":
        x = layers.Conv2DTranspose(4, 2, strides=2, padding="same")(x)
    model = tf.keras.Model(given, x)
    for weight in model.weights:
        kept = rng.random(weight.shape) < 0.15 if kind == "sparse" else 1.0
        weight.assign(rng.normal(size=weight.shape) * kept)
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if kind == "sparse":
        converter.optimizations = [tf.lite.Optimize.EXPERIMENTAL_SPARSITY]
    data = converter.convert()
    theirs = tf.lite.Interpreter(model_content=data)
    theirs.allocate_tensors()
    (entry,), (end,) = theirs.get_input_details(), theirs.get_output_details()
    image = rng.normal(size=entry["shape"]).astype(np.float32)
    theirs.set_tensor(entry["index"], image)
    theirs.invoke()
    changed = data if kind == "sparse" else _as_mediapipe(data)
    assert rewrite(changed) != changed
    made = onnx.ModelProto.FromString(tflite.to_onnx(changed, "net.tflite"))
    (name,) = (v.name for v in made.graph.input)
    (found,) = session(made).run(None, {name: image})
    np.testing.assert_allclose(np.asarray(found), theirs.get_tensor(end["index"]), atol=1e-4)


def _as_mediapipe(data: bytes) -> bytes:
    """With TRANSPOSE_CONV, and the bias behind it, as the operator of MediaPipe."""
    import flatbuffers

    schema = importlib.import_module("tensorflow.lite.python.schema_py_generated")

    model = schema.ModelT.InitFromPackedBuf(data, 0)
    (graph,) = model.subgraphs
    codes = [max(c.builtinCode, c.deprecatedBuiltinCode) for c in model.operatorCodes]
    kinds = [codes[op.opcodeIndex] for op in graph.operators]
    at = kinds.index(schema.BuiltinOperator.TRANSPOSE_CONV)
    op = graph.operators[at]
    bias = op.inputs[3] if len(op.inputs) > 3 else graph.operators.pop(at + 1).inputs[1]
    op.inputs, op.outputs = [op.inputs[2], op.inputs[1], bias], graph.outputs
    op.builtinOptionsType, op.builtinOptions = 0, None
    op.customOptions = np.frombuffer(struct.pack("<3i", 1, 2, 2), np.uint8)
    code = model.operatorCodes[op.opcodeIndex]
    custom = schema.BuiltinOperator.CUSTOM
    code.builtinCode = code.deprecatedBuiltinCode = custom
    code.customCode = b"Convolution2DTransposeBias"
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # of TensorFlow
@pytest.mark.parametrize("integers", [False, True])
def test_a_network_has_tensorflows_answers(
    integers: bool, tmp_path: Path, rng: np.random.Generator
):
    """Ours against TFLite's own interpreter: the largest output the same, int8 ones within a few
    steps.
    """
    pytest.importorskip("tf2onnx", reason="extra `tflite` is not installed")
    tf = pytest.importorskip("tensorflow", reason="extra `tflite` is not installed")
    path, images = tmp_path / "net.tflite", rng.normal(size=(8, 1, 24, 24, 3)).astype(np.float32)
    path.write_bytes(_network(tf, rng, images if integers else None))
    hw = load_hw("opu-light")
    compiled = compile_model(path, hw)
    assert {compiled.dfg[op.node].op for op in compiled.partition.host} <= {
        "host:Transpose",
        "host:DequantizeLinear",
        "host:QuantizeLinear",
    }
    theirs = tf.lite.Interpreter(str(path))
    theirs.allocate_tensors()
    (entry,), (end,) = theirs.get_input_details(), theirs.get_output_details()
    if integers:
        scale, zero = entry["quantization"]
        images = np.clip(np.rint(images / scale) + zero, -128, 127).astype(np.int8)
    (name,) = (port.name for port in compiled.bundle.inputs)
    for image in images:
        theirs.set_tensor(entry["index"], image)
        theirs.invoke()
        wanted = theirs.get_tensor(end["index"]).astype(int if integers else float)
        result = run(compiled.bundle, hw, {name: image}, capture=True)
        assert check(compiled.bundle, {name: image}, result).passed
        (found,) = result.outputs.values()
        assert found.argmax() == wanted.argmax()
        assert not integers or np.abs(found - wanted).max() <= 3


def _network(tf, rng: np.random.Generator, images: np.ndarray | None) -> bytes:
    """A small residual network with depthwise and dense layers; images: to quantise it with."""
    layers = tf.keras.layers
    given = tf.keras.Input((24, 24, 3), batch_size=1)
    x = layers.ReLU(6.0)(layers.Conv2D(16, 3, strides=2, padding="same")(given))
    y = layers.ReLU()(layers.DepthwiseConv2D(3, padding="same")(x))
    x = layers.MaxPool2D()(layers.Add()([x, layers.Conv2D(16, 1)(y)]))
    x = layers.Conv2D(24, 3, strides=2, padding="same", activation="relu")(x)
    model = tf.keras.Model(given, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
    for weight in model.weights:
        weight.assign(rng.normal(scale=0.3, size=weight.shape))
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if images is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([image] for image in images)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()
