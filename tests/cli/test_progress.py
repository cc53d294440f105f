"""Whoever waits for a compilation sees how far it is, on a terminal and nowhere else."""

import sys

from rich.console import Console

from opu_fuse.cli import console
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import STAGES, compile_model
from opu_fuse.zoo import build


def test_the_bar_knows_every_stage():
    told = []
    compile_model(build("tiny_residual"), load_hw("opu-tiny"), progress=told.append)
    assert told == list(STAGES.values())


def test_a_terminal_shows_the_stage(monkeypatch):
    with Console(stderr=True, force_terminal=True, record=True) as terminal:
        monkeypatch.setattr(console.err, "rich", terminal)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        with console.progress_bar(2) as begin:
            begin("schedule")
            terminal.print("between")
    assert "schedule" in terminal.export_text()


def test_a_file_gets_no_bar(capfd):
    with console.progress_bar(2) as begin:
        begin("schedule")
    assert capfd.readouterr() == ("", "")
