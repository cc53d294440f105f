"""What a simulated SoC prints is shown and read, whatever replaces the terminal."""

import io
import sys
from pathlib import Path

import pytest

from rtl_sim.litex import simulate


class Silent(io.StringIO):
    """Answers nothing, as colorama's wrapper of stdout does; LiteX starts it."""

    def write(self, text: str) -> int:
        super().write(text)
        return None  # pyright: ignore[reportReturnType]  # as colorama does


@pytest.mark.parametrize("stdout", [io.StringIO, Silent])
def test_lines_are_shown_and_read(
    stdout: type[io.StringIO], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = tmp_path / "obj_dir" / "Vsim"
    simulator.parent.mkdir()
    simulator.write_text("#!/bin/sh\nprintf 'one\\n\\rtwo\\n\\r'\nexec sleep 60\n")
    simulator.chmod(0o755)
    shown = stdout()
    monkeypatch.setattr(sys, "stdout", shown)
    with simulate._console(tmp_path) as lines:
        read = [next(lines) for _ in range(3)]
    assert read == ["one", "", "two"]
    assert shown.getvalue() == "one\n\ntwo\n"
