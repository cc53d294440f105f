"""The command line, called in this process."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from opu_fuse import zoo
from opu_fuse.cli.console import out
from opu_fuse.cli.main import main
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile as compile_program


@dataclass(frozen=True, slots=True)
class Called:
    """code: exit code; out, err: what was printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def opu_fuse(monkeypatch, capsys) -> Callable[..., Called]:
    """Call `opu-fuse` with arguments; what -q changes ends with the test."""
    monkeypatch.setattr(out, "quiet", out.quiet)

    def call(*arguments: str | Path) -> Called:
        monkeypatch.setattr(sys, "argv", ["opu-fuse", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        captured = capsys.readouterr()
        return Called(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def program_file(tmp_path_factory) -> Path:
    """A small compiled program for opu-tiny."""
    path = tmp_path_factory.mktemp("program") / "net.opu"
    compile_program(zoo.build("tiny_residual"), load_hw("opu-tiny")).save(path)
    return path


@pytest.fixture(scope="session")
def model_file(tmp_path_factory) -> Path:
    """The float model of `program_file`."""
    import onnx_ir as ir

    path = tmp_path_factory.mktemp("model") / "net.onnx"
    ir.save(zoo.build("tiny_residual"), path)
    return path
