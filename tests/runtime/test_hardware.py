"""The back ends that drive registers: a model of the machine behind them, and files of Linux."""

import ctypes

import numpy as np
import pytest

from opu_fuse import zoo
from opu_fuse.bundle.file import save
from opu_fuse.hw.isa.register_map import VERSION_VALUE, ErrorCode
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim import engine
from opu_fuse.sim.ports import noise
from tests.devices.linux_files import OFFSET, write_linux_files
from tests.devices.register_model import ERROR, QUEUE, START, MachineModel
from tests.runtime.commands import CROSS, cross_command, run_command
from tests.runtime.libopu import Backend, File, Session, Status
from tests.runtime.registers import CALL, READ, WRITE, Registers, registers_library
from tests.tiers import by_night

TINY = load_hw("opu-tiny")


@pytest.fixture(scope="module")
def hardware(tmp_path_factory):
    return registers_library(tmp_path_factory.mktemp("hardware"))


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    bundle = compile_model(zoo.build("tiny_residual"), TINY).bundle
    path = tmp_path_factory.mktemp("case") / "x.opu"
    save(bundle, path)
    inputs = noise(bundle)
    return path, inputs, engine.run(bundle, TINY, inputs).outputs


class Board:
    """A session on a model of the machine. patience: looks at the status before the time is up."""

    def __init__(self, hardware, path, model, patience=3):
        self.model, self.left = model, patience
        self.file = File(path.read_bytes())
        self.registers = Registers(
            READ(lambda _, offset: model.read(offset)),
            WRITE(lambda _, offset, value: model.write(offset, value)),
            CALL(lambda _: model.to_device() or 0),
            CALL(lambda _: model.to_processor() or 0),
            CALL(self._wait),
            None,
            model.address,
        )
        self.backend = Backend()
        hardware.opu_registers_backend(ctypes.byref(self.backend), ctypes.byref(self.registers))
        start = -model.memory.ctypes.data % 64  # the model's memory is the window
        model.memory = model.memory[start:]
        self.session = self.another(0)
        self.status = Status(self.session.status)

    def another(self, at):
        """A session whose window begins at a byte of the machine's memory."""
        window = self.model.memory[at : at + self.file.sizes.window_bytes]
        return Session(self.file, self.backend, window)

    def _wait(self, _):
        self.left -= 1
        if self.model.later:
            self.model.advance()
        return int(self.left < 0)


def test_a_machine_behind_registers_runs_a_network(hardware, case):
    path, inputs, expected = case
    board = Board(hardware, path, MachineModel(TINY))
    assert board.status is Status.OK
    status, got = board.session.run(inputs.values())
    assert status is Status.OK
    assert all(np.array_equal(got[name], expected[name]) for name in expected)
    assert board.model.synced == ["device", "processor"]


def test_another_machine_and_no_machine_are_refused(hardware, case):
    path, _, _ = case
    assert Board(hardware, path, MachineModel(load_hw("opu-micro"))).status is Status.OTHER_SPEC
    empty = MachineModel(TINY)
    empty.set("ID", 0xFFFF_FFFF)
    assert Board(hardware, path, empty).status is Status.NO_MACHINE


@pytest.mark.parametrize("silent", [False, True])
def test_a_program_that_does_not_end_is_stopped(hardware, case, silent):
    path, inputs, _ = case
    board = Board(hardware, path, MachineModel(TINY, hangs=not silent, silent=silent))
    assert board.session.run(inputs.values())[0] is Status.TIMEOUT
    controls = [value for name, value in board.model.log if name == "CTRL"]
    assert controls[-1] == (1 << 4 if silent else 1 << 1)  # abort, stop


def test_a_fault_has_code_engine_and_instruction(hardware, case):
    path, inputs, _ = case
    model = MachineModel(TINY)
    board = Board(hardware, path, model)
    model.faults = True
    assert board.session.run(inputs.values())[0] is Status.MACHINE_FAULT
    _, _, code, driver, instruction, word = np.frombuffer(board.session.memory.raw, "<u4", 6)
    assert (code, driver, word) == (ErrorCode.BUFFER, 1, 3)
    assert instruction == 1  # `check` is the third word


@pytest.fixture
def overlapping(hardware, case):
    """A board whose programs take their time, and two sessions with a window each."""
    path, inputs, _ = case
    model = MachineModel(TINY)
    model.later = True
    board = Board(hardware, path, model, patience=50)
    second = board.another(1 << 20)
    frames = [
        [rng.normal(size=a.shape).astype(a.dtype) for a in inputs.values()]
        for rng in map(np.random.default_rng, range(5))
    ]
    return board, (board.session, second), frames


def _expected(case, frame):
    _, inputs, _ = case
    bundle = compile_model(zoo.build("tiny_residual"), TINY).bundle
    return engine.run(bundle, TINY, dict(zip(inputs, frame, strict=True))).outputs


def _equal(got, expected):
    return all(np.array_equal(got[name], expected[name]) for name in expected)


def test_frames_overlap_in_two_windows(overlapping, case):
    """The second one is queued, in its own window, while the first one runs."""
    board, sessions, frames = overlapping
    for n, frame in enumerate(frames):
        assert sessions[n % 2].submit(frame) is Status.OK
        if n:
            status, got = sessions[(n - 1) % 2].wait()
            assert status is Status.OK
            assert _equal(got, _expected(case, frames[n - 1]))
    status, got = sessions[(len(frames) - 1) % 2].wait()
    assert status is Status.OK
    assert _equal(got, _expected(case, frames[-1]))
    controls = [v for name, v in board.model.log if name == "CTRL" and v in (START, QUEUE)]
    assert controls == [START, QUEUE, QUEUE, QUEUE, QUEUE]
    windows = [v for name, v in board.model.log if name == "WINDOW_BASE_LO"][2:]
    assert windows == [board.model.address + n % 2 * (1 << 20) for n in range(len(frames))]


def test_a_session_holds_one_frame_and_a_machine_two(overlapping, case):
    board, (first, second), frames = overlapping
    assert first.wait()[0] is Status.NO_FRAME
    assert first.submit(frames[0]) is Status.OK
    assert first.submit(frames[1]) is Status.BUSY
    assert first.run(frames[1])[0] is Status.BUSY
    assert second.submit(frames[1]) is Status.OK
    third = board.another(1 << 21)
    assert third.submit(frames[2]) is Status.BUSY
    for session, frame in ((first, frames[0]), (second, frames[1])):
        assert _equal(session.wait()[1], _expected(case, frame)), "the refused one changed it"
    assert third.submit(frames[2]) is Status.OK
    assert _equal(third.wait()[1], _expected(case, frames[2]))
    assert third.wait()[0] is Status.NO_FRAME


def test_a_fault_loses_its_own_frame_only(overlapping, case):
    """The machine drops the queued program; it is started again."""
    board, (first, second), frames = overlapping
    assert first.submit(frames[0]) is Status.OK
    assert second.submit(frames[1]) is Status.OK
    board.model.faults = True
    board.model.advance()
    board.model.faults = False
    status, got = second.wait()
    assert status is Status.OK
    assert _equal(got, _expected(case, frames[1]))
    assert first.wait()[0] is Status.MACHINE_FAULT
    _, _, code, driver, _, word = np.frombuffer(first.memory.raw, "<u4", 6)
    assert (code, driver, word) == (ErrorCode.BUFFER, 1, 3)
    assert first.submit(frames[2]) is Status.OK
    assert _equal(first.wait()[1], _expected(case, frames[2]))


def test_both_frames_may_have_ended_before_anyone_looks(overlapping, case):
    board, sessions, frames = overlapping
    for session, frame in zip(sessions, frames, strict=False):
        assert session.submit(frame) is Status.OK
    board.model.advance()
    board.model.advance()
    for session, frame in zip(sessions, frames, strict=False):
        assert _equal(session.wait()[1], _expected(case, frame))


def test_an_image_may_run_between_frames(overlapping, case):
    """`opu_run` takes its place behind the frame that runs."""
    _, (first, second), frames = overlapping
    assert first.submit(frames[0]) is Status.OK
    assert _equal(second.run(frames[1])[1], _expected(case, frames[1]))
    assert _equal(first.wait()[1], _expected(case, frames[0]))


def test_time_that_is_up_ends_both_programs(overlapping, case):
    board, (first, second), frames = overlapping
    board.model.later, board.model.hangs, board.left = False, True, 3
    assert first.submit(frames[0]) is Status.OK
    assert first.wait()[0] is Status.TIMEOUT
    board.model.hangs = False
    assert second.submit(frames[1]) is Status.OK
    assert _equal(second.wait()[1], _expected(case, frames[1]))


def test_an_older_machine_takes_no_window_while_it_runs(overlapping, case):
    board, (first, second), frames = overlapping
    board.model.set("VERSION", VERSION_VALUE - 1)
    assert first.submit(frames[0]) is Status.OK
    assert second.submit(frames[1]) is Status.BUSY
    assert _equal(first.wait()[1], _expected(case, frames[0]))
    assert second.submit(frames[1]) is Status.OK
    assert _equal(second.wait()[1], _expected(case, frames[1]))


def test_the_native_engine_runs_a_frame_when_it_is_waited_for(case):
    path, inputs, expected = case
    session = Session(File(path.read_bytes()))
    assert session.wait()[0] is Status.NO_FRAME
    assert session.submit(inputs.values(), images=2) is Status.BAD_ARGUMENT, "more than the batch"
    assert session.submit([a.ravel()[1:] for a in inputs.values()]) is Status.SMALL_MEMORY
    assert session.submit(inputs.values()) is Status.OK
    assert session.submit(inputs.values()) is Status.BUSY
    status, got = session.wait()
    assert status is Status.OK
    assert _equal(got, expected)


@pytest.fixture
def linux(tmp_path):
    return write_linux_files(tmp_path / "root", TINY)


def _on_linux(command, linux, case, tmp_path, device="uio:0"):
    path, inputs, _ = case
    (array,) = inputs.values()
    array.tofile(tmp_path / "in")
    words = ("-d", device, "-t", "1", path, tmp_path / "in", tmp_path / "out")
    return run_command(command, *words, env={"OPU_ROOT": str(linux)})


def _register(linux, name):
    return int(np.fromfile(linux / "dev/uio0", "<u4")[OFFSET[name] // 4])


def _assert_started(linux, done):
    """The program of the case is in the machine's memory, and was started."""
    assert done.returncode == 0, done.stderr
    assert _register(linux, "WINDOW_BASE_LO") == 0x7000_0000
    assert _register(linux, "CTRL") == START
    memory = (linux / "dev/udmabuf0").read_bytes()
    at, words = _register(linux, "PROG_BASE_LO"), _register(linux, "PROG_WORDS")
    segment = compile_model(zoo.build("tiny_residual"), TINY).bundle
    assert words > 0
    assert memory[at : at + 4 * words] == segment.words.astype("<u4").tobytes()[: 4 * words]


@pytest.mark.parametrize("processor", by_night(CROSS, ["riscv64", "arm"]))
def test_linux_of_other_processors(processor, linux, case, tmp_path):
    """Registers and memory are mapped there too."""
    _assert_started(linux, _on_linux(cross_command(processor, tmp_path), linux, case, tmp_path))


def test_linux_maps_registers_and_memory_and_maintains_caches(command, linux, case, tmp_path):
    _assert_started(linux, _on_linux(command, linux, case, tmp_path))
    assert (tmp_path / "out").stat().st_size > 0
    buffer = linux / "sys/class/u-dma-buf/udmabuf0"
    assert (buffer / "sync_size").read_text() == str(1 << 22)
    assert (buffer / "sync_for_device").read_text() == "1"
    assert (buffer / "sync_for_cpu").read_text() == "1"


def test_linux_by_physical_memory(command, linux, case, tmp_path):
    registers = (linux / "dev/uio0").read_bytes()
    (linux / "dev/mem").write_bytes(registers + bytes(1 << 22))
    done = _on_linux(command, linux, case, tmp_path, "mem:0,0x1000,0x400000")
    assert done.returncode == 0, done.stderr
    done = _on_linux(command, linux, case, tmp_path, f"mem:0,0x1000,{1 << 64}")
    assert done.returncode == 1
    assert "is no name of a device" in done.stderr, "more than 64 bits"


def test_linux_takes_the_buffer_of_the_same_number_or_the_one_that_is_named(
    command, linux, case, tmp_path
):
    (linux / "dev/uio0").rename(linux / "dev/uio1")
    for device, buffer in (("uio:1", "udmabuf1"), ("uio:1,my-buffer", "my-buffer")):
        done = _on_linux(command, linux, case, tmp_path, device)
        assert f"u-dma-buf/{buffer}/phys_addr: No such file" in done.stderr
    assert _on_linux(command, linux, case, tmp_path, "uio:1,udmabuf0").returncode == 0


def test_linux_says_what_is_missing(command, linux, case, tmp_path):
    words = np.fromfile(linux / "dev/uio0", "<u4")
    words[OFFSET["STATUS"] // 4], words[OFFSET["ERROR"] // 4] = ERROR, ErrorCode.AXI_READ
    words.tofile(linux / "dev/uio0")
    done = _on_linux(command, linux, case, tmp_path)
    assert "faults at an instruction: instruction 0: the memory answered a read" in done.stderr
    (linux / "sys/class/u-dma-buf/udmabuf0/size").write_text("4096\n")
    assert "smaller than the program needs" in _on_linux(command, linux, case, tmp_path).stderr
    (linux / "sys/class/u-dma-buf/udmabuf0/size").unlink()
    done = _on_linux(command, linux, case, tmp_path)
    assert "udmabuf0/size: No such file" in done.stderr
    assert done.returncode == 1
