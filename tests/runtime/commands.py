"""`opu-run` as a command: a program file with its inputs, and what Python says of them."""

import os
import subprocess

import numpy as np

from opu_fuse.bundle.file import save
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim import engine
from opu_fuse.sim.ports import noise
from tests.runtime.built import COMMAND, build
from tests.tools import require_tools

CROSS = {
    "aarch64": "aarch64-linux-gnu-gcc",
    "riscv64": "riscv64-linux-gnu-gcc",
    "arm": "arm-linux-gnueabihf-gcc",
}
"""For Linux, by the names of QEMU."""
BARE = {"riscv32": "riscv64-unknown-elf-gcc"}


def case_of(bundle, folder, inputs=None):
    """(program, inputs, expected outputs): three images."""
    save(bundle, folder / "x.opu")
    if inputs is None:
        inputs = {k: np.concatenate([v] * 3)[:3] for k, v in noise(bundle).items()}
    expected = engine.run(bundle, load_hw("opu-tiny"), inputs, engine="native").outputs
    files = []
    for port in bundle.inputs:
        files.append(folder / f"in{len(files)}")
        inputs[port.name].tofile(files[-1])
    outputs = [(folder / f"out{n}", expected[p.name]) for n, p in enumerate(bundle.outputs)]
    return folder / "x.opu", files, outputs


def run_command(command, *words, env=None):
    """command: a path, or a list of words."""
    words = [*(command if isinstance(command, list) else [command]), *words]
    environment = {**os.environ, **(env or {})}
    return subprocess.run(
        [str(w) for w in words], capture_output=True, text=True, check=False, env=environment
    )


def same_outputs(command, case):
    program, files, outputs = case
    for path, _ in outputs:
        path.unlink(missing_ok=True)
    done = run_command(command, program, *files, *(path for path, _ in outputs))
    assert done.returncode == 0, done.stderr
    return all(np.array_equal(np.fromfile(p, e.dtype), e.ravel()) for p, e in outputs)


def require_cross(processor, *tools):
    """The C compiler of a processor; skips, or fails in CI, where it or another tool is missing."""
    compiler = (CROSS | BARE)[processor]
    require_tools(compiler, *tools)
    return compiler


def cross_command(processor, folder):
    """`opu-run` for another processor, as the words that run it in QEMU."""
    emulator = f"qemu-{processor}"
    compiler = require_cross(processor, emulator)
    options = ("-O1", "-static")
    return [emulator, build(folder / "opu-run", *COMMAND, compiler=compiler, options=options)]
