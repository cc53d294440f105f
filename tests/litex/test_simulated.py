"""A simulated SoC boots, and programs in it have the functional engine's results: what
examples/board/README.md says, and a network with host segments.
"""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from opu_fuse.bundle.file import save
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.rtl.process import child_environment
from tests.installed import hide_other_packages
from tests.litex.networks import classifier

ROOT = Path(__file__).resolve().parents[2]
LARGEST_GAP = 0.02
"""Of the cycles of a network: starting machine segments and noticing their end."""
SRAM_BYTES = 16 << 10

pytestmark = [pytest.mark.rtl, pytest.mark.nightly]
"""Needs Debian's gcc-riscv64-unknown-elf, libevent-dev and libjson-c-dev (.ci/packages)."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both programs are small: the simulator of the first one runs the second one too."""
    return tmp_path_factory.mktemp("soc")


def test_the_board_example_prints_classes(folder: Path) -> None:
    """Every command of the page but those that install, in the folder of the repository. Packages
    that the page does not install are hidden.
    """
    page = (ROOT / "examples/board/README.md").read_text(encoding="utf-8")
    block = page.split("```\n")[1]
    commands = block.splitlines()
    assert len(commands) <= 6
    (extras,) = re.findall(r"^pip install '\.\[(.+)\]'$", block, re.MULTILINE)
    hide_other_packages(folder, f"opu-fuse[{extras}]")
    said = ""
    for command in commands:
        if not command.startswith(("apt-get", "pip", "python3 -m venv")):
            said = _run(_here(command, folder), folder)
    with np.load(ROOT / "examples/digits/heldout.npz") as heldout:
        labels = heldout["labels"][:4].tolist()
    classes = [int(text) for text in re.findall(r"image \d: class (\d+)", said)]
    assert classes == labels
    assert "Executing booted program" in said


def test_host_segments_run_on_the_processor(folder: Path) -> None:
    """Convolutions on the machine; concatenation between them, mean and Softmax on VexRiscv."""
    program = folder / "classes.opu"
    save(compile_model(classifier(), load_hw("opu-tiny"), Options(host="c")).bundle, program)
    words = ["-m", "rtl_sim.litex.simulate", program, "--check", "--folder", folder / "soc"]
    said = _run([sys.executable, *map(str, words)])
    assert re.search(r"opu: image 0: class \d", said)
    assert "functional engine's" in said  # it exits with 1 beyond the tolerance
    total, machine, gap, processor = _numbers(
        r"(\d+) cycles: machine (\d+), \D+(\d+), \D+(\d+)", said
    )
    assert total == machine + gap + processor
    assert processor > 0
    assert gap <= LARGEST_GAP * total
    (sram,) = _numbers(r"(\d+) bytes of SRAM", said)
    assert sram <= SRAM_BYTES


def _here(command: str, folder: Path) -> list[str]:
    """A command of the page for this environment, its files in `folder`."""
    for name in ("digits.opu", "digits.npy"):
        command = re.sub(rf"(?<![/\w]){name}", str(folder / name), command)
    words = re.findall(r'"[^"]*"|\S+', command)
    words = [word.strip('"') for word in words]
    if words[0] == "opu-fuse":
        words[:1] = ["python", "-m", "opu_fuse"]
    if "rtl_sim.litex.target" in words:
        words += ["--folder", str(folder / "soc")]
    assert words[0] == "python"
    return [sys.executable, *words[1:]]


def _run(command: list[str], *modules: Path) -> str:
    """What it prints. modules: folders of further ones, before all."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=child_environment(*modules),
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    return said


def _numbers(pattern: str, said: str) -> tuple[int, ...]:
    (found,) = re.findall(pattern, said)
    return tuple(int(n) for n in (found if isinstance(found, tuple) else (found,)))
