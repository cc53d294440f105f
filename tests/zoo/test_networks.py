"""The zoo: the right networks, the same every time, activations neither dying nor exploding."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from opu_fuse import zoo

IMAGE = {"resnet18": 64, "resnet50": 64, "vgg16": 32, "tiny_yolov2": 96}


def macs(model: ir.Model) -> int:
    total = 0
    for node in model.graph:
        if node.op_type in {"Conv", "Gemm"}:
            weight = node.inputs[1].const_value.shape.numpy()
            pixels = node.outputs[0].shape.numpy()[2:]
            total += int(np.prod(weight)) * int(np.prod(pixels))
    return total


def proto(name: str, **options: int) -> onnx.ModelProto:
    return ir.to_proto(zoo.build(name, image=IMAGE.get(name), **options))


@pytest.mark.parametrize("name", zoo.names())
def test_every_network_is_a_valid_float_model(name: str):
    model = proto(name)
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 17
    names = [n.name for n in model.graph.node]
    assert len(set(names)) == len(names)
    assert zoo.description(name)


@pytest.mark.parametrize("name", ["resnet18", "tiny_odd"])
def test_the_same_seed_gives_the_same_bytes(name: str):
    one, two, other = proto(name), proto(name), proto(name, seed=1)
    assert one.SerializeToString(deterministic=True) == two.SerializeToString(deterministic=True)
    assert one.SerializeToString(deterministic=True) != other.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("name", "expected"), [("resnet18", 1.814e9), ("resnet50", 4.089e9), ("tiny_yolov2", 3.49e9)]
)
def test_networks_have_the_published_size(name: str, expected: float):
    assert macs(zoo.build(name)) == pytest.approx(expected, rel=0.01)


def test_vgg16_has_the_published_layers():
    model = zoo.build("vgg16", image=32)
    types = [n.op_type for n in model.graph]
    assert (types.count("Conv"), types.count("Gemm"), types.count("MaxPool")) == (13, 3, 5)
    assert "BatchNormalization" not in types


@pytest.mark.parametrize("name", zoo.names())
@pytest.mark.parametrize("seed", [0, 1])
def test_activations_stay_alive(name: str, seed: int):
    model = proto(name, seed=seed)
    results = [o for n in model.graph.node for o in n.output]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=o) for o in results)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    shape = session.get_inputs()[0].shape
    image = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    for tensor, value in zip(
        results, session.run(None, {session.get_inputs()[0].name: image}), strict=True
    ):
        assert 0.1 < value.std() < 10.0, tensor
        assert np.abs(value).max() < 20.0 * value.std(), tensor
