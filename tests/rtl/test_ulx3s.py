"""The board ULX3S, simulated: processor, firmware, machine, SDRAM, the host at its line."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from opu_fuse.errors import RunError
from opu_fuse.hw.isa.register_map import ErrorCode
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile as compile_program
from opu_fuse.sim import ports
from opu_fuse.sim.engine import FunctionalRunner, run_on
from rtl_sim.boards.ulx3s.build import made_mhz
from rtl_sim.boards.ulx3s.host import BoardRunner
from rtl_sim.boards.ulx3s.link import BLOCK, Board, Stopped
from rtl_sim.boards.ulx3s.simulation import HERE, SECONDS, design_files, simulated
from rtl_sim.build import verilated
from rtl_sim.soc.firmware import COMPILER
from tests.dfg.canonical import float_model

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
HW = load_hw("opu-ulx3s")
TIME_TOLERANCE = 0.05
"""Of the cycle engine's memory against the SDRAM."""

pytestmark = pytest.mark.rtl
compiles = pytest.mark.skipif(
    shutil.which(COMPILER) is None and os.environ.get("CI") != "true",
    reason=f"needs {COMPILER} (apt-get install gcc-riscv64-unknown-elf)",
)


class Disturbed:
    """A line that damages a byte of some of what is sent. sends: numbers of those."""

    def __init__(self, line, *sends):
        self.line, self.sends, self.count = line, sends, 0

    def send(self, data):
        self.count += 1
        if self.count in self.sends:
            data = data[:-1] + bytes([data[-1] ^ 4])
        self.line.send(data)

    def receive(self, count, seconds):
        return self.line.receive(count, seconds)


def run_both(program, inputs, folder, *disturbed):
    """Runs a program on the board; its outputs and memory must be the functional engine's. Returns
    the cycles; the board is stopped by a bad program once.
    """
    functional = FunctionalRunner(program.bundle, HW)
    wanted = run_on(functional, program.bundle, inputs, engine="functional")
    with simulated(HW, folder) as line:
        board = Board(Disturbed(line, *disturbed), seconds=SECONDS)
        runner = BoardRunner(program.bundle, HW, board)
        found = run_on(runner, program.bundle, inputs, engine="board")
        runner.fetch_all()
        stop = board.run(program.bundle.window_bytes, program.bundle.program_offset, 3, SECONDS)
        with pytest.raises(RunError, match="bad argument"):
            board.write(32 << 20, bytes(4))
    assert isinstance(stop, Stopped)
    assert stop.code is ErrorCode.PROGRAM_END
    for name, array in wanted.outputs.items():
        np.testing.assert_array_equal(found.outputs[name], array)
    np.testing.assert_array_equal(runner.window, functional.window)
    memory = np.fromfile(folder / "dram.bin", np.uint8)[: functional.window.size]
    np.testing.assert_array_equal(memory, functional.window)
    return found.counters["cycles"]


@compiles
def test_the_board_classifies_digits_and_leaves_the_memory_of_the_functional_engine(tmp_path):
    model, known = DIGITS / "digits.onnx", DIGITS / "calibration.npz"
    program = compile_program(model, HW, calibration=known)
    images = np.load(DIGITS / "heldout.npz")["images"][:2]
    cycles = run_both(program, {program.bundle.inputs[0].name: images}, tmp_path)
    predicted = len(images) * program.run(engine="cycle").counters["cycles"]
    assert cycles == pytest.approx(predicted, rel=TIME_TOLERANCE)


@compiles
@pytest.mark.nightly
def test_host_pieces_between_programs_and_a_disturbed_line_change_nothing(tmp_path):
    """Host operators between machine segments; the third and the ninth thing sent is damaged."""
    text = """g (float[1, 8, 9, 7] x, float[16, 8, 3, 3] wa, float[8, 16, 1, 1] wb)
      => (float[1, 8, 9, 7] y)
      { a = Conv <pads = [1, 1, 1, 1]> (x, wa) r = Relu(a) s = Erf(r) y = Conv(s, wb) }"""
    program = compile_program(float_model(text), HW)
    assert len(program.bundle.segments) >= 3
    run_both(program, ports.noise(program.bundle), tmp_path, 3, 9)


def test_verilator_has_nothing_to_say_about_the_board():
    options = "--lint-only", "--assert", "-Wall", "-Wno-UNUSEDPARAM"
    sources = (*design_files(), HERE / "lint.vlt")
    with verilated("ulx3s", HW, *options, sources=sources) as (_, done):
        assert (done.returncode, done.stdout) == (0, "")


def test_the_spec_has_the_clock_of_the_board():
    assert HW.clock_mhz == made_mhz()


class Silent:
    def send(self, data):
        pass

    def receive(self, count, seconds):
        del count, seconds
        return b""


def test_a_board_that_says_nothing_is_told_with_what_to_look_at():
    with pytest.raises(RunError, match=r"does not answer.*is the bitstream loaded"):
        Board(Silent()).probe()


def test_a_block_fits_the_queue_of_the_serial_line():
    text = (HERE / "ulx3s_uart.sv").read_text(encoding="utf-8")
    assert f"#define BLOCK {BLOCK}u" in (HERE / "firmware.c").read_text(encoding="utf-8")
    assert f"DEPTH = {2 * BLOCK}" in text
