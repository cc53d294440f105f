"""`run --check` compares with the model that was compiled, too, where its file is at hand."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import opu_fuse
from opu_fuse.errors import RunError
from opu_fuse.sim.compare.users_model import find_model, of_model
from opu_fuse.sim.ports import noise
from tests.fuzz.quantised import Style, quantised
from tests.some import some
from tests.written import written

HEADER = '<ir_version: 10, opset_import: ["" : 17]>'
PORTS = "float[1,3,12,12] same, float[1,8,12,12] y, int64[1,1,12,12] best"
NET = f"""{HEADER} g (float[1,3,12,12] x) => ({PORTS})
<float[8,3,1,1] w, float[8,8,1,1] v> {{
  a = Conv(x, w)  r = Relu(a)  y = Conv(r, v)  same = Identity(x)  best = ArgMax<axis=1>(y)
}}"""
STYLE = Style(
    pow2=True,
    kind=np.int8,
    zeros=False,
    per_channel=True,
    shared=False,
    direct=False,
    everywhere=False,
    constants=False,
)


def float_model() -> onnx.ModelProto:
    model = written(NET, seed=5)
    return model if isinstance(model, onnx.ModelProto) else onnx.load_from_string(model)


def quantised_model(*, pow2: bool) -> onnx.ModelProto:
    text = NET.replace(", int64[1,1,12,12] best", "").replace("best = ArgMax<axis=1>(y)", "")
    model = written(text, seed=5)
    x = np.random.default_rng(1).normal(size=(1, 3, 12, 12)).astype(np.float32)
    return quantised(model, {"x": x}, replace(STYLE, pow2=pow2))


def saved(model: onnx.ModelProto, folder: Path, name: str = "m") -> Path:
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path


def checked(path: Path, change=lambda outputs: outputs):
    program = opu_fuse.compile(str(path), "opu-light")
    inputs = noise(program.bundle)
    result = program.run(inputs, capture=True)
    result = replace(result, outputs=change(dict(result.outputs)))
    return program.check(inputs, result, model=path)


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "opu_fuse", "run", "m.opu", *options]
    env = os.environ | {"PYTHONPATH": str(Path(opu_fuse.__file__).parents[1])}
    return subprocess.run(
        command, cwd=folder, env=env, check=False, capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    path = saved(float_model(), folder)
    opu_fuse.compile(str(path), "opu-light").save(folder / "m.opu")
    return folder


@pytest.mark.filterwarnings("ignore")
def test_a_float_model_beside_its_program_is_found_and_its_noise_is_told(compiled):
    done = run(compiled, "--check")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("against m.onnx")]
    assert lines[0] == "against m.onnx in ONNX Runtime: output same: exact"
    assert lines[1].startswith("against m.onnx in ONNX Runtime: output y: SNR ")
    assert "om inputs, which do not represent real ones" in done.stdout
    assert "values differ" in lines[2] or "exact" in lines[2]


def test_the_object_of_json_has_the_outputs_besides_the_fields_it_had(compiled):
    found = json.loads(run(compiled, "--check", "--json").stdout)["check"]
    assert {"reference", "max_abs_diff", "mismatches", "elements"} <= found.keys()
    assert (found["passed"], found["model"]["file"]) == (True, "m.onnx")
    same, y, best = found["model"]["outputs"]
    assert (same["name"], same["snr_db"], same["differing"], same["limit"]) == (
        "same",
        None,
        0,
        None,
    )
    assert 20 < y["snr_db"] < 60
    assert best["snr_db"] is None


def test_a_model_that_is_nowhere_is_told_in_one_line(compiled, tmp_path):
    (tmp_path / "m.opu").write_bytes((compiled / "m.opu").read_bytes())
    changed = tmp_path / "m.onnx"
    changed.write_bytes((compiled / "m.onnx").read_bytes() + b"\x00")
    done = run(tmp_path, "--check")
    lines = done.stdout.splitlines()
    (line,) = [x for x in lines if x.startswith(("against", "not compared"))]
    assert done.returncode == 0
    assert line.startswith("not compared with the model that was compiled: its file (sha256 ")
    assert line.endswith("name it with --model")
    done = run(tmp_path, "--check", "--model", str(compiled / "m.onnx"))
    assert "against m.onnx in ONNX Runtime: output same: exact" in done.stdout


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--check", "--model", "no.onnx"), 1, "no.onnx: there is no such file"),
        (("--check", "--model", "m.opu"), 1, "m.opu: is not the model of this program (sha256 "),
        (("--model", "m.onnx"), 2, "--model without --check"),
    ],
)
def test_another_file_is_refused(compiled, options, code, said):
    done = run(compiled, *options)
    assert done.returncode == code
    assert said in done.stderr


def test_a_file_of_another_name_with_the_same_bytes_is_found(compiled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bundle = opu_fuse.Program.load(compiled / "m.opu").bundle
    assert find_model(bundle, tmp_path / "m.opu") is None
    (tmp_path / "z.onnx").write_bytes((compiled / "m.onnx").read_bytes())
    (tmp_path / "a.onnx").write_bytes(b"nothing")
    assert find_model(bundle, tmp_path / "m.opu") == tmp_path / "z.onnx"
    with pytest.raises(RunError, match="is not the model of this program"):
        find_model(bundle, tmp_path / "m.opu", tmp_path / "a.onnx")


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_model_of_powers_of_two_is_met_to_the_bit(tmp_path):
    path = saved(quantised_model(pow2=True), tmp_path)
    found = checked(path)
    assert found.passed
    assert [(o.name, o.differing) for o in some(found.of_model).outputs] == [("same", 0), ("y", 0)]
    assert all(o.limit is not None and o.limit < 1e-3 for o in some(found.of_model).outputs)


@pytest.mark.filterwarnings("ignore")
def test_other_scales_have_a_bound_and_beyond_it_the_check_fails(tmp_path):
    path = saved(quantised_model(pow2=False), tmp_path)
    found = checked(path)
    assert found.passed
    limit = next(o.limit for o in some(found.of_model).outputs if o.name == "y")
    assert limit is not None
    step = 1e-3 * limit

    def moved(by: float):
        return lambda outputs: outputs | {"y": outputs["y"] + np.float32(by)}

    beyond = checked(path, moved(2 * limit + step))
    assert not beyond.passed
    assert beyond.beyond is not None
    assert beyond.beyond.name == "y"
    assert "differs by" in str(beyond.beyond)


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_run_is_told_and_not_raised(tmp_path):
    path = saved(float_model(), tmp_path)
    program = opu_fuse.compile(str(path), "opu-light")
    inputs = noise(program.bundle)
    result = program.run(inputs, capture=True)
    model = onnx.load(path)
    model.graph.node[0].op_type = "Nothing"
    onnx.save(model, path)
    found = of_model(program.bundle, inputs, result, path)
    assert found.why.startswith("ONNX Runtime cannot load it (")
    assert found.outputs == ()


@pytest.mark.filterwarnings("ignore")
def test_several_samples_are_compared_one_by_one(tmp_path):
    path = saved(float_model(), tmp_path)
    program = opu_fuse.compile(str(path), "opu-light", batch=2)
    x = np.random.default_rng(0).normal(size=(3, 3, 12, 12)).astype(np.float32)
    found = program.check({"x": x}, program.run({"x": x}, capture=True), model=path)
    assert found.passed
    assert some(found.of_model).outputs[0].elements == x.size
    assert some(found.of_model).outputs[0].differing == 0
