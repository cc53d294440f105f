"""A program file does not depend on the process that wrote it."""

import os
import subprocess
import sys

import pytest

WRITE = """
import sys
from opu_fuse import zoo
from opu_fuse.bundle.file import save
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
save(compile_model(zoo.build("resnet20", image=32), load_hw("opu-light")).bundle, sys.argv[1])
"""


@pytest.mark.slow
def test_the_order_of_names_in_sets_does_not_show_in_a_program(tmp_path):
    for seed in ("1", "2"):
        command = [sys.executable, "-W", "ignore", "-c", WRITE, str(tmp_path / seed)]
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, check=True)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
