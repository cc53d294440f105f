"""Calls of the API: pyright accepts each, but for the lines that end in `# refused: <its rule>`.

Read by pyright alone, never run (`tests/api/test_public_api.py`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import assert_type

import numpy as np
import onnx
import pandas as pd

import opu_fuse


def machines(name: str) -> None:
    hw = opu_fuse.load_hw(name)
    assert_type(opu_fuse.load_hw(Path("own.yaml")), opu_fuse.HwSpec)
    assert_type(hw.macs, int)
    opu_fuse.load_hw(3)  # refused: reportArgumentType


def compiling(hw: opu_fuse.HwSpec, proto: onnx.ModelProto, image: np.ndarray) -> None:
    assert_type(opu_fuse.compile("net.onnx", "opu-tiny"), opu_fuse.Program)
    opu_fuse.compile(model=Path("net.onnx"), hw=hw, strategy="optimal", scales="free", batch=4)
    opu_fuse.compile(proto, hw, calibration=image, keep_float=("conv1",), cascades="never")
    opu_fuse.compile(proto, hw, calibration=[image, image], calibration_method="max")
    opu_fuse.compile(proto, hw, calibration={"image": image}, passes=opu_fuse.PassOptions())
    opu_fuse.compile(proto, hw, shapes={"image": (1, 3, 32, 32)}, dims={"side": 32}, budget=2)
    opu_fuse.compile(proto, hw, stratgy="optimal")  # refused: reportCallIssue
    opu_fuse.compile(proto, hw, strategy="optimum")  # refused: reportArgumentType
    opu_fuse.compile(proto, hw, scales="pow3")  # refused: reportArgumentType
    opu_fuse.compile(proto, hw, batch="4")  # refused: reportArgumentType
    opu_fuse.compile(proto, hw, keep_float="conv1")  # refused: reportArgumentType
    opu_fuse.compile(proto, hw, calibration=3)  # refused: reportArgumentType
    opu_fuse.compile(proto)  # refused: reportCallIssue
    opu_fuse.compile(proto, hw, "optimal")  # refused: reportCallIssue
    opu_fuse.compile(image, hw)  # refused: reportArgumentType


def partitioning(hw: opu_fuse.HwSpec) -> None:
    groups = opu_fuse.partition("net.onnx", hw, "greedy", dims={"side": 32}, budget=2.0)
    assert_type(groups, opu_fuse.PartitionedModel)
    assert_type(groups.legal, bool)
    assert_type(groups.to_frame(), pd.DataFrame)
    opu_fuse.partition("net.onnx", hw, batch=4)  # refused: reportCallIssue
    opu_fuse.partition("net.onnx", hw, strategy="fastest")  # refused: reportArgumentType


def running(program: opu_fuse.Program, image: np.ndarray) -> None:
    result = program.run({"image": image}, capture=True, shuffle=1)
    assert_type(result, opu_fuse.ProgramRun)
    assert_type(result.outputs, Mapping[str, np.ndarray])
    assert_type(program.check(image, result, model="net.onnx"), opu_fuse.CheckResult)
    program.run(image)
    program.run([image, image], engine="rtl", rtl=opu_fuse.RtlOptions(latency=3))
    timed = program.run(engine="cycle", memory=opu_fuse.MemoryOptions(bytes_per_cycle=4.0))
    assert_type(timed.to_frame(), pd.DataFrame)
    assert_type(program.to_frame("tensors"), pd.DataFrame)
    program.run(image, engine="fast")  # refused: reportArgumentType
    program.run(image, seed=1)  # refused: reportCallIssue
    program.run("image.npy")  # refused: reportArgumentType
    program.run(engine="cycle", memory=3)  # refused: reportArgumentType
    program.run(image, rtl=opu_fuse.RtlOptions(delay=3))  # refused: reportCallIssue
    program.to_frame("layers")  # refused: reportArgumentType
    program.layers  # refused: reportAttributeAccessIssue  # noqa: B018  never run


def measuring(hw: opu_fuse.HwSpec, images: np.ndarray, labels: np.ndarray) -> None:
    losses = opu_fuse.accuracy("net.onnx", hw, data=images, labels=labels, scales="free")
    assert_type(losses, opu_fuse.Accuracy)
    opu_fuse.accuracy("net.onnx", hw, calibration=images, remedies=False, equalisation=True)
    opu_fuse.accuracy("net.onnx", hw, batch=4)  # refused: reportCallIssue
    opu_fuse.accuracy("net.onnx", hw, remedies="no")  # refused: reportArgumentType


def searching(plan: Mapping[str, object]) -> None:
    assert_type(opu_fuse.sweep(plan, jobs=2), pd.DataFrame)
    opu_fuse.sweep("sweep.yaml", Path("out"), progress=lambda *at: print(at))
    opu_fuse.sweep(plan, workers=2)  # refused: reportCallIssue
    found = opu_fuse.explore(["resnet18"], "xc7k325t", objectives=["latency", "dsp"], trials=8)
    assert_type(found, opu_fuse.Exploration)
    assert_type(found.to_frame(), pd.DataFrame)
    opu_fuse.explore(["resnet18"], "xc7k325t", objectives=["speed"])  # refused: reportArgumentType
    opu_fuse.explore(["resnet18"])  # refused: reportCallIssue
