"""A machine behind the socket of `opu-fuse hw sim` is a device for Python."""

import socket
import threading
import time

import numpy as np
import pytest

import opu_fuse
from opu_fuse.devices.sim_client import SimConnection
from opu_fuse.devices.sim_messages import REPLY, REQUEST, Command, Status
from opu_fuse.devices.sim_server import SimServer
from opu_fuse.errors import RunError
from opu_fuse.hw.isa.register_map import ID_VALUE, OFFSET
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.program import Program
from tests.devices.register_model import START, noise
from tests.devices.served import MEMORY_BYTES, served_model, served_rtl
from tests.runtime.test_host_segments import joined_model

TINY = load_hw("opu-tiny")


@pytest.fixture(scope="module")
def program() -> Program:
    """Machine, host and machine again."""
    return Program(bundle=compile_model(joined_model(), TINY, Options()).bundle, hw=TINY)


@pytest.fixture
def served():
    with served_model(TINY) as running:
        yield running


def _same(program, result, inputs):
    expected = program.run(inputs).outputs
    return all(np.array_equal(result.outputs[name], array) for name, array in expected.items())


def test_a_program_with_host_segments_has_the_functional_engines_bits(served, program):
    path, machine, _ = served
    with opu_fuse.open_device(f"sim:{path}") as device:
        for seed in (1, 2):
            inputs = noise(program.bundle, seed)
            result = device.run(program, inputs)
            assert _same(program, result, inputs)
    assert ("CTRL", START) in machine.model.log
    assert dict(machine.model.log)["IRQ_ENABLE"] == 3, "it waits for interrupts"


@pytest.mark.rtl
def test_the_rtl_has_the_functional_engines_bits_and_cycles(program):
    inputs = noise(program.bundle)
    with served_rtl("opu-tiny") as (path, _), opu_fuse.open_device(f"sim:{path}") as device:
        result = device.run(program, inputs)
        assert _same(program, result, inputs)
        assert result.counters["cycles"] == program.run(engine="cycle").counters["cycles"]


@pytest.mark.rtl
def test_the_memory_may_be_a_ddr_memory(program):
    inputs, memory = noise(program.bundle), "ddr3-1600x16"
    options = opu_fuse.MemoryOptions(dram=memory)
    with (
        served_rtl("opu-tiny", "--memory", memory, "--size", "8") as (path, _),
        opu_fuse.open_device(f"sim:{path}") as device,
    ):
        result = device.run(program, inputs)
    assert _same(program, result, inputs)
    cycles = program.run(engine="cycle", memory=options).counters["cycles"]
    assert result.counters["cycles"] == cycles


def test_one_client_at_a_time_and_a_reset_between_two(served):
    path, machine, _ = served
    first = SimConnection(str(path), "first")
    with pytest.raises(RunError, match="second: another client has the simulation; close that"):
        SimConnection(str(path), "second")
    assert first.read(OFFSET["ID"]) == ID_VALUE, "the first one was not disturbed"
    assert first.bytes.size == MEMORY_BYTES
    first.bytes[5] = 7
    first.close()
    _until(lambda: machine.resets == 1)
    with opu_fuse.open_device(f"sim:{path}"):
        assert machine.model.memory[5] == 7, "memory outlives the reset"


def test_a_caller_that_says_nothing_keeps_nobody_out(served):
    path, _, _ = served
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(path))
        connection = SimConnection(str(path), "x")
        assert connection.read(OFFSET["ID"]) == ID_VALUE
        connection.close()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ((Command.READ, 0x800, 0), Status.REFUSED),  # no such register
        ((Command.READ, 2, 0), Status.REFUSED),
        ((Command.WRITE, 1 << 12, 0), Status.REFUSED),
        ((99, 0, 0), Status.REFUSED),
        ((Command.READ, 0, 0), Status.DONE),
    ],
)
def test_an_access_that_is_refused_ends_nothing(served, request_, status):
    path, _, _ = served
    connection = SimConnection(str(path), "x")
    connection._socket.sendall(REQUEST.pack(*request_))
    assert REPLY.unpack(connection._socket.recv(8))[0] == status
    assert connection.read(OFFSET["ID"]) == ID_VALUE
    with pytest.raises(RunError, match=r"refuses the read at 0x801 \(SLVERR\)"):
        connection.read(0x801)
    connection.close()


def test_a_client_that_dies_while_it_waits_leaves_the_machine_free(program):
    with served_model(TINY, hangs=True) as (path, machine, _):
        connection = SimConnection(str(path), "x")
        connection.write(OFFSET["CTRL"], START)
        connection._socket.sendall(REQUEST.pack(Command.WAIT, 0, 60_000))
        connection.close()
        _until(lambda: machine.resets == 1)


def test_another_version_is_refused(served):
    path, _, _ = served
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(REQUEST.pack(Command.HELLO, 0, 99))
        assert REPLY.unpack(client.recv(8))[0] == Status.OTHER_VERSION
        assert client.recv(1) == b""


def test_a_server_of_another_version_is_named(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=_answer_once, args=(listener, Status.OTHER_VERSION, 7))
        thread.start()
        with pytest.raises(RunError, match="speaks version 7 of its messages, this is 1"):
            opu_fuse.open_device(f"sim:{path}")
        thread.join()


def test_a_server_that_ends_is_named(program):
    with (
        served_model(TINY, hangs=True) as (path, _, ended),
        opu_fuse.open_device(f"sim:{path}") as device,
    ):
        threading.Timer(0.3, ended.set).start()
        with pytest.raises(RunError, match="simulation has ended, or does not answer; look at"):
            device.run(program, noise(program.bundle))


def test_a_server_that_hangs_is_named(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(RunError, match="simulation has ended, or does not answer; look at"):
            opu_fuse.open_device(f"sim:{path}", timeout=0.1)


def test_a_program_that_does_not_end_is_stopped(program):
    with (
        served_model(TINY, hangs=True) as (path, _, _),
        opu_fuse.open_device(f"sim:{path}", timeout=0.1) as device,
        pytest.raises(RunError, match=r"still runs after 0.1 s"),
    ):
        device.run(program, noise(program.bundle))


def test_a_machine_that_stops_is_explained(served, program):
    path, machine, _ = served
    machine.model.faults = True
    with (
        opu_fuse.open_device(f"sim:{path}") as device,
        pytest.raises(RunError, match=r"segment 0: the machine stopped with buffer .* word 3"),
    ):
        device.run(program, noise(program.bundle))


def test_a_path_that_nobody_listens_to_says_what_to_start(tmp_path):
    for path in (tmp_path / "none", tmp_path / ("x" * 120)):
        with pytest.raises(RunError, match=r"no simulation can be reached .*; start it with `opu-"):
            opu_fuse.open_device(f"sim:{path}")


def test_a_socket_replaces_one_that_was_left_and_nothing_else(tmp_path):
    path = tmp_path / "socket"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with SimServer(path) as server:
        server.listen()
        with pytest.raises(RunError, match="another simulation listens there; choose another"):
            SimServer(path)
    assert not path.exists()
    path.write_text("mine")
    with pytest.raises(RunError, match="exists and is no socket; choose another path"):
        SimServer(path)
    assert path.read_text() == "mine"
    with pytest.raises(RunError, match=r"socket cannot be opened .*at most 107 bytes"):
        SimServer(tmp_path / ("x" * 120))
    with pytest.raises(RunError, match=r"cannot be opened \(No such file"):
        SimServer(tmp_path / "no folder" / "socket")


def _answer_once(listener, status, value):
    connection, _ = listener.accept()
    with connection:
        connection.recv(REQUEST.size)
        connection.sendall(REPLY.pack(status, value))


def _until(happened):
    deadline = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)
