"""A network with everything that is shown: groups, host operators, long names, markup in names."""

import numpy as np
import onnx
import pytest

import opu_fuse

LONG = "backbone/" + "block/" * 30 + "conv<b>&1"
"""Of a node: exporters write paths, and a name may hold what HTML takes for markup."""


@pytest.fixture(scope="session")
def network() -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    net (float[1,3,12,12] image) => (float[1,8,6,6] maps, float[1,8,6,6] waves) {
        a = Conv <pads = [1,1,1,1], strides = [2,2]> (image, w)
        maps = Relu(a)
        s = Sin(maps)
        waves = Conv <pads = [1,1,1,1]> (s, v)
    }""")
    model.graph.name = "net/" * 30
    model.graph.node[0].name = LONG
    for name, shape in {"w": (8, 3, 3, 3), "v": (8, 8, 3, 3)}.items():
        array = rng.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


@pytest.fixture(scope="session")
def images() -> np.ndarray:
    return np.random.default_rng(6).normal(size=(4, 3, 12, 12)).astype(np.float32)


@pytest.fixture(scope="session")
def program(network, images) -> opu_fuse.Program:
    return opu_fuse.compile(network, "opu-tiny", calibration=images)


@pytest.fixture(scope="session")
def run(program, images) -> opu_fuse.ProgramRun:
    return program.run(images, capture=True)


@pytest.fixture(scope="session")
def timed(program) -> opu_fuse.ProgramRun:
    return program.run(engine="cycle")


@pytest.fixture(scope="session")
def partition(network) -> opu_fuse.PartitionedModel:
    return opu_fuse.partition(network, "opu-tiny")


@pytest.fixture(scope="session")
def losses(network, images) -> opu_fuse.Accuracy:
    return opu_fuse.accuracy(network, "opu-tiny", data=images, calibration=images, remedies=False)
