"""`opu-fuse cosim init` and `hw rtl` write all or nothing, and say what stands in the way."""

import subprocess

import pytest
from typer.testing import CliRunner

from opu_fuse.cli.main import app
from opu_fuse.cosim import simulate
from opu_fuse.errors import RunError, UserError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.resources import rtl_dir

PROJECT = {"README.md", "bench_soc.py", "network.onnx", "soc.sv", "soc_share.sv", "test_soc.py"}


def call(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=True)


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_a_project_names_the_machine_it_was_made_for(tmp_path):
    assert call("cosim", "init", tmp_path / "a", "--hw", "opu-micro").exit_code == 0
    assert names(tmp_path / "a") == PROJECT
    assert 'MACHINE = "opu-micro"' in (tmp_path / "a" / "test_soc.py").read_text()
    own = tmp_path / "own.yaml"
    own.write_text(load_hw("opu-tiny").to_yaml())
    assert call("cosim", "init", tmp_path / "b", "--hw", own).exit_code == 0
    assert f'MACHINE = "{own}"' in (tmp_path / "b" / "test_soc.py").read_text()


def test_what_stands_in_the_folder_is_left_alone(tmp_path):
    (tmp_path / "soc.sv").write_text("mine")
    found = call("cosim", "init", tmp_path)
    assert isinstance(found.exception, RunError)
    assert "soc.sv: already exists; choose an empty folder" in str(found.exception)
    assert names(tmp_path) == {"soc.sv"}
    assert (tmp_path / "soc.sv").read_text() == "mine"


@pytest.mark.parametrize("option", ["--hw", "--model"])
def test_what_cannot_be_used_is_said_before_anything_is_written(tmp_path, option):
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"no model")
    found = call("cosim", "init", tmp_path / "a", option, damaged)
    assert isinstance(found.exception, UserError)
    assert not (tmp_path / "a").exists()


def test_rtl_can_be_written_again(tmp_path):
    for _ in range(2):
        assert call("hw", "rtl", "opu-tiny", "-o", tmp_path / "rtl").exit_code == 0
    assert {"opu_top.sv", "opu_pkg.sv", "opu.f", "opu.core", "opu_driver.h"} < names(
        tmp_path / "rtl"
    )
    file = tmp_path / "file"
    file.write_text("")
    found = call("hw", "rtl", "opu-tiny", "-o", file)
    assert "is a file, not a folder; choose another path" in str(found.exception)


def test_a_source_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RunError, match=r"absent\.sv: no such file; give the design's"):
        simulate(
            load_hw("opu-tiny"),
            top="soc",
            sources=[tmp_path / "absent.sv"],
            module="bench",
            folder=tmp_path,
        )


def test_variables_for_a_bench_do_not_hide_the_machines_packages(monkeypatch, tmp_path):
    seen = {}

    def run(command, env, check):
        del check
        seen.update(env)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr("opu_fuse.cosim.simulator.subprocess.run", run)
    own = {"PYTHONPATH": "elsewhere", "SIZE": "3"}
    simulate(load_hw("opu-tiny"), top="t", sources=[], module="m", folder=tmp_path, environment=own)
    assert seen["SIZE"] == "3"
    assert str(rtl_dir().parent) in seen["PYTHONPATH"].split(":")
