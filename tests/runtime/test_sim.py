"""`opu-run -d sim:PATH`: libopu on a machine in another process, under sanitizers, on the RTL and
on other processors.
"""

import os
import socket
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opu_fuse.bundle.file import save
from opu_fuse.devices.sim_client import SimConnection
from opu_fuse.devices.sim_messages import MEMORY, REPLY, REQUEST, Command, Status
from opu_fuse.hw.isa.register_map import ERROR_DOC, ErrorCode
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import compile as compile_program
from opu_fuse.pipeline import compile_model
from tests.devices.register_model import START
from tests.devices.served import MEMORY_BYTES, served_model, served_rtl
from tests.runtime.commands import CROSS, case_of, cross_command, run_command, same_outputs
from tests.runtime.test_host_segments import joined_model
from tests.tiers import by_night

TINY = load_hw("opu-tiny")
DIGITS = Path(__file__).parents[2] / "examples" / "digits"
PROCESSORS = ("x86_64", *CROSS)
NIGHT = ("riscv64", "arm")


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """A network with a concatenation on the host, two images at a time."""
    return case_of(_joined_bundle(), tmp_path_factory.mktemp("joined"))


def _joined_bundle():
    return compile_model(joined_model(), TINY, Options(host="c", batch=2)).bundle


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The trained digits network, three images."""
    folder = tmp_path_factory.mktemp("digits")
    images = np.load(DIGITS / "heldout.npz")["images"][:3]
    bundle = compile_program(
        DIGITS / "digits.onnx", TINY, calibration=DIGITS / "calibration.npz", host="c"
    ).bundle
    return case_of(bundle, folder, inputs={bundle.inputs[0].name: images})


@pytest.fixture
def served():
    with served_model(TINY) as running:
        yield running


def _failed(command, path, case, *options):
    program, files, outputs = case
    words = ("-d", f"sim:{path}", *options, program, *files, *(p for p, _ in outputs))
    done = run_command(command, *words)
    assert done.returncode == 1
    assert "Sanitizer" not in done.stderr
    return done.stderr


def test_a_network_with_host_segments_under_sanitizers(command, served, joined):
    path, machine, _ = served
    assert same_outputs([command, "-d", f"sim:{path}"], joined)
    assert [v for name, v in machine.model.log if name == "CTRL"].count(START) == 4
    assert same_outputs([command, "-d", f"sim:{path}"], joined), "the next client finds it free"


@pytest.mark.rtl
@pytest.mark.parametrize("processor", by_night(PROCESSORS, NIGHT))
def test_the_rtl_computes_the_same_bits_for_every_processor(
    processor, command, joined, digits, tmp_path
):
    words = [command] if processor == "x86_64" else cross_command(processor, tmp_path)
    with served_rtl("opu-tiny") as (path, _):
        for case in (joined, digits):
            assert same_outputs([*words, "-d", f"sim:{path}", "-t", "100"], case)


@pytest.mark.parametrize("processor", by_night(CROSS, NIGHT))
def test_other_processors_reach_the_machine(processor, served, joined, tmp_path):
    path, _, _ = served
    assert same_outputs([*cross_command(processor, tmp_path), "-d", f"sim:{path}"], joined)


@pytest.mark.rtl
def test_a_fault_of_the_rtl_is_reported_and_the_next_program_runs(command, joined, tmp_path):
    good = _joined_bundle()
    words = good.words.copy()
    words[0] ^= 1  # of the spec's hash, which the first instruction compares
    damaged = case_of(good, tmp_path)
    save(replace(good, words=words), damaged[0])
    with served_rtl("opu-tiny") as (path, _):
        said = _failed(command, path, damaged, "-t", "100")
        assert "faults at an instruction" in said
        assert ERROR_DOC[ErrorCode.SPEC_MISMATCH] in said
        assert same_outputs([command, "-d", f"sim:{path}", "-t", "100"], joined)


def test_a_fault_has_its_instruction_and_text(command, served, joined):
    path, machine, _ = served
    machine.model.faults = True
    assert "faults at an instruction: instruction 1: " in _failed(command, path, joined)


def test_a_program_that_does_not_end_is_stopped(command, joined):
    with served_model(TINY, hangs=True) as (path, machine, _):
        assert "did not end in time and was stopped" in _failed(command, path, joined, "-t", "1")
        assert ("CTRL", 1 << 1) in machine.model.log


def test_a_second_client_is_told_who_has_the_machine(command, served, joined):
    path, _, _ = served
    connection = SimConnection(str(path), "x")
    assert "another client has it" in _failed(command, path, joined)
    connection.close()


def test_a_server_that_ends_is_no_timeout(command, joined):
    with served_model(TINY, hangs=True) as (path, _, ended):
        threading.Timer(0.5, ended.set).start()
        said = _failed(command, path, joined, "-t", "60")
    assert "segment 0: the device cannot be reached" in said
    assert "its process has ended" in said


def test_memory_that_is_too_small_and_another_machine_are_refused(command, served, joined):
    path, machine, _ = served
    os.truncate(machine.memory_file, 64)
    assert "smaller than the program needs" in _failed(command, path, joined)
    machine.model.set("SPEC_HASH_LO", 1)
    os.truncate(machine.memory_file, MEMORY_BYTES)
    assert "is another one than the program was compiled for" in _failed(command, path, joined)


def test_a_server_that_hangs_is_named(command, joined, tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        said = _failed(command, tmp_path / "socket", joined, "-t", "1")
    assert "its process does not answer" in said


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", "its process has ended"),
        (b"\0\0\0", "its process has ended"),
        (REPLY.pack(Status.OTHER_VERSION, 9), "is of another version of opu-fuse"),
        (REPLY.pack(77, 1), "is of another version of opu-fuse"),
        (REPLY.pack(Status.DONE, 1), "its process has ended"),
        (REPLY.pack(Status.DONE, 1) + MEMORY.pack(0, 4096), "its memory cannot be mapped"),
        (REPLY.pack(Status.DONE, 1) + MEMORY.pack(0, 0), "its memory cannot be mapped"),
    ],
)
def test_what_is_no_server_of_ours_is_refused(command, joined, tmp_path, answer, text):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=_answer_once, args=(listener, answer))
        thread.start()
        assert text in _failed(command, path, joined)
        thread.join()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("none", "no simulation listens there (opu-fuse hw sim)"),
        ("x" * 120, "is too long for the path of a socket"),
    ],
)
def test_a_path_without_a_server_is_named(command, joined, tmp_path, name, text):
    assert text in _failed(command, tmp_path / name, joined)


def test_a_name_needs_a_slash(command, joined):
    assert "is no name of a device" in _failed(command, "here", joined)


def _answer_once(listener, answer):
    connection, _ = listener.accept()
    with connection:
        assert REQUEST.unpack(connection.recv(REQUEST.size)) == (Command.HELLO, 0, 1)
        connection.sendall(answer)
