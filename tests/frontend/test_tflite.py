"""TFLite files: refused in one line, or read by tf2onnx with the file's own scales."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from opu_fuse.errors import ModelError
from opu_fuse.frontend import tflite
from opu_fuse.frontend.load import load
from opu_fuse.hw.load import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.compare import check
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
