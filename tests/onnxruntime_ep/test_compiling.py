"""A float or quantised model compiles in the process that opens it, once."""

import importlib
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse import zoo
from opu_fuse.errors import UserError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile as compile_program
from tests.onnxruntime_ep.conftest import MACHINE, PACKAGE, load_module


@pytest.fixture(scope="module")
def compiled():
    return load_module(PACKAGE / "onnxruntime_ep_opu" / "compiling.py").compiled


@pytest.fixture
def network(tmp_path, monkeypatch):
    """(path of a float model, calibration data); the cache is empty."""
    monkeypatch.setenv("OPU_FUSE_CACHE", str(tmp_path / "cache"))
    ir.save(zoo.build("tiny_residual"), tmp_path / "net.onnx")
    (value,) = onnx.load(tmp_path / "net.onnx").graph.input
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    return tmp_path / "net.onnx", np.random.default_rng(2).normal(0, 1, shape).astype(np.float32)


def test_a_float_model_with_calibration_data_has_the_bits_of_its_program(
    compiled, network, session
):
    path, x = network
    opened = session(compiled(path, MACHINE, calibration=x))
    program = compile_program(path, load_hw(MACHINE), calibration=x)
    (expected,) = program.run(x).outputs.values()
    assert np.array_equal(opened.run(None, {"input": x})[0], expected)


def test_it_is_compiled_again_only_for_other_data_options_and_machines(compiled, network):
    path, x = network
    first = compiled(path, MACHINE, calibration=x)
    again = compiled(path, MACHINE, calibration=x.copy())
    others = [
        compiled(path, MACHINE, calibration=x + 1),
        compiled(path, MACHINE, calibration=x, strategy="none"),
        compiled(path, "opu-light", calibration=x),
    ]
    assert first == again
    assert len({first, *others}) == 4


def test_a_file_of_the_cache_that_was_changed_is_written_again(compiled, network, monkeypatch):
    path, x = network
    warned: list[str] = []
    monkeypatch.setattr(
        compiled.__globals__["log"], "warning", lambda text, *args: warned.append(text % args)
    )
    first = Path(compiled(path, MACHINE, calibration=x))
    content = first.read_bytes()
    for damaged in (content[:1000], b"", content[:-1] + b"x"):
        first.write_bytes(damaged)
        assert compiled(path, MACHINE, calibration=x) == str(first)
        assert first.read_bytes() == content
    assert len([*first.parent.glob("context-*.onnx")]) == 1
    assert warned == [f"{first} was changed: compiling the model again"] * 3


def test_a_folder_of_calibration_data_may_have_others_inside(compiled, network, tmp_path):
    path, x = network
    (tmp_path / "data" / "older").mkdir(parents=True)
    np.save(tmp_path / "data" / "x.npy", x)
    first = compiled(path, MACHINE, calibration=tmp_path / "data")
    np.save(tmp_path / "data" / "x.npy", x + 1)
    assert compiled(path, MACHINE, calibration=tmp_path / "data") != first


def test_a_float_model_without_calibration_data_is_refused(compiled, network):
    path, _ = network
    with pytest.raises(UserError, match="is in floats, and there are no calibration data; give"):
        compiled(path, MACHINE)
    with pytest.raises(UserError, match="there is no such file"):
        compiled(path.with_name("other.onnx"), MACHINE)


@pytest.fixture
def package(library, tmp_path, monkeypatch):
    """`onnxruntime_ep_opu` as it is installed."""
    folder = shutil.copytree(
        PACKAGE / "onnxruntime_ep_opu", tmp_path / "site" / "onnxruntime_ep_opu"
    )
    shutil.copy(library, folder)
    monkeypatch.syspath_prepend(folder.parent)
    yield importlib.import_module("onnxruntime_ep_opu")
    for name in ("onnxruntime_ep_opu", "onnxruntime_ep_opu.compiling"):
        sys.modules.pop(name, None)


def test_one_call_compiles_and_opens(package, devices, network):
    path, x = network
    opened = package.session(path, MACHINE, calibration=x)
    (expected,) = compile_program(path, load_hw(MACHINE), calibration=x).run(x).outputs.values()
    assert np.array_equal(opened.run(None, {"input": x})[0], expected)
    written = compiled_path(package, path, x)
    again = package.session(written, provider_options={"device": "native"})
    assert np.array_equal(again.run(None, {"input": x})[0], expected)
    with pytest.raises(TypeError, match="calibration: options of compiling need a machine"):
        package.session(written, calibration=x)


def compiled_path(package, path, x):
    assert package.get_ep_name()
    return importlib.import_module("onnxruntime_ep_opu.compiling").compiled(
        path, MACHINE, calibration=x
    )
