"""The example of docs/run-on-a-board.md compiles, and gives what Python gives."""

import re
import subprocess
from pathlib import Path

import numpy as np

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim import engine
from tests.runtime.built import SANITIZED, build
from tests.runtime.test_host_segments import compiled, joined_model

PAGE = Path(__file__).parents[2] / "docs" / "run-on-a-board.md"


def test_the_complete_program_runs(sanitized, tmp_path):
    (text,) = re.findall(r"```c\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    source = tmp_path / "main.c"
    source.write_text(text, encoding="utf-8")
    options = ("-std=c11", *SANITIZED)
    main = build(tmp_path / "main", source, sanitized, options=options)
    bundle, path = compiled(joined_model(), tmp_path)
    (port,) = bundle.inputs
    image = np.zeros(port.shape, np.float32)
    expected = engine.run(bundle, load_hw("opu-tiny"), {port.name: image}).outputs["y"]
    done = subprocess.run(
        [main, path],
        capture_output=True,
        text=True,
        check=True,
        env={"ASAN_OPTIONS": "detect_leaks=0"},
    )
    got = [float.fromhex(line) for line in done.stdout.split()]
    assert np.array_equal(np.array(got, np.float32), expected.ravel())
