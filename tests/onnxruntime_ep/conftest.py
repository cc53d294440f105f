"""The provider, built once, and models that it runs."""

import gc
import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import Compilation, compile_model, context_of

PACKAGE = Path(__file__).resolve().parents[2] / "packages" / "onnxruntime-ep-opu"
PROVIDER = "OpuFuseExecutionProvider"
MACHINE = "opu-tiny"
FLAGS = "OPU_TEST_PROVIDER_FLAGS"
"""Of the environment: flags of the compiler for the provider."""
# Two machine segments with Softmax between them; `skip` is written by the first machine segment
# and read by the second, which have no memory in common.
_TWO_SEGMENTS = """
<ir_version: 8, opset_import: ["" : 17]>
two_segments (float[1, 3, 8, 8] image) => (float[1, 8, 8, 8] sum, float[1, 8, 8, 8] weights)
<float[8, 3, 3, 3] w1, float[8, 8, 1, 1] w2> {
  wide = Conv <pads = [1, 1, 1, 1]> (image, w1)
  skip = Relu (wide)
  weights = Softmax <axis = 1> (skip)
  mixed = Conv (weights, w2)
  sum = Add (mixed, skip)
}
"""


def load_module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("provider") / "libonnxruntime_ep_opu.so"
    flags = os.environ.get(FLAGS, "-O2")
    load_module(PACKAGE / "build_library.py").build(path, "0.0.0", flags)
    return path


@pytest.fixture(scope="session")
def devices(library):
    ort.register_execution_provider_library(PROVIDER, str(library))
    yield [d for d in ort.get_ep_devices() if d.ep_name == PROVIDER]
    gc.collect()  # sessions that a traceback holds
    ort.unregister_execution_provider_library(PROVIDER)


@pytest.fixture(scope="session")
def session(devices):
    """path, options of the provider -> a session of ONNX Runtime as a user opens it."""

    def opened(model, **options: str) -> Any:
        settings = ort.SessionOptions()
        settings.log_severity_level = 4
        settings.add_provider_for_devices(devices, options)
        return ort.InferenceSession(model, settings)

    return opened


def compiled(model) -> Compilation:
    return compile_model(model, load_hw(MACHINE), Options())


@pytest.fixture(scope="session")
def two_segments() -> Compilation:
    """Machine, host, machine."""
    model = onnx.parser.parse_model(_TWO_SEGMENTS)
    rng = np.random.default_rng(4)
    for name, shape in (("w1", (8, 3, 3, 3)), ("w2", (8, 8, 1, 1))):
        weights = rng.normal(0, 0.5, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weights, name))
    return compiled(model)


def context(done: Compilation, **options):
    return context_of(done, load_hw(MACHINE), **options)


def node_of(model: onnx.ModelProto) -> onnx.NodeProto:
    """The first EPContext node."""
    return next(n for n in model.graph.node if n.op_type == "EPContext")


def attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto:
    return next(a for a in node.attribute if a.name == name)


def constant_files() -> int:
    """Constants of different programs that the provider has in memory."""
    gc.collect()  # sessions that were not closed yet
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sum("opu constants" in line and "r--s" in line for line in maps)


def refusal(action, code: str = "EP_FAIL") -> str:
    """The line that ONNX Runtime shows, without its own number."""
    with pytest.raises(Exception, match=f": {code} : ") as error:
        action()
    text = str(error.value).strip()
    assert "\n" not in text
    return text.partition(f": {code} : ")[2]
