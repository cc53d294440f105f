"""The Python of docs/linux.md runs as it is written: files stand for the buffer, a model for the
registers, a module for PYNQ.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opu_fuse
from opu_fuse.devices import linux, opening
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.program import Program
from tests.devices.linux_files import write_linux_files
from tests.devices.pynq_shim import install_pynq
from tests.devices.register_model import MachineModel

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
FIRST, PYNQ = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs" / "linux.md").read_text("utf-8"), re.S | re.M
)


class Machine(MachineModel):
    """Computes in the file of the buffer when it is started, from what was synchronised."""

    def __init__(self, buffer: Path) -> None:
        super().__init__(load_hw("opu-tiny"))
        self.memory = np.memmap(buffer, np.uint8, "r+")
        self.closed = False

    @property
    def registers(self) -> MachineModel:
        return self

    @property
    def interrupt(self) -> None:
        """Polled."""

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    root = write_linux_files(tmp_path / "root", load_hw("opu-tiny"))
    model = Machine(root / "dev" / "udmabuf0")
    monkeypatch.setattr(linux, "DEVICES", root / "dev")
    monkeypatch.setattr(linux, "BUFFERS", root / "sys/class/u-dma-buf")
    monkeypatch.setattr(opening, "UioPage", lambda number: {0: model}[number])
    return model


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Program, np.ndarray]:
    """The program of the page, and images."""
    monkeypatch.chdir(tmp_path)
    program = opu_fuse.compile(
        DIGITS / "digits.onnx", "opu-tiny", calibration=DIGITS / "calibration.npz"
    )
    program.save("network.opu")
    with np.load(DIGITS / "heldout.npz") as heldout:
        return program, heldout["images"][:3]


def test_the_first_example_runs(
    machine: Machine, digits: tuple[Program, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    program, image = digits
    names: dict[str, Any] = {"image": image}
    exec(FIRST, names)
    assert repr(program.run({"image": image}).outputs) in capsys.readouterr().out
    assert names["result"].engine == "uio:0"
    assert machine.closed
    assert [name for name, _ in machine.log].count("WINDOW_BASE_LO") == 1, "loaded once"


def test_the_example_for_pynq_runs(
    digits: tuple[Program, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, image = digits
    install_pynq(monkeypatch, MachineModel(load_hw("opu-tiny")))
    names: dict[str, Any] = {"image": image}
    exec(PYNQ, names)
    (got,), (expected,) = (
        outputs.values()
        for outputs in (names["result"].outputs, program.run({"image": image}).outputs)
    )
    assert np.array_equal(got, expected)
