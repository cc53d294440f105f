"""docs/linux.md: four packages are enough to run programs."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import opu_fuse
from opu_fuse.options import Options
from opu_fuse.pipeline import compile_model
from opu_fuse.program import Program
from opu_fuse.sim.rtl.process import child_environment
from tests.installed import hide_other_packages
from tests.litex.networks import classifier

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
RUN = """\
import sys
import numpy as np
import opu_fuse

program = opu_fuse.Program.load(sys.argv[1])
(port,) = program.bundle.inputs
inputs = {port.name: np.load(sys.argv[2])}
for engine in ("functional", "native"):
    np.save(engine, next(iter(program.run(inputs, engine=engine).outputs.values())))
with opu_fuse.open_device("sim:native") as device:
    np.save("device", next(iter(device.run(program, inputs).outputs.values())))
import onnx_ir
"""


def _run(program: Program, inputs: np.ndarray, folder: Path) -> str:
    """What Python says at its end, where the packages of the page are all that there is."""
    page = (ROOT / "docs" / "linux.md").read_text("utf-8")
    (packages,) = re.findall(r"^pip install ([a-z ]+)$", page, re.MULTILINE)
    hide_other_packages(folder, *packages.split())
    program.save(folder / "x.opu")
    np.save(folder / "inputs.npy", inputs)
    words = [sys.executable, "-c", RUN, "x.opu", "inputs.npy"]
    environment = child_environment(folder)
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.stderr.splitlines()[-1]


def test_programs_run_without_onnx(tmp_path: Path) -> None:
    program = opu_fuse.compile(
        DIGITS / "digits.onnx", "opu-tiny", calibration=DIGITS / "calibration.npz"
    )
    with np.load(DIGITS / "heldout.npz") as heldout:
        images = heldout["images"][:2]
    # Up to the last import everything is there.
    said = _run(program, images, tmp_path)
    assert said == "ModuleNotFoundError: onnx_ir is not installed here"
    (expected,) = program.run({"image": images}).outputs.values()
    for name in ("functional", "native", "device"):
        assert np.array_equal(np.load(tmp_path / f"{name}.npy"), expected)


@pytest.mark.filterwarnings("ignore")
def test_a_program_that_needs_onnx_runtime_says_so(tmp_path: Path) -> None:
    hw = opu_fuse.load_hw("opu-tiny")
    program = Program(bundle=compile_model(classifier(), hw, Options()).bundle, hw=hw)
    (port,) = program.bundle.inputs
    said = _run(program, np.zeros(port.shape, np.float32), tmp_path)
    assert "is a model for ONNX Runtime, which is not installed here" in said
    assert "pip install onnx onnxruntime" in said
