"""The extras that examples/board/README.md installs are all that its commands import."""

import re
import subprocess
import sys
from pathlib import Path

from opu_fuse.sim.rtl.process import child_environment
from tests.installed import hide_other_packages

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "examples/board/README.md").read_text(encoding="utf-8")
IMPORTS = (
    "from rtl_sim.litex import target; from rtl_sim.build import verilator_environment;"
    "verilator_environment(); import cocotb"
)


def test_the_simulated_soc_needs_the_extras_of_the_page_alone(tmp_path: Path) -> None:
    (extras,) = re.findall(r"^pip install '\.\[(.+)\]'$", PAGE, re.MULTILINE)
    hide_other_packages(tmp_path, f"opu-fuse[{extras}]")
    environment = child_environment(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    # What is hidden is: everything before the last import is there.
    assert done.stderr.splitlines()[-1:] == ["ModuleNotFoundError: cocotb is not installed here"], (
        done.stderr
    )
