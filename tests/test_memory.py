"""What compiling needs of memory: the weights twice, while they are read, and not once more.

Each model is compiled in a process of its own; its peak is the kernel's figure.
"""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

MIB = 1 << 20
PROGRAM_MIB = 150
"""The process without a model: libraries, mostly."""

MEASURED = """
import runpy
try:
    runpy.run_module("opu_fuse", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
print(open("/proc/self/status").read())
"""


def peak_mib(model: Path) -> float:
    """Of `compile`."""
    command = ["compile", str(model), "--hw", "opu-1024", "-o", str(model.with_suffix(".opu"))]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, check=True
    )
    found = re.search(r"^VmHWM:\s+(\d+) kB$", done.stdout, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    weights: Mapping[str, np.ndarray],
    shapes: Mapping[str, Sequence[int]],
) -> float:
    """Write a model from x to y; returns its size in MiB."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, shapes[n]) for n in "xy")
    tensors = [numpy_helper.from_array(data, name) for name, data in weights.items()]
    graph = helper.make_graph(nodes, "net", [x], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path.stat().st_size / MIB


@pytest.mark.parametrize(
    ("op", "weight", "x", "y"),
    [
        ("Gemm", (4096, 4096), (1, 4096), (1, 4096)),
        ("Conv", (1024, 1024, 4, 4), (1, 1024, 4, 4), (1, 1024, 1, 1)),
    ],
)
def test_a_compilation_holds_the_weights_twice_at_most(tmp_path, rng, op, weight, x, y):
    data = rng.random(weight, np.float32) - 0.5
    attributes: dict[str, Any] = {"transB": 1} if op == "Gemm" else {}
    node = helper.make_node(op, ["x", "w"], ["y"], **attributes)
    file_mib = save(tmp_path / "m.onnx", [node], {"w": data}, {"x": x, "y": y})
    assert file_mib > 60
    assert peak_mib(tmp_path / "m.onnx") <= 2.5 * file_mib + PROGRAM_MIB


def test_calibrating_holds_the_feature_maps_of_one_sample(tmp_path):
    depth, shape = 16, (1, 32, 320, 320)
    names = ["x", *(f"t{i}" for i in range(depth - 1)), "y"]
    nodes = [helper.make_node("LeakyRelu", [a], [b], alpha=0.125) for a, b in pairwise(names)]
    save(tmp_path / "m.onnx", nodes, {}, {"x": shape, "y": shape})
    maps_mib = depth * np.prod(shape) * 4 / MIB
    assert peak_mib(tmp_path / "m.onnx") <= 1.5 * maps_mib + PROGRAM_MIB
