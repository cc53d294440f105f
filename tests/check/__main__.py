"""python -m tests.check: what a change needs while it is written, in less than three minutes.

ruff first. Then, side by side: pyright, one network on the RTL of a small machine, and the tests
that the change can reach, the nearest first, until the time is over.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.check.budget import SECONDS
from tests.check.reach import ROOT, reached

SMOKE = (
    "tests/rtl/test_zoo.py::test_a_network_on_rtl_has_the_functional_engines_bits[digits-opu-micro]"
)
MOST = 60
"""Test files: to collect more of them takes longer than there is time to run them."""
PLAIN, WITH_RTL = "not rtl and not nightly", "not nightly"
BIN = Path(sys.executable).parent


def changed_files(base: str) -> list[str]:
    """Files that differ from where this branch left `base`, and new ones."""
    start = _git("merge-base", "HEAD", base) or ["HEAD"]
    found = _git("diff", "--name-only", "--no-renames", start[0])
    return sorted({*found, *_git("ls-files", "--others", "--exclude-standard")})


def run_tests(files: list[str], seconds: float, *, rtl: bool) -> bool:
    """Whether none fails. pytest's last lines say how many the time did not suffice for."""
    files = [file for file in files if rtl or not file.startswith("tests/rtl/")]
    if len(files) > MOST:
        print(f"the nearest {MOST} of them; the nearest left out is {files[MOST]}")
        files = files[:MOST]
    if not files:
        return True
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.check.budget", "-n", "2"]
    order = ["--dist", "loadfile", "--no-loadscope-reorder", "-m", WITH_RTL if rtl else PLAIN]
    environment = os.environ | {SECONDS: str(seconds)}
    code = subprocess.run([*command, *order, *files], cwd=ROOT, env=environment, check=False)
    return code.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.check", description=__doc__)
    parser.add_argument("--base", default="main", help="branch that the change is compared with")
    parser.add_argument("--seconds", type=float, default=90, help="for the tests")
    parser.add_argument("--list", action="store_true", help="print the test files, run nothing")
    chosen = parser.parse_args()
    changed = changed_files(chosen.base)
    files = reached(changed)
    print(f"{len(changed)} files changed, {len(files)} test files can be reached")
    if chosen.list:
        print("\n".join(files))
        return 0
    for command in (["check"], ["format", "--check"]):
        if subprocess.run([BIN / "ruff", *command], cwd=ROOT, check=False).returncode:
            return 1
    beside = {
        "pyright": [BIN / "pyright"],
        "pyright of the tests": [BIN / "pyright", "--project", "pyright-tests.json"],
        "RTL smoke": [sys.executable, "-m", "pytest", "-q", "-m", "rtl", SMOKE],
    }
    running = {
        name: subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for name, command in beside.items()
    }
    rtl = any(file.endswith((".sv", ".svh")) for file in changed)
    failed = [] if run_tests(files, chosen.seconds, rtl=rtl) else ["tests"]
    for name, process in running.items():
        output, _ = process.communicate()
        if process.returncode:
            failed.append(name)
            print(output)
    print(
        f"failed: {', '.join(failed)}" if failed else "all that ran passed; `make test` is the gate"
    )
    return bool(failed)


def _git(*command: str) -> list[str]:
    found = subprocess.run(
        ["git", *command], cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True
    )
    return found.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
