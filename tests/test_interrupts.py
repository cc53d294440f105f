"""Ctrl-C ends a command with 130 also where Python does not say KeyboardInterrupt, and SIGTERM with
143.
"""

import subprocess
import sys

import pytest

SIGNAL = "import os, signal, sys, time\nctrl_c = lambda: os.kill(os.getpid(), signal.SIGINT)\n"
IMPORT = f"{SIGNAL}from opu_fuse.process.interrupts import handled\n"
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
    "while an extension module is initialised": """
class ExtensionFileLoader:  # importlib's has this name
    def exec_module(self):
        ctrl_c()
        time.sleep(0.01)
try:
    ExtensionFileLoader().exec_module()
except KeyboardInterrupt:
    os.abort()  # as C++ does
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
    code = f"{IMPORT}with handled():\n{body}\n    pass\n"
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
    code = f"{IMPORT}with handled(): pass\nctrl_c()"
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_termination_is_the_same_word_and_143():
    done = run("os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(9)")
    assert (done.returncode, done.stderr) == (143, "interrupted\n")


def test_what_is_deferred_is_finished_first():
    done = run(
        "from opu_fuse.process.interrupts import deferred\n"
        "with deferred():\n    ctrl_c()\n    time.sleep(0.1)\n    print('whole', flush=True)\n"
        "print('never')"
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "whole\n", "interrupted\n")


def test_processes_that_start_in_deferred_work_do_not_see_ctrl_c():
    done = run(
        "import subprocess\nfrom opu_fuse.process.interrupts import deferred\n"
        "with deferred():\n"
        "    child = subprocess.Popen(['sleep', '0.5'])\n"
        "child.send_signal(signal.SIGINT)\nprint(child.wait())"
    )
    assert (done.returncode, done.stdout) == (0, "0\n")
