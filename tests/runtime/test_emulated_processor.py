"""Firmware with libopu, on emulated processors without an operating system, drives the machine: a
Cortex-A72, and a 32-bit RISC-V microcontroller without floating point.
"""

from pathlib import Path

import numpy as np
import pytest

from opu_fuse.bundle.file import save
from opu_fuse.devices.sim_client import SimConnection
from opu_fuse.hw.isa.register_map import ErrorCode
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import compile as compile_program
from opu_fuse.pipeline import compile_model
from opu_fuse.sim import engine
from opu_fuse.sim.ports import noise
from tests.devices.served import served_model, served_rtl
from tests.runtime.board_example import digits_payload, printed_classes
from tests.runtime.commands import require_cross
from tests.runtime.libopu import File, Session, Status
from tests.runtime.test_host_segments import joined_model

pytest.importorskip("unicorn", reason="extra `dev` is not installed")
from tests.runtime.emulated.board import Board
from tests.runtime.emulated.detector import detector
from tests.runtime.emulated.processors import CORTEX_A72, SIFIVE_E31

TINY = load_hw("opu-tiny")
DIGITS = Path(__file__).parents[2] / "examples" / "digits"
IMAGES = 5
LARGEST_DIFFERENCE = 2e-6
"""Of functions of floats (docs/run-on-a-board.md)."""


@pytest.fixture(scope="module", params=[CORTEX_A72, SIFIVE_E31], ids=lambda p: p.name)
def started(request, tmp_path_factory):
    """A board on a connection, with libopu as its firmware."""
    processor, folder = request.param, tmp_path_factory.mktemp("firmware")
    image = processor.firmware(folder, require_cross(processor.name))
    return lambda connection: Board(processor, image, connection)


class Case:
    """A program file, inputs of one port, what Python computes of them and, where host segments
    compute floats, what libopu makes of them here.
    """

    def __init__(self, bundle, inputs, folder, *, floats=False):
        save(bundle, folder / "x.opu")
        self.file, self.inputs = (folder / "x.opu").read_bytes(), inputs
        named = {bundle.inputs[0].name: inputs}
        (self.expected,) = engine.run(bundle, TINY, named, engine="native").outputs.values()
        if floats:
            status, outputs = Session(File(self.file)).run([inputs], len(inputs))
            assert status is Status.OK
            (here,), python = outputs.values(), self.expected
            assert np.abs(here - python).max() <= LARGEST_DIFFERENCE * np.abs(python).max()
            self.expected = here
        self.segments = sum(hasattr(s, "words") for s in bundle.segments)

    def run(self, board, **options):
        output = np.zeros_like(self.expected)
        return board.run(self.file, self.inputs, output, **options), output


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """Machine, host and machine."""
    bundle = compile_model(joined_model(), TINY, Options(host="c")).bundle
    inputs = np.random.default_rng(1).normal(size=(IMAGES, *bundle.inputs[0].shape[1:]))
    return Case(bundle, inputs.astype(np.float32), tmp_path_factory.mktemp("joined"))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    images = np.load(DIGITS / "heldout.npz")["images"][:IMAGES]
    calibration = DIGITS / "calibration.npz"
    program = compile_program(DIGITS / "digits.onnx", TINY, calibration=calibration, host="c")
    return Case(program.bundle, images, tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    """A detector: boxes are decoded on the processor."""
    bundle = compile_model(detector(), TINY, Options(host="c")).bundle
    (inputs,) = noise(bundle).values()
    return Case(bundle, inputs, tmp_path_factory.mktemp("detector"), floats=True)


@pytest.fixture(scope="module")
def payload(tmp_path_factory):
    """Of examples/board/."""
    return digits_payload(tmp_path_factory.mktemp("payload"))


@pytest.fixture
def board(started):
    """In front of a model of the machine."""
    with served_model(TINY) as (path, machine, _):
        connection = SimConnection(str(path), "board")
        yield started(connection), machine.model
        connection.close()


def _same(ran, case):
    results, output = ran
    assert Status(results.status) is Status.OK
    return np.array_equal(output, case.expected)


def test_firmware_runs_networks_one_after_the_other(board, joined, digits):
    processor, _ = board
    for case in (joined, digits, joined):
        assert _same(case.run(processor), case)


def test_boxes_of_a_detector_have_the_same_bits_on_each_processor(board, boxes):
    processor, _ = board
    assert _same(boxes.run(processor), boxes)


def test_the_example_for_boards_prints_classes(board, payload):
    processor, _ = board
    for _ in range(2):
        assert processor.run_payload(payload) == printed_classes()
    damaged = payload[:64] + bytes(64) + payload[128:]
    assert "opu: error: the file is damaged" in processor.run_payload(damaged)


def test_frames_overlap_in_two_windows(board, joined):
    processor, model = board
    model.later = True
    assert _same(joined.run(processor, overlap=True), joined)


def test_a_fault_and_the_time_limit_are_reported_and_the_next_run_is_right(board, joined):
    processor, model = board
    model.faults = True
    results, _ = joined.run(processor)
    assert Status(results.status) is Status.MACHINE_FAULT
    assert (results.fault_code, results.fault_engine) == (ErrorCode.BUFFER, Engine.LOAD)
    assert (results.fault_instruction, results.fault_word) == (1, 3)  # `check` is the third word
    model.faults, model.hangs = False, True
    results, _ = joined.run(processor, timeout_ms=50)
    assert Status(results.status) is Status.TIMEOUT
    assert results.interrupts == 0
    model.hangs = False
    assert _same(joined.run(processor), joined)


@pytest.mark.rtl
def test_firmware_drives_the_rtl(started, joined, digits, boxes, payload):
    """Interrupts, faults at both ends of a program, overlapping frames."""
    with served_rtl("opu-tiny") as (path, _):
        connection = SimConnection(str(path), "board")
        processor = started(connection)
        assert processor.run_payload(payload) == printed_classes()
        for case in (joined, digits, boxes):
            ran = case.run(processor)
            assert _same(ran, case)
            assert ran[0].interrupts == ran[0].waits == len(case.inputs) * case.segments
            assert _same(case.run(processor, overlap=True), case)
        for word, bits, code in (
            (0, 1, ErrorCode.SPEC_MISMATCH),
            (8, 0xE000_0000, ErrorCode.ILLEGAL_INSTRUCTION),
        ):
            results, _ = joined.run(processor, damage=(word, bits))
            assert Status(results.status) is Status.MACHINE_FAULT
            assert results.fault_code == code
            assert results.interrupts == 1
            assert _same(joined.run(processor), joined)
        results, _ = joined.run(processor, timeout_ms=0)
        assert Status(results.status) is Status.TIMEOUT
        assert results.interrupts == 0
        assert _same(joined.run(processor), joined)
        connection.close()
