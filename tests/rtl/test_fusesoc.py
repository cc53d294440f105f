"""The core of `hw rtl` in FuseSoC: it is found and set up, and Verilator takes its files."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from opu_fuse.hw.rtlgen.rtl_files import PROBE, rtl_files
from opu_fuse.hw.spec.load_spec import load_hw
from rtl_sim.build import verilator_environment

pytestmark = pytest.mark.rtl

CORE = "opu-fuse:opu:opu-tiny"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with the core in a folder of it."""
    (tmp_path / "opu").mkdir()
    for name, text in rtl_files(load_hw("opu-tiny")).items():
        (tmp_path / "opu" / name).write_text(text, encoding="utf-8")
    return tmp_path


def _fusesoc(library: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """FuseSoC without the user's settings."""
    command = [sys.executable, "-m", "fusesoc.main", "--cores-root", "opu", *words]
    environment = verilator_environment() | {
        "HOME": str(library),
        "XDG_CONFIG_HOME": str(library),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    return subprocess.run(
        command, cwd=library, env=environment, capture_output=True, text=True, check=False
    )


def _set_up(library: Path, target: str, tool: str) -> dict[str, Any]:
    """What FuseSoC hands to a tool: its file for Edalize."""
    words = ("--target", target, "--tool", tool, "--setup", "--work-root", "build", CORE)
    done = _fusesoc(library, "run", *words)
    assert done.returncode == 0, done.stderr
    (path,) = (library / "build").glob("*.eda.yml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_core_is_listed(library: Path) -> None:
    assert f"{CORE}:" in _fusesoc(library, "core", "list").stdout


@pytest.mark.parametrize(
    ("target", "tool", "more"),
    [("default", "verilator", []), ("sim", "verilator", [f"{PROBE}.sv"]), ("synth", "vivado", [])],
)
def test_a_target_has_the_files_in_the_order_of_compiling(
    target: str, tool: str, more: list[str], library: Path
) -> None:
    design = _set_up(library, target, tool)
    listed = (library / "opu" / "opu.f").read_text(encoding="utf-8").splitlines()
    sources = [Path(f["name"]).name for f in design["files"] if not f.get("is_include_file")]
    assert sources == [*(line for line in listed if line.endswith(".sv")), *more]
    assert design["toplevel"] == "opu_top"
    assert all((library / "build" / f["name"]).is_file() for f in design["files"])
    defined = {name for name, value in design["parameters"].items() if value.get("default")}
    assert defined == ({"SYNTHESIS"} if target == "synth" else set())


def test_verilator_takes_the_core_without_a_warning(library: Path) -> None:
    done = _fusesoc(library, "run", "--target", "lint", CORE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "%" not in done.stdout + done.stderr
    path = library / "opu" / "opu_top.sv"
    path.write_text(path.read_text(encoding="utf-8").replace("endmodule", ""), encoding="utf-8")
    assert _fusesoc(library, "run", "--target", "lint", CORE).returncode == 1
