"""Whoever waits sees how far the command is and how long it takes: a bar on a terminal, a line a
minute elsewhere.
"""

import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from rich.console import Console

from opu_fuse.cli import console
from opu_fuse.cli import progress as cli_progress
from opu_fuse.cli.progress import COMPILE_SHARES, Estimate, progress, stages, time_left
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import STAGES, Options, Program, compile_model
from opu_fuse.process.progress import listening, part, report
from opu_fuse.zoo import build


def test_the_bar_knows_every_stage():
    begun = []
    compile_model(build("tiny_residual"), load_hw("opu-tiny"), progress=begun.append)
    assert begun == list(STAGES.values())
    assert list(COMPILE_SHARES) == [*begun, "write"]
    assert sum(COMPILE_SHARES.values()) == pytest.approx(1.0)


class Clock:
    """Time that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


def test_the_time_left_follows_from_what_is_done():
    clock = Clock()
    estimate = Estimate(clock)
    estimate.what, estimate.share = "schedule", 0.25
    clock.now = 1.0
    assert str(estimate) == "schedule, 25% done, 0:01 elapsed", "too early to say"
    clock.now = 30.0
    assert str(estimate) == "schedule, 25% done, 0:30 elapsed, 1:30 left"
    clock.now = 4000.0
    assert estimate.left_text == "3:20:00 left"
    estimate.share = 0.0
    assert estimate.left_text == ""


def test_a_part_of_the_work_is_a_part_of_the_bar():
    heard = []
    with listening(lambda what, share: heard.append((what, share))), part(0.5, 0.75):
        report("a", 0.0)
        with part(0.5, 1.0):
            report("b", 0.5)
    report("nobody listens", 1.0)
    assert heard == [("a", 0.5), ("b", 0.6875)]


def test_a_stage_is_as_far_as_what_it_reports(monkeypatch):
    heard = []

    @contextmanager
    def recorded():
        yield lambda what, share: heard.append((what, share))

    monkeypatch.setattr(cli_progress, "progress", recorded)
    with stages({"one": 0.75, "two": 0.25}) as begin:
        begin("one")
        report("half", 0.5)
        begin("two")
        report("all", 1.0)
    assert heard == [("one", 0.0), ("half", 0.375), ("two", 0.75), ("all", 1.0)]


def listening_to(heard):
    return listening(lambda what, share: heard.append((what, share)))


def test_calibration_a_run_and_the_scales_report_what_is_done():
    heard = []
    samples = {"input": np.zeros((6, 3, 12, 12), np.float32)}
    samples["input"][:] = np.linspace(-1, 1, 12)
    with listening_to(heard):
        done = compile_model(
            build("tiny_residual"), load_hw("opu-tiny"), Options(calibration=samples)
        )
        program = Program(bundle=done.bundle, hw=load_hw("opu-tiny"))
        program.run({"input": samples["input"]})
    texts = [what for what, _ in heard]
    assert any(text.startswith("choose scales: 1 of ") for text in texts)
    runs = [(what, share) for what, share in heard if what.startswith("sample ")]
    assert runs == [(f"sample {n + 1} of 6", pytest.approx(n / 6)) for n in range(6)]


def test_a_terminal_shows_the_stage_and_the_time_left(monkeypatch):
    with Console(stderr=True, force_terminal=True, record=True, width=100) as terminal:
        monkeypatch.setattr(console.err, "rich", terminal)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setattr(Estimate, "elapsed", 30.0)
        with stages({"plan": 0.5, "emit": 0.5}) as begin:
            begin("emit")
            terminal.print("between")
    text = terminal.export_text()
    assert "emit" in text
    assert "0:30 left" in text


def test_a_file_gets_a_line_a_minute(monkeypatch, capfd):
    monkeypatch.setattr(cli_progress, "LINE_SECONDS", 0.05)
    printed = threading.Event()
    write = console.err.print

    def print_and_tell(*arguments, **options):
        write(*arguments, **options)
        printed.set()

    monkeypatch.setattr(console.err, "print", print_and_tell)
    with progress() as show:
        show("sample 2 of 9", 0.125)
        assert printed.wait(10.0)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "sample 2 of 9, 12% done, 0:00 elapsed"


def test_a_command_shorter_than_a_minute_prints_nothing(capfd):
    with stages({"schedule": 1.0}) as begin:
        begin("schedule")
    assert capfd.readouterr() == ("", "")


def test_quiet_shows_no_progress(monkeypatch, capfd):
    monkeypatch.setattr(cli_progress, "LINE_SECONDS", 0.01)
    monkeypatch.setattr(console.out, "quiet", True)
    with progress() as show:
        show("x", 0.5)
        threading.Event().wait(0.1)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (float("nan"), "3 of 1,200 points"),
        (float("inf"), "3 of 1,200 points"),
        (65.4, "3 of 1,200 points, 1:05 left"),
    ],
)
def test_a_sweep_says_how_many_points_and_how_long(seconds, text):
    assert time_left("points", 3, 1200, seconds) == text
