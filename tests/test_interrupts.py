"""Ctrl-C ends a command with 130 also where Python does not say KeyboardInterrupt."""

import subprocess
import sys

import pytest

SIGNAL = "import os, signal, sys, time\nctrl_c = lambda: os.kill(os.getpid(), signal.SIGINT)\n"
PLACES = {
    "turned into another error": """
try:
    ctrl_c()
    time.sleep(9)
except KeyboardInterrupt:
    raise ImportError("initialisation failed")
""",
    "swallowed by a finaliser": """
class Last:
    def __del__(self):
        ctrl_c()
        time.sleep(9)
last = Last()
del last
time.sleep(9)
""",
    "again while leaving": """
try:
    ctrl_c()
    time.sleep(9)
finally:
    sys.exit(1)
""",
}


def run(text: str) -> subprocess.CompletedProcess[str]:
    body = "\n".join(f"    {line}" for line in text.splitlines())
    code = (
        f"{SIGNAL}from opu_fuse.process.interrupts import noted\nwith noted():\n{body}\n    pass\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("place", PLACES)
def test_an_interrupt_is_one_word_and_130(place):
    done = run(PLACES[place])
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_other_errors_stay_what_they_are():
    assert run("sys.exit(1)").returncode == 1
    assert "ValueError: broken" in run("raise ValueError('broken')").stderr


def test_a_finished_command_is_not_interrupted():
    code = f"{SIGNAL}from opu_fuse.process.interrupts import noted\nwith noted(): pass\nctrl_c()"
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
