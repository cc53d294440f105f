"""A sweep or exploration that is interrupted says so in a line, leaves no process, and goes on.

Signals come at seeded moments, once from a terminal (to all processes), once to the command alone.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import opu_fuse

pytest.importorskip("distributed")

ROOT = Path(opu_fuse.__file__).parents[1]
PLAN = """
models: [tiny_odd]
specs: [opu-tiny, opu-light]
strategies: [matched, optimal]
memory: {latency: [10, 40], bytes_per_cycle: [4, 8]}
"""
POINTS = 16
EXIT = {signal.SIGINT: 130, signal.SIGTERM: 143}
GONE_WITHIN = 20.0
"""Seconds for what Python starts beside processes, on a busy computer."""


def command(verb: str, folder: Path) -> list[str]:
    own = {
        "sweep": ["sweep", "plan.yaml"],
        "explore": ["explore", "--model", "tiny_odd", "--device", "ecp5-85", "--trials", "4"],
    }
    (folder / "plan.yaml").write_text(PLAN)
    return [sys.executable, "-m", "opu_fuse", *own[verb], "-o", "out", "--jobs", "2"]


def started(verb: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(verb, folder),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def session(leader: int) -> list[int]:
    """Processes that were started by it, but for those that nobody has asked how they ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def rows(folder: Path) -> list[str]:
    journal = folder / "out" / "rows.jsonl"
    text = journal.read_text() if journal.exists() else ""
    assert not text or text.endswith("\n"), "a row was torn apart"
    return [json.loads(line)["key"] for line in text.splitlines()]


def interrupted(verb: str, folder: Path, rng: random.Random) -> bool:
    """Whether the command was still running."""
    running = started(verb, folder)
    number = rng.choice(list(EXIT))
    try:
        running.communicate(timeout=rng.uniform(0.3, 9.0))
    except subprocess.TimeoutExpired:
        pass
    else:
        assert running.returncode == 0
        return False
    if rng.random() < 0.5:
        os.killpg(running.pid, number)
    else:
        running.send_signal(number)
    said, told = running.communicate(timeout=60)
    assert (running.returncode, told) == (EXIT[number], "interrupted\n")
    # A signal may come after the result is printed, before the process ends.
    assert said == "" or said.startswith(("machines for ecp5-85\n", f"{POINTS} points"))
    end = time.monotonic() + GONE_WITHIN
    while (left := session(running.pid)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left
    return True


@pytest.mark.parametrize("verb", ["sweep", "explore"])
def test_an_interrupt_at_any_moment_is_one_line_and_leaves_nobody(verb, tmp_path):
    rng = random.Random(f"{verb} 1")
    known: list[str] = []
    for _ in range(2):
        interrupted(verb, tmp_path, rng)
        found = rows(tmp_path)
        assert found[: len(known)] == known, "rows of an earlier run are gone"
        known = found


@pytest.mark.nightly
@pytest.mark.parametrize("verb", ["sweep", "explore"])
@pytest.mark.parametrize("seed", range(12))
def test_interrupts_at_more_moments(verb, seed, tmp_path):
    rng = random.Random(f"{verb} {seed + 2}")
    while interrupted(verb, tmp_path, rng) and rng.random() < 0.6:
        rows(tmp_path)


@pytest.mark.nightly
def test_an_interrupted_sweep_ends_with_all_its_rows(tmp_path):
    rng = random.Random(3)
    interrupted("sweep", tmp_path, rng)
    before = rows(tmp_path)
    done = started("sweep", tmp_path)
    said, _ = done.communicate(timeout=300)
    assert (done.returncode, said.splitlines()[0][:9]) == (0, f"{POINTS} points")
    assert len(rows(tmp_path)) == POINTS == len(set(rows(tmp_path)))
    assert rows(tmp_path)[: len(before)] == before
