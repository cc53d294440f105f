"""What the command prints on purpose, and completes."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest


def test_quiet_prints_nothing_but_what_json_asks_for(opu_fuse, program_file, tmp_path, model_file):
    for arguments in (["inspect", program_file], ["run", program_file, "--engine", "cycle"]):
        assert opu_fuse(*arguments).out
        called = opu_fuse("-q", *arguments)
        assert (called.code, called.out, called.err) == (0, "", "")
        assert opu_fuse("--quiet", *arguments, "--json").out.startswith("{")
    # no warning of missing calibration data either
    called = opu_fuse("-q", "compile", model_file, "--hw", "opu-tiny", "-o", tmp_path / "x.opu")
    assert (called.code, called.out, called.err) == (0, "", "")


def test_quiet_may_follow_the_verb(opu_fuse, program_file):
    called = opu_fuse("run", program_file, "--engine", "cycle", "-q")
    assert (called.code, called.out, called.err) == (0, "", "")


def test_a_drawing_and_a_schema_are_named_when_written(opu_fuse, tmp_path):
    for verb, name in (("draw", "machine.svg"), ("schema", "spec.json")):
        machine = ["opu-tiny"] if verb == "draw" else []
        called = opu_fuse("hw", verb, *machine, "-o", tmp_path / name)
        assert re.fullmatch(rf".*{name}: [\d.]+ kB\n", called.out)


def test_a_warning_is_printed_once(opu_fuse, model_file, tmp_path):
    """`accuracy` calibrates again for each remedy that it tries."""
    images = np.random.default_rng(0).random((4, 12, 12, 3), dtype=np.float32)
    np.savez(tmp_path / "images.npz", input=images)
    samples = ("--calibration", tmp_path / "images.npz")
    called = opu_fuse("accuracy", model_file, "--hw", "opu-tiny", *samples)
    assert called.code == 0, called.err
    assert called.err.count("has channels last") == 1


def test_quiet_still_says_what_is_wrong(opu_fuse, tmp_path):
    called = opu_fuse("-q", "inspect", tmp_path / "none.opu")
    assert called.code == 1
    assert called.err.startswith("error: ")


def completed(words):
    environment = {
        **os.environ,
        "_OPU_FUSE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    command = [sys.executable, "-c", "from opu_fuse.cli.main import app; app(prog_name='opu-fuse')"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["opu-fuse", "insp"], ["inspect"]),
        (["opu-fuse", "run", "x.opu", "--bytes"], ["--bytes-per-cycle"]),
        (
            ["opu-fuse", "compile", "--hw", "opu-1024"],
            ["opu-1024", "opu-1024-lean", "opu-1024a", "opu-1024t"],
        ),
        (["opu-fuse", "compile", "--strategy", "d"], ["dominator"]),
        (["opu-fuse", "zoo", "export", "shuffle"], ["shufflenet_v2"]),
    ],
)
def test_the_shell_completes_verbs_options_machines_and_networks(words, found):
    assert completed(words) == found
