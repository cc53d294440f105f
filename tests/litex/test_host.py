"""The host's side of a board: programs arrive and run, and what the line damages is sent again."""

import ctypes
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from litex.tools.litex_term import sfl_ack_crcerror, sfl_ack_error, sfl_ack_success, sfl_ack_unknown

from opu_fuse.bundle.file import save
from opu_fuse.bundle.program import Bundle
from opu_fuse.devices.opening import open_device
from opu_fuse.errors import RunError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import compile_model
from opu_fuse.program import Program
from opu_fuse.sim.engine import run as run_engine
from opu_fuse.sim.ports import noise
from rtl_sim.litex import host, image
from rtl_sim.litex.console import outcome
from rtl_sim.litex.link import DIGEST, Board, Line, frame, opened
from tests.litex.board_model import (
    MEMORY,
    MEMORY_BYTES,
    BoardModel,
    board_model,
    commands_library,
)
from tests.litex.disturbed import Disturbed
from tests.litex.networks import classifier

TINY = load_hw("opu-tiny")
SECONDS, SILENCE = 0.3, 0.15
"""How long an answer takes at most, and after which silence both sides begin anew."""
FIRMWARE = bytes(range(256)) * 5 + b"end"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return commands_library(tmp_path_factory.mktemp("commands"))


@pytest.fixture
def model(commands: ctypes.CDLL) -> Iterator[BoardModel]:
    with board_model(commands) as board:
        yield board


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bundle]:
    """Host segments between machine segments and after them."""
    bundle = compile_model(classifier(), TINY, Options(host="c")).bundle
    path = tmp_path_factory.mktemp("program") / "classes.opu"
    save(bundle, path)
    return path, bundle


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """The folder of a board's build, as far as a host reads it."""
    folder = tmp_path / "build"
    folder.mkdir()
    (folder / "firmware.bin").write_bytes(FIRMWARE)
    constants = {
        "config_clock_frequency": 60_000_000,
        "opu_machine_lo": TINY.spec_hash & 0xFFFF_FFFF,
        "opu_machine_hi": TINY.spec_hash >> 32,
    }
    memories = {"main_ram": {"base": MEMORY, "size": MEMORY_BYTES}}
    (folder / "csr.json").write_text(json.dumps({"constants": constants, "memories": memories}))
    return folder


def board(line: Line) -> Board:
    return Board(line, seconds=SECONDS, quiet=SILENCE)


def test_one_command_boots_the_firmware_and_has_the_functional_engines_outputs(
    model: BoardModel,
    program: tuple[Path, Bundle],
    build: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, bundle = program
    words = [str(path), "--port", model.port, "--folder", str(build), "--check"]
    monkeypatch.setattr("sys.argv", ["host", *words, "--output", str(tmp_path / "out")])
    assert host.main() == 0
    said = capsys.readouterr().out
    assert "300 cycles at 60 MHz, 0.005 ms" in said
    assert "differ by" in said  # and it exits with 1 beyond the tolerance
    assert (model.restarts, model.runs) == (1, 1)
    expected = run_engine(bundle, TINY, noise(bundle)).outputs["scores"]
    got = np.load(tmp_path / "out" / "scores.npy")
    np.testing.assert_allclose(got.reshape(-1), expected.reshape(-1), rtol=host.RELATIVE)


def test_a_board_is_a_device(model: BoardModel, program: tuple[Path, Bundle], build: Path) -> None:
    ran = Program.load(program[0])
    (port,) = ran.bundle.inputs
    images = np.concatenate([noise(ran.bundle)[port.name]] * 3)
    images[1] //= 2
    with open_device(f"litex:{model.port},{build}") as device:
        result = device.run(ran, {port.name: images})
    assert (result.samples, result.counters["cycles"]) == (3, 200)
    expected = ran.run(images).outputs["scores"]
    assert result.outputs["scores"].shape == expected.shape
    np.testing.assert_allclose(result.outputs["scores"], expected, rtol=host.RELATIVE)


def test_a_device_says_why_a_program_does_not_run(
    program: tuple[Path, Bundle], tmp_path: Path
) -> None:
    with (
        open_device(f"litex:/dev/ttyUSB0,{tmp_path}") as device,
        pytest.raises(RunError, match=r"litex:.*: does not run the program: .* is no build"),
    ):
        device.run(Program.load(program[0]), noise(program[1]))


def test_what_the_board_has_is_not_sent_again(
    model: BoardModel, program: tuple[Path, Bundle], build: Path
) -> None:
    path, bundle = program
    known = host.read_build(build)
    sent: list[int] = []
    with opened(model.port, 3_000_000) as line:
        for _ in range(2):
            counted = Disturbed(line)
            host.run(board(counted), known, path, bundle, noise(bundle))
            sent.append(counted.writes)
    assert model.restarts == 1  # the firmware, too, remains
    assert model.runs == 2
    assert sent[1] < sent[0]


@pytest.mark.parametrize(
    "damage",
    [
        {"sent": {6}},
        {"sent": {9, 10}},
        {"received": {30}},
        {"lost": {8}},
        {"sent": {12}, "lost": {14}},
    ],
    ids=str,
)
def test_damage_in_either_direction_changes_nothing(
    damage: dict[str, set[int]], model: BoardModel, program: tuple[Path, Bundle], build: Path
) -> None:
    path, bundle = program
    inputs = noise(bundle)
    with opened(model.port, 3_000_000) as line:
        disturbed = Disturbed(line, **damage)
        got = host.run(board(disturbed), host.read_build(build), path, bundle, inputs)
    assert disturbed.damaged == sum(map(len, damage.values()))
    expected = run_engine(bundle, TINY, inputs).outputs
    np.testing.assert_allclose(
        got.outputs["scores"].reshape(-1), expected["scores"].reshape(-1), rtol=host.RELATIVE
    )


def test_damaged_outputs_are_made_again(
    model: BoardModel, program: tuple[Path, Bundle], build: Path
) -> None:
    path, bundle = program
    model.damaged_outputs = 2
    with opened(model.port, 3_000_000) as line:
        host.run(board(line), host.read_build(build), path, bundle, noise(bundle))
    assert model.runs == 3


def test_many_images_are_run_as_main_memory_holds_them(
    model: BoardModel, program: tuple[Path, Bundle], build: Path
) -> None:
    path, bundle = program
    (port,) = bundle.inputs
    rng = np.random.default_rng(1)
    images = rng.standard_normal((8, *port.shape[1:])).astype(np.float32)
    known = host.read_build(build)
    while host.images_at_once(known, path, bundle) > 3:
        known = dataclasses.replace(known, memory_bytes=known.memory_bytes - 64)
    with opened(model.port, 3_000_000) as line:
        result = host.run(board(line), known, path, bundle, {port.name: images})
    assert model.runs == 3
    assert result.cycles == 300 * model.runs
    expected = run_engine(bundle, TINY, {port.name: images}).outputs["scores"]
    got = result.outputs["scores"]
    np.testing.assert_allclose(got.reshape(-1), expected.reshape(-1), rtol=1e-5, atol=1e-6)


def test_every_frame_has_the_answer_that_says_what_is_wrong(
    model: BoardModel, program: tuple[Path, Bundle]
) -> None:
    begin, inside = MEMORY.to_bytes(4, "big"), (MEMORY + image.PAYLOAD_OFFSET).to_bytes(4, "big")
    beyond = (MEMORY + MEMORY_BYTES - 1).to_bytes(4, "big")
    cases = [
        (frame(b"\x01", inside + b"data"), sfl_ack_success),
        (frame(b"\x01", begin + b"data"), sfl_ack_error),  # the firmware is there
        (frame(b"\x01", beyond + b"data"), sfl_ack_error),
        (frame(b"\x01", b"\xff\xff\xff\xff" + b"data"), sfl_ack_error),
        (frame(b"\x01", b"no"), sfl_ack_error),
        (frame(DIGEST, inside + (1 << 31).to_bytes(4, "big")), sfl_ack_error),
        (frame(DIGEST, inside), sfl_ack_error),
        (frame(b"\x33"), sfl_ack_unknown),
        (frame(b"\x01", inside + b"data")[:-1] + b"b", sfl_ack_crcerror),
        (frame(b"\x01", inside + b"data")[:-1], sfl_ack_error),  # after a quarter of a second
    ]
    with opened(model.port, 3_000_000) as line:
        board(line).boot(FIRMWARE, MEMORY, MEMORY + image.PAYLOAD_OFFSET)
        line.timeout = 2.0
        for data, answer in cases:
            line.write(data)
            assert line.read(1) == answer, data
    assert model.memory[image.PAYLOAD_OFFSET :][:4].tobytes() == b"data"
    assert model.memory[: len(FIRMWARE)].tobytes() == FIRMWARE


def test_another_firmware_is_replaced(model: BoardModel) -> None:
    with opened(model.port, 3_000_000) as line:
        for number, firmware in enumerate((FIRMWARE, FIRMWARE[::-1], FIRMWARE[::-1])):
            loaded = board(line).boot(firmware, MEMORY, MEMORY + image.PAYLOAD_OFFSET)
            assert loaded == (number < 2)
    assert model.restarts == 2
    assert model.memory[: len(FIRMWARE)].tobytes() == FIRMWARE[::-1]


class Silent:
    timeout: float | None = None

    def write(self, data: bytes) -> int:
        return len(data)

    def read(self, size: int = 1) -> bytes:
        del size
        return b""


def test_a_silent_board_is_reported_with_what_to_look_at(
    program: tuple[Path, Bundle], build: Path
) -> None:
    with pytest.raises(RunError, match=r"BIOS does not answer.*is the bitstream loaded"):
        board(Silent()).boot(FIRMWARE, MEMORY, MEMORY)


def test_a_program_for_another_machine_is_refused(
    program: tuple[Path, Bundle], build: Path
) -> None:
    path, bundle = program
    text = (build / "csr.json").read_text()
    (build / "csr.json").write_text(text.replace(str(TINY.spec_hash & 0xFFFF_FFFF), "1"))
    with pytest.raises(RunError, match=r"is for machine .* the board has .*1.*compile the model"):
        host.run(board(Silent()), host.read_build(build), path, bundle, noise(bundle))


def test_a_folder_without_a_build_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is no build of a board.*rtl_sim\.litex\.target"):
        host.read_build(tmp_path)


def test_a_port_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no serial port.*name the port"):
        opened(str(tmp_path / "port"), 3_000_000)


def test_a_refused_program_is_an_error_with_the_firmwares_words(
    program: tuple[Path, Bundle],
) -> None:
    lines = ["opu: error: main memory has 1 bytes, the program needs 2", "opu: failed"]
    with pytest.raises(RunError, match=r"main memory has 1 bytes"):
        outcome(lines, program[1], 1)
    assert outcome(["opu: done"], program[1], 1) is None
