"""The SystemVerilog of a machine: which files a module needs, and all of it as files of a folder.

Every file of `rtl_sim` is named after its module, so names in the text lead to files. Packages come
first; the package of a spec and the chain of its units are generated (`sv_package.py`).
"""

import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from opu_fuse import __version__, resources
from opu_fuse.errors import UserError
from opu_fuse.hw.rtlgen.c_header import c_header
from opu_fuse.hw.rtlgen.ip_xact import block_design, component, device_tree
from opu_fuse.hw.rtlgen.sv_package import sv_files
from opu_fuse.hw.rtlgen.system_rdl import system_rdl
from opu_fuse.hw.rtlgen.top_ports import top_ports
from opu_fuse.hw.spec.hw_spec import HwSpec

TOP = "opu_top"
PROBE = "opu_retired"
"""Shows a bench which instruction retires; no part of the hardware."""

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_NAME = re.compile(r"\b(?=opu_(?!fuse))")
"""Where a name of this project starts in SystemVerilog: of a module, a package or their files."""
_DEFINES = {
    "SYNTHESIS": "leave assertions out",
    "OPU_SHORT_SLICES": "the device multiplies 18 x 18 bits (ECP5, iCE40), not 25 x 18",
}
_HEAD_OF_LIST = "".join(f"// define {name}: {what}\n" for name, what in _DEFINES.items())

_FOLDERS = ("rtl", "tb", "benches", "formal")
_SUFFIXES = (".sv", ".svh", ".cpp")
_COMMENT = re.compile(r"//.*|/\*.*?\*/")
"""Comments name modules, too, which nobody needs for that."""
_LINKED = re.compile(r"\b(opu_\w+)\.(?:sv|cpp)\b")
"""Code names neither the C++ of a DPI import nor a module that is bound in: comments name the file.
"""


def source_files(generated: Mapping[str, str], *tops: str) -> tuple[Path, ...]:
    """The files that modules need, packages first. generated: text of those that are no file, by
    name.
    """
    rtl_dir = resources.rtl_dir()
    own = (path for folder in _FOLDERS for path in sorted((rtl_dir / folder).rglob("opu_*")))
    files = {path.stem: path for path in own if path.suffix in _SUFFIXES}
    results: dict[str, Path] = {}
    todo = list(tops)
    while todo:
        name = todo.pop()
        if name in results:
            continue
        results[name] = files[name]
        text = files[name].read_text(encoding="utf-8")
        text += "".join(code for file, code in generated.items() if f'"{file}"' in text)
        code = _COMMENT.sub("", text)
        names = re.findall(r"\bopu_\w+", code) + _LINKED.findall(text)
        todo += sorted(set(names) & files.keys() - results.keys())
    return tuple(sorted(results.values(), key=lambda p: (not p.stem.endswith("_pkg"), p.name)))


def rtl_files(spec: HwSpec, prefix: str = "") -> dict[str, str]:
    """Everything that others need to build a machine into their design, by file name: its modules,
    a list of them in the order of compiling (`opu.f`), a FuseSoC core (`opu.core`), IP-XACT and a
    script for Vivado, a device tree for Linux, the registers in SystemRDL, the probe of retired
    instructions for benches, the C driver, the spec.

    prefix: before the names of modules, packages and their files, so that two machines fit one
    design.

    UserError for a spec that is for partitioning only, and for a prefix that is no start of a name.
    """
    if prefix and not _PREFIX.fullmatch(prefix):
        what = "is no start of a SystemVerilog name"
        raise UserError(
            "--prefix", f"{prefix!r} {what}", "use letters, digits and _, a letter first"
        )
    if not spec.build:
        what = "is for partitioning only (`build: false`): it has no RTL"
        raise UserError(spec.name, what, "remove `build: false` and see `opu-fuse hw check`")
    generated = sv_files(spec)
    modules = source_files(generated, TOP)
    units = ["opu_pkg.sv", *(path.name for path in modules if path.suffix == ".sv")]
    headers = [*(path.name for path in modules if path.suffix == ".svh"), "opu_units.svh"]
    rtl_dir = resources.rtl_dir()
    more = (rtl_dir / "tb" / f"{PROBE}.sv", rtl_dir / "driver" / "opu_driver.h")
    files = {path.name: path.read_text(encoding="utf-8") for path in (*modules, *more)}
    ports = top_ports(files[f"{TOP}.sv"], spec)
    sources = {n: text for n, text in (files | generated).items() if n.endswith((".sv", ".svh"))}
    software = {name: text for name, text in files.items() if name not in sources}
    if prefix:
        sources = {prefix + name: _NAME.sub(prefix, text) for name, text in sources.items()}
        units, headers = ([prefix + name for name in names] for names in (units, headers))
    return {
        **software,
        **sources,
        "opu_regs.h": c_header(),
        f"{spec.name}.yaml": spec.to_yaml(),
        "opu.f": _HEAD_OF_LIST + "".join(f"{name}\n" for name in ("+incdir+.", *units)),
        "opu.core": _core(spec, units, headers, prefix),
        "component.xml": component(spec, prefix + TOP, ports, [*headers, *units]),
        "opu_bd.tcl": block_design(spec),
        "opu.dtsi": device_tree(),
        "opu.rdl": system_rdl(),
    }


def _core(spec: HwSpec, units: list[str], headers: list[str], prefix: str) -> str:
    """FuseSoC's description (CAPI2): the machine, and the probe for who simulates it."""
    included = [{name: {"is_include_file": True}} for name in headers]
    core = {
        "name": f"opu-fuse:opu:{spec.name}:{__version__}",
        "description": f"OPU-style CNN overlay, machine {spec.name}",
        "filesets": {
            "rtl": {"files": [*included, *units], "file_type": "systemVerilogSource"},
            "probe": {"files": [f"{prefix}{PROBE}.sv"], "file_type": "systemVerilogSource"},
        },
        "parameters": {
            name: {"datatype": "bool", "paramtype": "vlogdefine", "description": what}
            for name, what in _DEFINES.items()
        },
        "targets": {
            "default": {"filesets": ["rtl"], "toplevel": prefix + TOP},
            "sim": {"filesets": ["rtl", "probe"], "toplevel": prefix + TOP},
            "synth": {
                "filesets": ["rtl"],
                "toplevel": prefix + TOP,
                "parameters": ["SYNTHESIS=true"],
            },
            "lint": {
                "filesets": ["rtl"],
                "toplevel": prefix + TOP,
                "flow": "lint",
                "flow_options": {"tool": "verilator", "verilator_options": ["-Wall"]},
            },
        },
    }
    return "CAPI=2:\n" + yaml.safe_dump(core, sort_keys=False)
