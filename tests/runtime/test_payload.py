"""The C source of examples/board/ prints the same classes on every processor. Unicorn and the RTL:
test_emulated_processor.py; the SoC of LiteX: tests/litex/test_simulated.py.
"""

import struct
from pathlib import Path

import numpy as np
import pytest

from opu_fuse.resources import rtl_dir
from rtl_sim.litex import image
from tests.runtime.board_example import DIGITS, digits_payload, printed_classes
from tests.runtime.built import LIBRARY, SANITIZED, build
from tests.runtime.commands import CROSS, require_cross, run_command
from tests.tiers import by_night

ROOT = Path(__file__).parents[2]
FIRMWARE = rtl_dir() / "litex" / "firmware"
SOURCES = (ROOT / "examples" / "board" / "main.c", FIRMWARE / "payload.c")
C11 = ("-std=c11", f"-I{FIRMWARE}")  # aligned_alloc


@pytest.fixture(scope="module")
def program(sanitized, tmp_path_factory):
    target = tmp_path_factory.mktemp("program") / "classes"
    return build(target, *SOURCES, sanitized, options=(*SANITIZED, *C11))


@pytest.fixture(scope="module")
def payload(tmp_path_factory):
    folder = tmp_path_factory.mktemp("payload")
    (folder / "digits.payload").write_bytes(digits_payload(folder))
    return folder / "digits.payload"


def test_a_computer_prints_the_classes(program, payload):
    done = run_command(program, payload, env={"ASAN_OPTIONS": "detect_leaks=0"})
    assert (done.returncode, done.stdout) == (0, printed_classes())


@pytest.mark.parametrize("processor", by_night(CROSS, ["riscv64", "arm"]))
def test_other_processors_print_the_same(processor, payload, tmp_path):
    compiler = require_cross(processor, f"qemu-{processor}")
    options = ("-O1", "-static", *C11)
    target = build(tmp_path / "x", *SOURCES, *LIBRARY, compiler=compiler, options=options)
    done = run_command([f"qemu-{processor}", target], payload)
    assert (done.returncode, done.stdout) == (0, printed_classes())


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (0, 0, "no payload in main memory: load the file of image.py"),
        (4, 1 << 30, "no payload in main memory: load the file of image.py"),
        (4, 1000, "the file is damaged"),
        (8, 1 << 20, "main memory has 67108864 bytes, the program needs 3"),
        (8, 0xFFFF_FFFF, "main memory has 67108864 bytes, the program needs 12"),
    ],
)
def test_a_payload_that_cannot_run_is_refused(program, payload, tmp_path, at, value, said):
    """Magic, bytes of the file, images."""
    changed = bytearray(payload.read_bytes())
    changed[at : at + 4] = struct.pack("<I", value)
    (tmp_path / "changed").write_bytes(changed)
    done = run_command(program, tmp_path / "changed", env={"ASAN_OPTIONS": "detect_leaks=0"})
    assert done.returncode == 1
    assert f"opu: error: {said}" in done.stdout
    assert done.stderr == ""


def test_a_payload_is_written_by_a_command(payload, tmp_path, monkeypatch, capsys):
    with np.load(DIGITS / "heldout.npz") as heldout:
        np.save(tmp_path / "digits.npy", heldout["images"][:4])
    words = [str(payload.with_name("digits.opu")), "--input", f"image={tmp_path / 'digits.npy'}"]
    monkeypatch.setattr("sys.argv", ["image", *words, "-o", str(tmp_path / "written")])
    assert image.main() == 0
    assert (tmp_path / "written").read_bytes() == payload.read_bytes()
    monkeypatch.setattr("sys.argv", ["image", *words[:1], "-o", str(tmp_path)])
    assert image.main() == 1
    assert "error: " in capsys.readouterr().err
