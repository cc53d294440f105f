"""The zoo: the right networks, the same every time, activations neither dying nor exploding."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from opu_fuse import zoo
from opu_fuse.errors import ModelError
from tests.some import some
from tests.tiers import by_night

IMAGE = {
    "resnet18": 64,
    "resnet50": 64,
    "vgg16": 32,
    "googlenet": 64,
    "squeezenet": 64,
    "densenet121": 64,
    "mobilenet_v1": 64,
    "mobilenet_v1_025": 64,
    "mobilenet_v2": 64,
    "shufflenet_v2": 64,
    "efficientnet_b0": 128,
    "unet": 32,
    "tiny_yolo": 96,
    "tiny_yolov2": 96,
    "yolov3": 64,
    "yolov3_tiny": 96,
    "yolo11n": 64,
    "vit_tiny": 64,
    "mobilevit_s": 128,
}
UNSCALED = {"yolo11n": {"23.dbox", "output"}}
"""Results in pixels of the image."""
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def macs(model: ir.Model) -> int:
    total = 0
    for node in model.graph:
        if node.op_type in {"Conv", "Gemm"}:
            weight = some(some(node.inputs[1]).const_value).shape.numpy()
            pixels = some(node.outputs[0].shape).numpy()[2:]
            total += int(np.prod(weight)) * int(np.prod(pixels))
        if node.op_type == "MatMul":
            terms = some(some(node.inputs[0]).shape).numpy()[-1]
            total += int(np.prod(some(node.outputs[0].shape).numpy())) * terms
    return total


def proto(name: str, **options: int) -> onnx.ModelProto:
    return ir.to_proto(zoo.build(name, image=IMAGE.get(name), **options))


LARGE = ("yolov3", "vgg16", "resnet50")


@pytest.mark.parametrize("name", by_night(zoo.names(), LARGE))
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
    ("name", "expected"),
    [
        ("resnet18", 1.814e9),
        ("resnet50", 4.089e9),
        ("resnet20", 40.8e6),
        ("googlenet", 1.582e9),
        ("squeezenet", 349e6),
        ("densenet121", 2.834e9),
        ("mobilenet_v1", 569e6),
        ("mobilenet_v1_025", 41e6),
        ("mobilenet_v2", 301e6),
        ("shufflenet_v2", 146e6),
        ("efficientnet_b0", 386e6),
        ("tiny_yolo", 3.501e9),
        ("tiny_yolov2", 3.49e9),
        ("yolov3_tiny", 2.78e9),
        ("vit_tiny", 1.258e9),
        ("mobilevit_s", 2.0e9),
        ("yolo11n", 0.814e9),
        pytest.param("yolov3", 32.9e9, marks=pytest.mark.slow),
    ],
)
def test_networks_have_the_published_size(name: str, expected: float):
    assert macs(zoo.build(name)) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("name", "convs"),
    [
        ("yolov3", 75),
        ("yolov3_tiny", 13),
        ("tiny_yolo", 9),
        ("googlenet", 57),
        ("densenet121", 120),
    ],
)
def test_networks_have_the_published_number_of_convolutions(name: str, convs: int):
    model = zoo.build(name, image=IMAGE[name])
    assert sum(n.op_type == "Conv" for n in model.graph) == convs


@pytest.mark.parametrize(("name", "size"), [("unet", 36), ("yolov3", 48), ("resnet50", 16)])
def test_an_image_that_a_network_cannot_take_is_refused(name: str, size: int):
    with pytest.raises(ModelError, match=f"an input of {size}x{size} "):
        zoo.build(name, image=size)


def test_vgg16_has_the_published_layers():
    model = zoo.build("vgg16", image=32)
    types = [n.op_type for n in model.graph]
    assert (types.count("Conv"), types.count("Gemm"), types.count("MaxPool")) == (13, 3, 5)
    assert "BatchNormalization" not in types


@pytest.mark.parametrize("name", by_night(zoo.names(), LARGE))
@pytest.mark.parametrize("seed", by_night([0, 1], [1]))
def test_activations_stay_alive(name: str, seed: int):
    hold_alive(proto(name, seed=seed), spread=(0.05, 10.0), unscaled=UNSCALED.get(name, ()))


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_a_topology_with_constant_weights_comes_to_life(name: str):
    living = zoo.living_weights(ir.load(LIGHT / f"light_{name}.onnx"), seed=3)
    again = zoo.living_weights(ir.load(LIGHT / f"light_{name}.onnx"), seed=3)
    assert "ConstantOfShape" not in {n.op_type for n in living.graph}
    model = ir.to_proto(living)
    assert model.SerializeToString() == ir.to_proto(again).SerializeToString()
    onnx.checker.check_model(model)
    del model.graph.node[-1]  # softmax
    hold_alive(model, spread=(0.05, 10.0))


def test_bringing_to_life_leaves_the_given_model_alone():
    model = ir.load(LIGHT / "light_squeezenet.onnx")
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    zoo.living_weights(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def hold_alive(
    model: onnx.ModelProto, *, spread: tuple[float, float], unscaled: Collection[str] = ()
) -> None:
    """Every tensor's deviation lies in `spread`, and no value is far outside. Exempt are
    probabilities, which many classes make small, and what the caller names."""
    exempt = {*unscaled}
    for node in model.graph.node:
        if node.op_type == "Softmax" or (node.op_type == "Transpose" and node.input[0] in exempt):
            exempt.add(node.output[0])
    results = [o for n in model.graph.node for o in n.output if o not in exempt]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=o) for o in results)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    shape = session.get_inputs()[0].shape
    image = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    for tensor, value in zip(
        results, session.run(None, {session.get_inputs()[0].name: image}), strict=True
    ):
        assert spread[0] < np.asarray(value).std() < spread[1], tensor
        assert np.abs(np.asarray(value)).max() < 30.0 * np.asarray(value).std(), tensor
