"""Compiling a quantised model loads no library that it has no work for: the command starts fast."""

import os
import subprocess
import sys

import onnx
import onnx_ir
import pytest
from onnxscript.optimizer import _constant_folding

from opu_fuse.frontend.prepare import prepare
from opu_fuse.model.folding import EVALUATED, SHAPING
from opu_fuse.zoo import build

SLOW = (
    *("sympy.core", "onnxscript", "onnxruntime", "networkx", "scipy", "numpy.ma", "numpy.random"),
    "rich.console",
)
UNUSED = (
    "opu_fuse.bundle.kernel_json",
    "opu_fuse.bundle.result",
    "opu_fuse.host.build.segment",
    "opu_fuse.dfg.ort_operator",
    "opu_fuse.frontend.calibration",
    "opu_fuse.frontend.quantization.quantise",
    "opu_fuse.fuse.strategies.dominator",
    "opu_fuse.fuse.explain.search_trace",
    "opu_fuse.hw.isa.register_map",
    "opu_fuse.sim.engine",
)
"""Of our own modules: host operators, runs, quantising, other strategies, explanations, drivers."""

COMPILE = f"""
import sys
from opu_fuse.__main__ import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("loaded:", [name for name in {SLOW + UNUSED!r} if name in sys.modules])
"""


def test_a_quantised_model_is_compiled_without_the_slow_libraries(tmp_path):
    model, out = tmp_path / "qdq.onnx", tmp_path / "x.opu"
    qdq = prepare(build("tiny_residual")).qdq
    assert qdq is not None
    onnx.save(qdq, model)
    command = [sys.executable, "-c", COMPILE, "compile", model, "--hw", "opu-tiny", "-o", out]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


INTERRUPTED = """
import builtins, signal, sys
real = builtins.__import__
def interrupted(name, *args, **kwargs):
    if name == "opu_fuse.cli.main":
        signal.raise_signal(signal.SIGINT)
    return real(name, *args, **kwargs)
builtins.__import__ = interrupted
from opu_fuse.__main__ import main
main()
"""


def test_nothing_of_a_model_is_told_to_anybody(tmp_path):
    """ONNX Runtime's wheels keep what they will send in the user's home."""
    model, home = tmp_path / "float.onnx", tmp_path / "home"
    home.mkdir()
    onnx.save(onnx_ir.to_proto(build("tiny_odd", image=8)), model)
    kept = {name: text for name, text in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    where = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    script = f"import opu_fuse; opu_fuse.compile({str(model)!r}, opu_fuse.load_hw('opu-tiny'))"
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, env=kept | where)
    assert not list(home.iterdir())


def test_ctrl_c_while_the_command_is_starting_says_one_word():
    command = [sys.executable, "-c", INTERRUPTED, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


# They pass on what Shape and Size make, or need symbolic shapes: alone they fold nothing.
ONLY_WITH_SHAPES = {"Abs", "Add", "Gather", "Squeeze"}


def test_every_operator_that_the_library_evaluates_is_known():
    """An operator missing here would be left in models, unfolded."""
    known = {name for _, name in _constant_folding.registry.op_evaluators}
    assert known - ONLY_WITH_SHAPES == EVALUATED | SHAPING


LEAVING = """
import atexit, os
import opu_fuse.cli.main
from opu_fuse.__main__ import process
atexit.register(os.write, 2, b"left as usual")
def command(real=opu_fuse.cli.main.main):
    atexit.register(print, "registered, and run")
    real()
opu_fuse.cli.main.main = command
process()
"""


@pytest.mark.parametrize(
    ("arguments", "code"), [(("--version",), 0), (("hw", "show", "x"), 1), (("nothing",), 2)]
)
def test_who_has_succeeded_leaves_at_once_with_all_that_was_written(arguments, code):
    command = [sys.executable, "-c", LEAVING, *arguments]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=kept)
    assert done.returncode == code
    assert done.stdout.splitlines()[-1] == "registered, and run"
    assert ("left as usual" in done.stderr) is (code > 0)
