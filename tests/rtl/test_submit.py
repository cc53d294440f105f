"""libopu on the RTL's own control registers and memory: frames that overlap in two windows."""

import ctypes

import numpy as np
import pytest

from opu_fuse import zoo
from opu_fuse.bundle.file import save
from opu_fuse.errors import RunError
from opu_fuse.hw.isa.register_map import FIELD, OFFSET, ErrorCode
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim import engine
from opu_fuse.sim.rtl.process import RtlMachine
from tests.runtime.libopu import Backend, File, Session, Status
from tests.runtime.registers import CALL, READ, WRITE, Registers, registers_library

pytestmark = pytest.mark.rtl

TINY = load_hw("opu-tiny")
PAGE = 4096
START, QUEUE = (FIELD["CTRL", name].mask for name in ("start", "queue"))


class Board:
    """libopu with the simulated machine's registers, and a session for each window."""

    def __init__(self, folder, machine, path, patience=1000):
        self.machine, self.left = machine, patience
        self.commands, self.queued = [], 0
        self.registers = Registers(
            READ(lambda _, offset: machine.read(offset)),
            WRITE(lambda _, offset, value: self._write(offset, value)),
            CALL(),
            CALL(),
            CALL(self._wait),
        )
        self.backend = Backend()
        hardware = registers_library(folder)
        hardware.opu_registers_backend(ctypes.byref(self.backend), ctypes.byref(self.registers))
        file = File(path.read_bytes())
        size = file.sizes.window_bytes
        starts = range(0, machine.window.size, window_stride(size))
        self.sessions = [
            Session(file, self.backend, machine.window[at : at + size]) for at in starts
        ]

    def _write(self, offset, value):
        self.machine.write(offset, value)
        if offset == OFFSET["CTRL"] and value & (START | QUEUE):
            self.commands.append(value)
            self.queued += bool(
                self.machine.read(OFFSET["STATUS"]) & FIELD["STATUS", "queued"].mask
            )

    def _wait(self, _):
        self.machine.let_pass(500)
        self.left -= 1
        return int(self.left < 0)


def window_stride(size):
    return -(-size // PAGE) * PAGE


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """A program file, its bundle, and frames in the order of its inputs."""
    bundle = compile_model(zoo.build("tiny_residual"), TINY).bundle
    path = tmp_path_factory.mktemp("case") / "x.opu"
    save(bundle, path)
    frames = [
        [rng.normal(size=port.shape).astype(port.dtype) for port in bundle.inputs]
        for rng in map(np.random.default_rng, range(5))
    ]
    return path, bundle, frames


@pytest.fixture
def board(case, tmp_path):
    path, bundle, _ = case
    memory = np.zeros(2 * window_stride(bundle.window_bytes), np.uint8)
    with RtlMachine(TINY, memory) as machine:
        yield Board(tmp_path, machine, path)


def same(got, bundle, frame):
    named = dict(zip((port.name for port in bundle.inputs), frame, strict=True))
    expected = engine.run(bundle, TINY, named).outputs
    return all(np.array_equal(got[name], array) for name, array in expected.items())


def test_frames_overlap(board, case):
    """Each frame is written into one window while the machine works in the other."""
    _, bundle, frames = case
    for n, frame in enumerate(frames):
        assert board.sessions[n % 2].submit(frame) is Status.OK
        if n:
            status, got = board.sessions[(n - 1) % 2].wait()
            assert status is Status.OK
            assert same(got, bundle, frames[n - 1])
    status, got = board.sessions[(len(frames) - 1) % 2].wait()
    assert status is Status.OK
    assert same(got, bundle, frames[-1])
    assert board.commands == [START, *[QUEUE] * 4]
    assert board.queued == 4, "every one but the first waited for its predecessor"
    assert board.machine.read(OFFSET["PROGRAMS"]) == 5


def test_a_frame_that_fails_leaves_the_other_alone(board, case):
    """The first program is damaged after it was loaded: the machine drops the second one."""
    _, bundle, frames = case
    first, second = board.sessions
    at = bundle.segments[0].program_offset
    good = first.window[at : at + 4].copy()
    first.window[at] ^= 1  # of the spec's hash
    assert first.submit(frames[0]) is Status.OK
    assert second.submit(frames[1]) is Status.OK
    status, got = second.wait()
    assert status is Status.OK
    assert same(got, bundle, frames[1])
    assert first.wait()[0] is Status.MACHINE_FAULT
    assert np.frombuffer(first.memory.raw, "<u4", 3)[2] in (0, ErrorCode.SPEC_MISMATCH)
    first.window[at : at + 4] = good
    status, got = first.run(frames[2])
    assert status is Status.OK
    assert same(got, bundle, frames[2])


def test_the_machine_refuses_what_belongs_to_a_queued_program(board, case):
    _, _, frames = case
    for session, frame in zip(board.sessions, frames, strict=False):
        assert session.submit(frame) is Status.OK
    with pytest.raises(RunError, match="write to 0x34 was answered with SLVERR"):
        board.machine.write(OFFSET["WINDOW_BASE_LO"], 0)
    for session in board.sessions:
        assert session.wait()[0] is Status.OK
