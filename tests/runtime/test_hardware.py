"""The back ends that drive registers: a model of the machine behind them, and files of Linux."""

import ctypes
import os
import subprocess

import numpy as np
import pytest

from opu_fuse import zoo
from opu_fuse.bundle.file import save
from opu_fuse.hw.isa.register_map import CONTROL_REGISTERS, ID_VALUE, VERSION_VALUE, ErrorCode
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim import engine
from opu_fuse.sim.ports import noise
from tests.devices.register_model import DONE, ERROR, START, MachineModel
from tests.runtime.built import build
from tests.runtime.libopu import Backend, File, Session, Status

TINY = load_hw("opu-tiny")
READ = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
WRITE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)
CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
OFFSET = {register.name: register.offset for register in CONTROL_REGISTERS}


class Registers(ctypes.Structure):
    """struct opu_registers."""

    _fields_ = (
        ("read", READ),
        ("write", WRITE),
        ("to_device", CALL),
        ("to_processor", CALL),
        ("wait", CALL),
        ("self", ctypes.c_void_p),
        ("address", ctypes.c_uint64),
    )


@pytest.fixture(scope="module")
def hardware(tmp_path_factory):
    """The back end alone: sessions are those of the library that the engine is in."""
    target = tmp_path_factory.mktemp("hardware") / "registers.so"
    options = ("-O1", "-fPIC", "-shared")
    return ctypes.CDLL(str(build(target, "hardware/opu_registers.c", options=options)))


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
        file = File(path.read_bytes())
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
        self.session = Session(file, self.backend, model.memory[: file.sizes.window_bytes])
        self.status = Status(self.session.status)

    def _wait(self, _):
        self.left -= 1
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
def linux(tmp_path):
    """Files that stand for /dev and /sys: a machine that has ended its program already."""
    root = tmp_path / "root"
    buffer = root / "sys/class/u-dma-buf/udmabuf0"
    buffer.mkdir(parents=True)
    (root / "dev").mkdir()
    for name, text in (("phys_addr", "0x70000000"), ("size", str(1 << 22))):
        (buffer / name).write_text(f"{text}\n")
    for name in ("sync_offset", "sync_size", "sync_direction", "sync_for_device", "sync_for_cpu"):
        (buffer / name).write_text("")
    (root / "dev/udmabuf0").write_bytes(bytes(1 << 22))
    words = np.zeros(1024, "<u4")
    for name, value in {
        "ID": ID_VALUE,
        "VERSION": VERSION_VALUE,
        "SPEC_HASH_LO": TINY.spec_hash & 0xFFFF_FFFF,
        "SPEC_HASH_HI": TINY.spec_hash >> 32,
        "STATUS": DONE,
    }.items():
        words[OFFSET[name] // 4] = value
    words.tofile(root / "dev/uio0")
    return root


def _on_linux(command, linux, case, tmp_path, device="uio:0"):
    path, inputs, _ = case
    (array,) = inputs.values()
    array.tofile(tmp_path / "in")
    words = [command, "-d", device, "-t", "1", path, tmp_path / "in", tmp_path / "out"]
    return subprocess.run(
        [str(w) for w in words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OPU_ROOT": str(linux)},
    )


def _register(linux, name):
    return int(np.fromfile(linux / "dev/uio0", "<u4")[OFFSET[name] // 4])


def test_linux_maps_registers_and_memory_and_maintains_caches(command, linux, case, tmp_path):
    done = _on_linux(command, linux, case, tmp_path)
    assert done.returncode == 0, done.stderr
    assert _register(linux, "WINDOW_BASE_LO") == 0x7000_0000
    assert _register(linux, "CTRL") == START
    assert (tmp_path / "out").stat().st_size > 0
    memory = (linux / "dev/udmabuf0").read_bytes()
    at, words = _register(linux, "PROG_BASE_LO"), _register(linux, "PROG_WORDS")
    segment = compile_model(zoo.build("tiny_residual"), TINY).bundle
    assert memory[at : at + 4 * words] == segment.words.astype("<u4").tobytes()[: 4 * words]
    buffer = linux / "sys/class/u-dma-buf/udmabuf0"
    assert (buffer / "sync_size").read_text() == str(1 << 22)
    assert (buffer / "sync_for_device").read_text() == "1"
    assert (buffer / "sync_for_cpu").read_text() == "1"


def test_linux_by_physical_memory(command, linux, case, tmp_path):
    registers = (linux / "dev/uio0").read_bytes()
    (linux / "dev/mem").write_bytes(registers + bytes(1 << 22))
    done = _on_linux(command, linux, case, tmp_path, "mem:0,0x1000,0x400000")
    assert done.returncode == 0, done.stderr


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
