"""An installed wheel can do what a checkout can: machines and RTL are inside and found there."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import opu_fuse
from opu_fuse import resources
from opu_fuse.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = (".py", ".yaml", ".sv", ".svh", ".c", ".h", ".vlt", ".cpp", ".f")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def sources(folder: str) -> set[str]:
    """Files of a checkout's folder that an installation needs, relative to the checkout."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SHIPPED and not {"sim_build", "obj_dir", "__pycache__"} & set(path.parts)
    }


@pytest.mark.slow
def test_wheel_contains_package_specs_and_rtl(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    shared = sources("hw_specs") | sources("rtl_sim") | sources("runtime")
    assert sources("opu_fuse") <= names
    assert {f"opu_fuse/_share/{name}" for name in shared} <= names
    assert any(name.endswith(".yaml") for name in shared)
    assert any(name.endswith(".sv") for name in shared)


@pytest.mark.slow
def test_wheel_contains_nothing_but_the_package(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"opu_fuse", f"opu_fuse-{opu_fuse.__version__}.dist-info"}
    junk = [n for n in names if "__pycache__" in n or "sim_build" in n or n.endswith(".fst")]
    assert not junk


@pytest.mark.slow
def test_unpacked_wheel_finds_its_own_specs_and_rtl(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from opu_fuse import resources\n"
        "print(resources.hw_specs_dir())\n"
        "print(resources.rtl_dir())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    share = tmp_path / "opu_fuse" / "_share"
    assert done.stdout.split() == [str(share / "hw_specs"), str(share / "rtl_sim")]


@pytest.mark.nightly
def test_a_newcomers_bench_passes_in_a_fresh_environment(wheel, tmp_path):
    """With the wheel, its extra `rtl` and pytest from PyPI, and nothing of the checkout."""
    environment = {n: v for n, v in os.environ.items() if not n.startswith("PY")}
    python, command_line = (str(tmp_path / "venv" / "bin" / n) for n in ("python", "opu-fuse"))
    commands = (
        (tmp_path, [sys.executable, "-m", "venv", "venv"]),
        (tmp_path, [python, "-m", "pip", "install", "--quiet", f"{wheel}[rtl]", "pytest"]),
        (
            tmp_path,
            [command_line, "cosim", "init", "bench", "--hw", "opu-micro"],
        ),
        (tmp_path / "bench", [python, "-m", "pytest", "-q"]),
    )
    printed = []
    for folder, command in commands:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        printed.append(done.stdout)
    assert "1 passed" in printed[-1]


def test_a_checkout_uses_its_own_folders():
    assert resources.hw_specs_dir() == ROOT / "hw_specs"
    assert resources.rtl_dir() == ROOT / "rtl_sim"


def test_an_incomplete_installation_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "opu_fuse")
    with pytest.raises(UserError, match="its folder rtl_sim is missing; install opu-fuse again"):
        resources.rtl_dir()
