"""The API says what it is: its names, its options with types and defaults, its errors."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Literal, get_args

import pytest

import opu_fuse
import opu_fuse.cosim
from opu_fuse.cli.accuracy import accuracy as accuracy_command
from opu_fuse.cli.compile import compile_ as compile_command
from opu_fuse.cli.partition import partition as partition_command
from opu_fuse.exploring.run import OBJECTIVES, Objective
from opu_fuse.frontend.choice_names import Method, MethodLike, Scales, ScalesLike
from opu_fuse.fuse.strategies.strategy_names import StrategyLike, StrategyName
from opu_fuse.loss import AccuracyOptions
from opu_fuse.options import Options
from opu_fuse.schedule.choice_names import FusedStackChoice, FusedStackLike
from opu_fuse.sim.engine_names import EngineLike, EngineName

ROOT = Path(__file__).resolve().parents[2]
CALLS = ROOT / "tests" / "api" / "calls.py"

SHOWN = """
import opu_fuse
before = dir(opu_fuse)
for name in before:
    getattr(opu_fuse, name)
import opu_fuse.cli.main, opu_fuse.sim.engine
assert dir(opu_fuse) == before, dir(opu_fuse)
print(before)
"""


def test_completion_shows_the_public_names_and_nothing_else():
    command = [sys.executable, "-c", SHOWN]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == sorted(opu_fuse.__all__)


@pytest.mark.parametrize("package", [opu_fuse, opu_fuse.cosim])
def test_type_checkers_see_the_names_that_are_loaded_on_first_use(package):
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    (block,) = [n for n in tree.body if isinstance(n, ast.If)]
    imports = [n for n in block.body if isinstance(n, ast.ImportFrom)]
    assert len(imports) == len(block.body)
    seen = {a.name: n.module or "" for n in imports for a in n.names}
    assert {*seen} == {*package.__all__} - {"__version__"}
    assert dir(package) == [*package.__all__]
    for name, module in seen.items():
        assert getattr(package, name) is getattr(importlib.import_module(module), name)
    with pytest.raises(AttributeError, match="has no attribute 'os_path'"):
        _ = package.os_path


def test_pyright_accepts_right_calls_and_refuses_wrong_ones():
    """One wrong argument in a line of `calls.py`, whose end names the rule that refuses it."""
    lines = CALLS.read_text(encoding="utf-8").splitlines()
    wanted = {
        (number, rule)
        for number, line in enumerate(lines, 1)
        for rule in re.findall(r"# refused: (\w+)", line)
    }
    command = [sys.executable, "-m", "pyright", "--outputjson", CALLS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    found = {
        (d["range"]["start"]["line"] + 1, d["rule"])
        for d in json.loads(done.stdout)["generalDiagnostics"]
    }
    assert len(wanted) > 20
    assert found == wanted


@pytest.mark.parametrize(
    ("like", "names"),
    [
        (ScalesLike, Scales),
        (MethodLike, Method),
        (StrategyLike, StrategyName),
        (FusedStackLike, FusedStackChoice),
        (EngineLike, EngineName),
    ],
)
def test_the_texts_of_a_choice_are_those_of_its_members(like, names):
    members, texts = get_args(like)
    assert members is names
    assert texts == Literal[tuple(str(name) for name in names)]


def test_an_exploration_may_minimise_what_its_type_says():
    assert get_args(Objective) == tuple(OBJECTIVES)


@pytest.mark.parametrize(
    ("function", "record"), [(opu_fuse.compile, Options), (opu_fuse.accuracy, AccuracyOptions)]
)
def test_a_notebook_completes_every_option(function, record):
    parameters = inspect.signature(function).parameters
    assert [*parameters] == ["model", "hw", *inspect.signature(record).parameters]
    assert {f.name for f in fields(record)} < {*parameters}
    for name in list(parameters)[2:]:
        assert re.search(rf"\b{name}\b", function.__doc__), f"{name} is not documented"
    with pytest.raises(TypeError, match="unexpected keyword argument 'stratgy'"):
        function("net.onnx", "opu-tiny", stratgy="matched")


RENAMED = {"shape": "shapes", "dim": "dims"}
"""Options that are given once for each name on the command line, as a mapping in Python."""


@pytest.mark.parametrize(
    ("command", "function"),
    [
        (compile_command, opu_fuse.compile),
        (accuracy_command, opu_fuse.accuracy),
        (partition_command, opu_fuse.partition),
    ],
)
def test_options_have_the_defaults_of_the_command(command, function):
    own = inspect.signature(function).parameters
    shared = 0
    for name, parameter in inspect.signature(command).parameters.items():
        option = own.get(RENAMED.get(name, name))
        if option is None or option.default is inspect.Parameter.empty:
            continue
        default = option.default
        if repr(default) == "<factory>":  # of a dataclass: a mapping
            default = None
        assert (parameter.default or None) == (default or None), name
        shared += 1
    assert shared >= 4
