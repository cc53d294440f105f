"""The digits example: the script trains, exports what it trained, never sees held-out images."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    pytest.importorskip("sklearn", reason="extra `dev` is not installed")
    spec = importlib.util.spec_from_file_location("train_digits", EXAMPLES / "train_digits.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_epoch_learns_something_and_the_export_computes_the_same(script: ModuleType):
    images, labels = script.digits()
    net = script.train(images[360:1000], labels[360:1000], 1)
    assert script.accuracy(net, images[:360], labels[:360]) > 0.2
    model = ir.to_proto(script.export(net))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    batch = images[:40]
    logits = session.run(None, {"image": np.ascontiguousarray(batch.transpose(0, 3, 1, 2))})[0]
    np.testing.assert_allclose(
        np.asarray(logits), net.forward(batch, training=False), rtol=1e-3, atol=1e-4
    )


def test_gradients_are_those_of_the_loss(script: ModuleType, rng: np.random.Generator):
    net = script.network(rng)
    images = rng.random((6, 8, 8, 1)).astype(np.float32)
    direction = rng.standard_normal((6, 10)).astype(np.float32)
    net.forward(images, training=True)
    net.backward(direction)
    for name, layer in net.leaves():
        for key, gradient in layer.gradients.items():
            step = np.float32(1e-2) * rng.standard_normal(gradient.shape).astype(np.float32)
            weight = layer.weights[key]
            values = []
            for sign in (1.0, -1.0):
                layer.weights[key] = weight + np.float32(sign) * step
                values.append(float((net.forward(images, training=True) * direction).sum()))
            layer.weights[key] = weight
            slope, expected = (values[0] - values[1]) / 2.0, float((gradient * step).sum())
            assert slope == pytest.approx(expected, rel=0.15, abs=0.05), f"{name}.{key}"


def test_the_files_are_those_of_the_script(script: ModuleType):
    images, labels = script.digits()
    images = images.transpose(0, 3, 1, 2)
    held_out = np.load(EXAMPLES / "digits" / "heldout.npz")
    calibration = np.load(EXAMPLES / "digits" / "calibration.npz")["image"]
    assert np.array_equal(held_out["images"], images[:360])
    assert np.array_equal(held_out["labels"], labels[:360])
    assert np.array_equal(calibration, images[360:460])
    assert (EXAMPLES / "digits" / "digits.onnx").stat().st_size < 300_000


def test_no_held_out_image_was_trained_on(script: ModuleType):
    images, _ = script.digits()
    flat = [image.tobytes() for image in images]
    assert not set(flat[:360]) & set(flat[360:])
