"""The board ULX3S, simulated: processor, firmware, machine, SDRAM, the host at its line."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from opu_fuse.hw.load import load_hw
from opu_fuse.pipeline import compile as compile_program
from opu_fuse.sim.engine import FunctionalRunner, run_on
from rtl_sim.boards.ulx3s.host import BoardRunner
from rtl_sim.boards.ulx3s.simulation import simulated
from rtl_sim.soc.firmware import COMPILER

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"

pytestmark = [
    pytest.mark.rtl,
    pytest.mark.skipif(
        shutil.which(COMPILER) is None and os.environ.get("CI") != "true",
        reason=f"needs {COMPILER} (apt-get install gcc-riscv64-unknown-elf)",
    ),
]


def test_the_board_classifies_digits_and_leaves_the_memory_of_the_functional_engine(tmp_path):
    hw = load_hw("opu-ulx3s")
    model, known = DIGITS / "digits.onnx", DIGITS / "calibration.npz"
    program = compile_program(model, hw, calibration=known)
    inputs = {program.bundle.inputs[0].name: np.load(DIGITS / "heldout.npz")["images"][:2]}
    functional = FunctionalRunner(program.bundle, hw)
    wanted = run_on(functional, program.bundle, inputs, engine="functional")
    with simulated(hw, tmp_path) as board:
        runner = BoardRunner(program.bundle, hw, board)
        found = run_on(runner, program.bundle, inputs, engine="board")
        runner.fetch_all()
    for name, array in wanted.outputs.items():
        np.testing.assert_array_equal(found.outputs[name], array)
    np.testing.assert_array_equal(runner.window, functional.window)
    memory = np.fromfile(tmp_path / "dram.bin", np.uint8)[: functional.window.size]
    np.testing.assert_array_equal(memory, functional.window)
    predicted = program.run(engine="cycle").counters["cycles"] * 2
    print(found.counters["cycles"], predicted)
