"""The Python of docs/linux.md runs as it is written: files stand for the buffer, a model for the
registers.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opu_fuse.devices import linux, opening
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile as compile_program
from tests.devices.linux_files import write_linux_files
from tests.devices.register_model import MachineModel

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
(FIRST, *_) = re.findall(
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
    monkeypatch.chdir(tmp_path)
    return model


def test_the_first_example_runs(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    program = compile_program(
        DIGITS / "digits.onnx", load_hw("opu-tiny"), calibration=DIGITS / "calibration.npz"
    )
    program.save("network.opu")
    with np.load(DIGITS / "heldout.npz") as heldout:
        image = heldout["images"][:3]
    names: dict[str, Any] = {"image": image}
    exec(FIRST, names)
    expected = program.run({"image": image}).outputs
    assert repr(expected) in capsys.readouterr().out
    assert names["result"].engine == "uio:0"
    assert machine.closed
    assert [name for name, _ in machine.log].count("WINDOW_BASE_LO") == 1, "loaded once"
