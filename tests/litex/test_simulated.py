"""A simulated SoC boots, and the machine in it has the functional engine's bits."""

import subprocess
import sys
from pathlib import Path

import pytest

from opu_fuse.sim.rtl.process import child_environment

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"


@pytest.mark.rtl
@pytest.mark.nightly
def test_the_processor_runs_digits_on_the_machine(tmp_path: Path) -> None:
    """Needs Debian's gcc-riscv64-unknown-elf, libevent-dev and libjson-c-dev."""
    program = tmp_path / "digits.opu"
    compile_ = [*("compile", str(DIGITS / "digits.onnx"), "--hw", "opu-tiny", "-o", str(program))]
    compile_ += ["--calibration", str(DIGITS / "calibration.npz")]
    commands = (
        [sys.executable, "-m", "opu_fuse", *compile_],
        [
            sys.executable,
            "-m",
            "rtl_sim.litex.simulate",
            str(program),
            "--folder",
            "soc",
            "--check",
        ],
    )
    said = ""
    for command in commands:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=child_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-6000:]
    assert "Executing booted program" in said
    assert "opu: done in" in said
    assert "outputs equal the functional engine's" in said
