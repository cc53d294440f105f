"""The examples of docs/run-on-a-board.md compile and give what Python gives; its commands can be
followed.
"""

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim import engine
from opu_fuse.sim.rtl.process import child_environment
from tests.cli.test_walks import blocks_of, pattern
from tests.devices.served import served_model
from tests.runtime.built import SANITIZED, build
from tests.runtime.test_host_segments import compiled, joined_model
from tests.some import some
from tests.tools import require_tools

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "run-on-a-board.md"
BLOCKS = re.findall(r"```c(?: \S+)?\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_complete_program_runs(sanitized, tmp_path):
    text = BLOCKS[0]
    source = tmp_path / "main.c"
    source.write_text(text, encoding="utf-8")
    options = ("-std=c11", *SANITIZED)
    main = build(tmp_path / "main", source, sanitized, options=options)
    bundle, path = compiled(joined_model(), tmp_path)
    (port,) = bundle.inputs
    image = np.zeros(port.shape, np.float32)
    expected = engine.run(bundle, load_hw("opu-tiny"), {port.name: image}).outputs["y"]
    done = subprocess.run(
        [main, path],
        capture_output=True,
        text=True,
        check=True,
        env={"ASAN_OPTIONS": "detect_leaks=0"},
    )
    got = [float.fromhex(line) for line in done.stdout.split()]
    assert np.array_equal(np.array(got, np.float32), expected.ravel())


def test_the_complete_program_runs_on_a_simulation(sanitized, tmp_path):
    """With the back end of the section "Without a board" in the place of the native engine."""
    native = re.compile(r"  status = opu_native_init.*?opu_native_backend[^\n]*\n", re.DOTALL)
    assert len(native.findall(BLOCKS[0])) == 1
    bundle, path = compiled(joined_model(), tmp_path)
    (port,) = bundle.inputs
    hw = load_hw("opu-tiny")
    with served_model(hw) as (socket, _, _):
        opened = BLOCKS[2].replace("./machine", str(socket))
        source = tmp_path / "main.c"
        opened += "  status = OPU_OK;\n  window = device.window;\n"
        source.write_text(
            native.sub(lambda _: opened, BLOCKS[0]).replace('"opu.h"', '"opu_hardware.h"')
        )
        options = ("-std=c11", "-Wno-unused", *SANITIZED)
        main = build(tmp_path / "main", source, sanitized, options=options)
        done = subprocess.run(
            [main, path],
            capture_output=True,
            text=True,
            check=True,
            env={"ASAN_OPTIONS": "detect_leaks=0"},
        )
    got = [float.fromhex(line) for line in done.stdout.split()]
    image = np.zeros(port.shape, np.float32)
    expected = engine.run(bundle, hw, {port.name: image}).outputs["y"]
    assert np.array_equal(np.array(got, np.float32), expected.ravel())


TWO_SESSIONS = r"""
enum { FRAMES = 5 };
static unsigned char file_bytes[1 << 22];

static void *memory(size_t size) { return aligned_alloc(4096, (size + 4096) / 4096 * 4096); }

int main(int count, char **names) {
  struct opu_file file;
  struct opu_port input, output;
  struct opu_native *engine;
  struct opu_backend backend;
  struct opu_session sessions[2];
  struct opu_window window;
  struct opu_in frames[FRAMES];
  struct opu_out results[FRAMES];
  FILE *stream = fopen(names[count - 2], "rb");
  const size_t size = fread(file_bytes, 1, sizeof file_bytes, stream);
  size_t n;
  if (opu_open(&file, file_bytes, size) != OPU_OK) return 1;
  opu_input(&file, 0, &input);
  opu_output(&file, 0, &output);
  n = opu_native_size(&file.machine);
  if (opu_native_init(&engine, &file.machine, memory(n), n) != OPU_OK) return 2;
  opu_native_backend(&backend, engine);
  for (n = 0; n < 2; n++) {
    window.size = file.window_bytes;
    window.data = memory(window.size);
    if (opu_session_init(&sessions[n], &file, &backend, &window, memory(file.work_bytes),
                         file.work_bytes) != OPU_OK)
      return 3;
  }
  stream = fopen(names[count - 1], "rb");
  for (n = 0; n < FRAMES; n++) {
    frames[n].bytes = input.bytes;
    frames[n].data = memory(input.bytes);
    if (fread((void *)frames[n].data, 1, input.bytes, stream) != input.bytes) return 4;
    results[n].bytes = output.bytes;
    results[n].data = memory(output.bytes);
  }
  if (run_frames(sessions, frames, results, FRAMES) != OPU_OK) return 5;
  for (n = 0; n < FRAMES; n++) fwrite(results[n].data, 1, output.bytes, stdout);
  return 0;
}
"""


def test_frames_overlap(sanitized, tmp_path):
    """Host segments before and behind those of the machine included."""
    source = tmp_path / "main.c"
    headers = '#include <stdio.h>\n#include <stdlib.h>\n#include "opu.h"\n'
    source.write_text(headers + BLOCKS[1] + TWO_SESSIONS, encoding="utf-8")
    main = build(tmp_path / "main", source, sanitized, options=("-std=c11", *SANITIZED))
    bundle, path = compiled(joined_model(), tmp_path)
    (port,) = bundle.inputs
    frames = np.random.default_rng(1).normal(size=(5, *port.shape)).astype(np.float32)
    frames.tofile(tmp_path / "frames")
    done = subprocess.run(
        [main, path, tmp_path / "frames"],
        capture_output=True,
        check=True,
        env={"ASAN_OPTIONS": "detect_leaks=0"},
    )
    hw = load_hw("opu-tiny")
    expected = [engine.run(bundle, hw, {port.name: frame}).outputs["y"] for frame in frames]
    assert np.array_equal(np.frombuffer(done.stdout, np.float32), np.ravel(expected))


@pytest.fixture
def clone(tmp_path):
    """A folder to work in with what the page needs of a clone; the environment of its commands."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("runtime", "rtl_sim/driver", "rtl_sim/litex/firmware"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("build"))
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, words in (("opu-fuse", "-m opu_fuse"), ("python", "")):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (commands / name).chmod(0o755)
    environment = child_environment()
    return tmp_path, environment | {"PATH": f"{commands}{os.pathsep}{environment['PATH']}"}


@pytest.mark.rtl
@pytest.mark.nightly
def test_every_command_of_the_page_prints_what_it_shows(clone):
    """Compilers of three processors, QEMU, the RTL."""
    require_tools("aarch64-linux-gnu-gcc", "qemu-aarch64", "riscv64-unknown-elf-gcc")
    assert _follow(PAGE.read_text(encoding="utf-8"), *clone) > 10


@pytest.mark.nightly
def test_the_example_for_boards_runs_on_a_computer(clone):
    """The end of examples/board/README.md, with the files that its first commands write."""
    text = (ROOT / "examples" / "board" / "README.md").read_text(encoding="utf-8")
    first = text.split("```\n")[1].splitlines()
    for command in first:
        if command.startswith(("opu-fuse compile", "python -c")):
            assert _run(command, *clone).returncode == 0
    assert _follow(text, *clone) > 3


def _follow(text, folder, environment):
    """Run all commands of a page; how many these were."""
    followed = 0
    with ExitStack() as stack:
        for kind, block in blocks_of(text):
            name, _, option = kind.partition(" ")
            if name == "c":
                (folder / option).write_text(block, encoding="utf-8")
                continue
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, *shown = part.splitlines()
                followed += 1
                if command.endswith("&"):
                    _start(command, folder, environment, stack)
                    continue
                done = _run(command, folder, environment)
                assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
                assert re.fullmatch(pattern(shown), done.stdout), f"{command}\n{done.stdout}"
    return followed


def _run(command, folder, environment):
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _start(command, folder, environment, stack):
    """A simulation until the page ends; its first line says that it listens."""
    words = command.removesuffix("&").split()
    child = stack.enter_context(
        subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    )
    stack.callback(child.terminate)
    line = some(child.stdout).readline()
    assert line.endswith(f"is sim:{folder / words[-1]}\n"), line
