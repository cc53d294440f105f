"""The board ULX3S, simulated: the Verilog that its bitstream is made of, BIOS, firmware, machine, a
memory that checks its data sheet, and the host at its serial line.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opu_fuse.errors import RunError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Program
from opu_fuse.pipeline import compile as compile_program
from opu_fuse.sim.cycle.run import MemoryOptions
from opu_fuse.sim.engine import FunctionalRunner, run_on
from rtl_sim.litex import host, image
from rtl_sim.litex.console import Outcome
from rtl_sim.litex.link import Board, Line
from rtl_sim.litex.target import write_board
from rtl_sim.litex.ulx3s.simulation import NAME, SECONDS, simulated
from tests.litex.disturbed import Disturbed

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
HW = load_hw("opu-ulx3s")
IMAGES = 2
LITEDRAM = MemoryOptions(bytes_per_cycle=1.55, latency=22)
TIME_TOLERANCE = 0.05
"""Of the cycle engine's memory against LiteDRAM."""
QUIET = 5.0
"""Seconds without a byte: a simulated board needs more of them than a real one."""

pytestmark = [pytest.mark.rtl, pytest.mark.nightly]
"""Needs Debian's gcc-riscv64-unknown-elf (.ci/packages)."""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    settings: dict[str, Any] = {"board": NAME, "toolchain": "", "folder": folder, "build": False}
    write_board(argparse.Namespace(**settings), HW, None)
    return folder


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "digits.opu"
    calibration = DIGITS / "calibration.npz"
    compile_program(DIGITS / "digits.onnx", HW, calibration=calibration, host="c").save(path)
    return path


def test_the_board_boots_loads_and_classifies_digits_over_a_disturbed_line(
    build: Path, program: Path, tmp_path: Path
) -> None:
    """Frames to BIOS and firmware arrive damaged; a program that is none is refused, and the board
    runs the next one.
    """
    bundle = Program.load(program).bundle
    with np.load(DIGITS / "heldout.npz") as heldout:
        images, labels = heldout["images"][:IMAGES], heldout["labels"][:IMAGES]
    inputs = {bundle.inputs[0].name: images}
    known = host.read_build(build)

    def use(line: Line) -> Outcome:
        disturbed = Disturbed(line, sent={40})
        board = Board(disturbed, seconds=SECONDS, quiet=QUIET)
        board.boot(known.firmware, known.memory, known.payload, listen=SECONDS)
        board.load(known.payload, b"OPUL" + bytes(60))
        board.start(known.memory)
        with pytest.raises(RunError, match="opu: error"):
            host.outcome(board.lines(SECONDS), bundle, IMAGES)
        disturbed.sent = {disturbed.writes + n for n in (1, 3)}  # a digest, frames of the program
        result = host.run(board, known, program, bundle, inputs)
        assert disturbed.damaged == 3
        again = host.run(board, known, program, bundle, inputs)
        assert again.machine == pytest.approx(result.machine, rel=0.01)  # but for refreshes
        return result

    with simulated(HW, build, tmp_path) as line:
        result = use(line)
    functional = FunctionalRunner(bundle, HW)
    expected = run_on(functional, bundle, inputs, engine="functional").outputs
    for name, array in expected.items():
        np.testing.assert_array_equal(result.outputs[name].reshape(array.shape), array)
    (scores,) = result.outputs.values()
    np.testing.assert_array_equal(scores.reshape(IMAGES, -1).argmax(axis=1), labels)
    data = bytes(image.payload(program, bundle, inputs))
    window = image.aligned(image.PAYLOAD_OFFSET + len(data), 4096)
    memory = np.fromfile(tmp_path / "dram.bin", np.uint8)[window:][: functional.window.size]
    np.testing.assert_array_equal(memory, functional.window)
    predicted = (
        IMAGES * Program.load(program).run(engine="cycle", memory=LITEDRAM).counters["cycles"]
    )
    assert result.machine == pytest.approx(predicted, rel=TIME_TOLERANCE)
