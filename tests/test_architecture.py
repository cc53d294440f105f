"""The shape of the project: who may import whom, who may print, how long a file may be.

The table is that of docs/architecture.md; folders stand in the order in which data passes them.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "opu_fuse"

# Importable by everybody; each of these may import those before it.
FIRST_ROW = (
    *("errors", "choices", "number_text", "array_layout", "extras", "summaries", "input_arrays"),
    *(
        "fixedpoint",
        "normalisation",
        "quant",
        "io_layout",
        "resources",
        "generated_files",
        "affine",
        "dtypes",
        "process",
    ),
    "model",
)

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "units": (),
    "hw": ("units",),
    "zoo": (),
    "passes": (),
    "frontend": ("passes",),
    "dfg": ("units",),
    "layout": ("units", "hw", "dfg"),
    "lowering": ("units", "hw", "dfg", "layout"),
    "tiling": ("units", "hw", "dfg", "layout", "lowering"),
    "tile_schedule": ("units", "hw", "dfg", "layout", "lowering", "tiling"),
    "timing": ("units", "hw", "dfg", "layout", "lowering", "tiling", "tile_schedule"),
    "fuse": ("units", "hw", "dfg", "layout", "lowering", "tiling", "tile_schedule", "timing"),
    "schedule": (
        *("units", "hw", "dfg", "layout", "lowering", "tiling", "tile_schedule", "timing"),
        "fuse",
    ),
    "host": (),
    "bundle": ("hw", "host"),
    "host/build": ("dfg", "host", "bundle"),
    "host/run": ("host", "bundle"),
    "codegen": ("units", "hw", "dfg", "tiling", "fuse", "schedule", "bundle", "host/build"),
    "sim": ("units", "hw", "bundle", "host/run"),
    "cosim": ("hw", "bundle", "sim"),
    "report": ("units", "hw", "bundle"),
}
FOLDERS = tuple(MAY_IMPORT)
# The files that tie the folders together, each may import those before it and all folders.
TOP_FILES = (
    *("texts", "options", "program_run", "program", "devices", "litex", "partitioned_model"),
    *("pipeline", "noise", "loss", "overview", "sweeping", "exploring", "pictures"),
    *("predictions", "drawing", "torch_export"),
    *("__init__", "cli", "__main__"),
)
RTL_MAY_IMPORT = ("units", "hw", "cosim")

# DESIGN: quantising, host operators and reference results; nobody else starts ONNX Runtime.
ONNXRUNTIME_IN = ("frontend", "dfg", "host/run")

# Import name -> distribution, where they differ.
DISTRIBUTIONS = {
    "yaml": "pyyaml",
    "onnx_ir": "onnx-ir",
    "cocotb_tools": "cocotb",
    "ml_dtypes": "ml-dtypes",
}

# One file in a hundred may be longer than LONG_LINES, none longer than MAX_LINES.
LONG_LINES, MAX_LINES = 400, 500


def python_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "sim_build" not in path.parts)


def part_of(path: Path) -> str:
    """The row of the table a file of opu_fuse/ belongs to: its folder, or its own name."""
    return row_of(path.relative_to(PACKAGE).with_suffix("").parts)


def row_of(parts: Sequence[str]) -> str:
    """`host.build.pieces` -> host/build, which has a row of its own; `hw.isa` -> hw."""
    return "/".join(parts[:2]) if "/".join(parts[:2]) in MAY_IMPORT else parts[0]


def allowed_for(part: str) -> set[str]:
    if part in FIRST_ROW:
        return set(FIRST_ROW[: FIRST_ROW.index(part) + 1])
    if part in TOP_FILES:
        return {*FIRST_ROW, *FOLDERS, *TOP_FILES[: TOP_FILES.index(part)], part}
    return {*FIRST_ROW, *MAY_IMPORT[part], part}


def imported_modules(source: str, package: str = "") -> list[tuple[int, str]]:
    """(line, dotted name) of every import in a source, inside functions too.

    `from a.b import c` yields `a.b.c`: whether c is a module or a name does not matter here.
    """
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base]).strip(".")
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def own_parts(path: Path) -> list[tuple[int, str]]:
    """(line, row of the table) of every import of this project in one file."""
    package = ".".join(path.relative_to(ROOT).parent.parts)
    parts: list[tuple[int, str]] = []
    for line, name in imported_modules(path.read_text(encoding="utf-8"), package):
        top, _, rest = name.partition(".")
        if top != "opu_fuse":
            continue
        first, *_ = names = rest.split(".")
        if first == "__version__":  # the package's version is a fact, not an arrow
            continue
        is_module = (PACKAGE / first).is_dir() or (PACKAGE / f"{first}.py").is_file()
        parts.append((line, row_of(names) if is_module and first else "__init__"))
    return parts


def test_the_table_has_a_row_for_every_folder_and_file_and_no_other():
    known = {*FIRST_ROW, *FOLDERS, *TOP_FILES}
    present = {part_of(path) for path in python_files(PACKAGE)}
    assert present == known


def rows_of_the_page() -> list[tuple[list[str], list[str]]]:
    """What a row of the table in docs/architecture.md is about, and what that may import."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`.+?) \| .+ \| (.+) \|$", page, flags=re.MULTILINE)
    return [(names(about), names(arrows)) for about, arrows in cells]


def names(cell: str) -> list[str]:
    return [name.removesuffix("/").removesuffix(".py") for name in re.findall(r"`(.+?)`", cell)]


def test_the_table_is_that_of_the_page():
    first, *folders, last = rows_of_the_page()
    assert first[0] == [*FIRST_ROW]
    assert {about: tuple(arrows) for (about,), arrows in folders} == MAY_IMPORT
    assert [about for (about,), _ in folders] == [*FOLDERS], "in the order of the data"
    assert last[0] == [*TOP_FILES]
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for start, folders in {
        "`rtl_sim/` may import": RTL_MAY_IMPORT,
        "ONNX Runtime is used by": ONNXRUNTIME_IN,
    }.items():
        (sentence,) = re.findall(rf"^{start} (.+?)\.", page, re.MULTILINE)
        assert sorted(names(sentence)) == sorted(folders), start


@pytest.mark.parametrize("part", [*FIRST_ROW, *FOLDERS, *TOP_FILES])
def test_imports_follow_the_arrows(part):
    allowed = allowed_for(part)
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {target}"
        for path in python_files(PACKAGE)
        if part_of(path) == part
        for line, target in own_parts(path)
        if target not in allowed
    ]
    assert not wrong, "\n".join([f"{part} may import {sorted(allowed)}", *wrong])


def test_no_arrow_is_left_over():
    used = {
        (part_of(path), target) for path in python_files(PACKAGE) for _, target in own_parts(path)
    }
    drawn = {(part, target) for part, targets in MAY_IMPORT.items() for target in targets}
    assert drawn - used == set()


def test_nothing_imports_rtl_sim():
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in python_files(PACKAGE)
        for line, name in imported_modules(path.read_text(encoding="utf-8"))
        if name.partition(".")[0] == "rtl_sim"
    ]
    assert not wrong, wrong


def test_rtl_sim_sees_programs_and_machines_but_nothing_of_the_compiler():
    allowed = {*FIRST_ROW, *RTL_MAY_IMPORT}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {target}"
        for path in python_files(ROOT / "rtl_sim")
        if path.parent.name not in {"project", "litex"}  # a user's
        for line, target in own_parts(path)
        if target not in allowed
    ]
    assert not wrong, wrong


def test_only_the_named_folders_start_onnx_runtime():
    users = {
        part_of(path)
        for path in python_files(PACKAGE)
        for _, name in imported_modules(path.read_text(encoding="utf-8"))
        if name.partition(".")[0] == "onnxruntime"
    }
    assert users == set(ONNXRUNTIME_IN)


def name_of(requirement: str) -> str:
    """`numpy>=2.0` -> numpy."""
    return re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0]


def test_every_library_imported_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    declared = {name_of(requirement) for requirement in [*project["dependencies"], *extras]}
    undeclared = {
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in python_files(PACKAGE)
        for line, name in imported_modules(path.read_text(encoding="utf-8"), "opu_fuse")
        if (top := name.partition(".")[0]) not in {*sys.stdlib_module_names, "opu_fuse"}
        and DISTRIBUTIONS.get(top, top) not in declared
    }
    assert not undeclared, sorted(undeclared)


def test_every_dependency_is_imported():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    imported = {
        DISTRIBUTIONS.get(top := name.partition(".")[0], top)
        for path in python_files(PACKAGE)
        for _, name in imported_modules(path.read_text(encoding="utf-8"))
    }
    assert {name_of(requirement) for requirement in project["dependencies"]} <= imported


def prints(source: str) -> list[int]:
    """Lines that write to the terminal: print, typer.echo, sys.stdout, sys.stderr."""
    lines: list[int] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                lines.append(node.lineno)
            case ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr"):
                lines.append(node.lineno)
            case ast.Attribute(value=ast.Name(id="typer"), attr="echo" | "secho"):
                lines.append(node.lineno)
    return sorted(lines)


def test_only_cli_prints():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in python_files(PACKAGE)
        if part_of(path) != "cli"
        for line in prints(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, wrong


def is_generated(text: str) -> bool:
    return any("generated" in line.lower() for line in text.splitlines()[:3])


def own_sources() -> list[Path]:
    folders = ("opu_fuse", "rtl_sim", "tests", "examples", "benchmarks")
    found = [path for name in folders for path in python_files(ROOT / name)]
    return found + sorted((ROOT / "rtl_sim").rglob("*.sv"))


def test_no_file_is_longer_than_a_newcomer_can_read():
    lengths = {
        str(path.relative_to(ROOT)): len(text.splitlines())
        for path in own_sources()
        if not is_generated(text := path.read_text(encoding="utf-8"))
    }
    long = {name: lines for name, lines in lengths.items() if lines > LONG_LINES}
    assert {name: lines for name, lines in long.items() if lines > MAX_LINES} == {}
    assert len(long) <= len(lengths) / 100, long


def test_no_file_hides_its_purpose_behind_a_general_name():
    general = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [str(p.relative_to(ROOT)) for p in own_sources() if p.stem in general] == []


def test_golden_files_belong_to_a_test_that_exists():
    orphans = []
    for path in sorted((ROOT / "tests" / "golden").rglob("*")):
        if not path.is_file():
            continue
        parts = path.relative_to(ROOT / "tests" / "golden").parts
        file_end = next((i for i, part in enumerate(parts) if part.startswith("test_")), 0)
        test_file = ROOT.joinpath("tests", *parts[: file_end + 1]).with_suffix(".py")
        function = re.match(r"\w+", parts[file_end + 1]) if len(parts) > file_end + 1 else None
        source = test_file.read_text(encoding="utf-8") if test_file.is_file() else ""
        if function is None or f"def {function[0]}(" not in source:
            orphans.append(str(path.relative_to(ROOT)))
    assert not orphans, orphans


# The checks above find nothing in a clean tree; here they are shown to find what they are for.


def test_the_walk_sees_imports_inside_functions_and_relative_ones():
    source = "def f():\n    from opu_fuse.sim import engine\n    import rtl_sim.bench\n"
    assert imported_modules(source) == [(2, "opu_fuse.sim.engine"), (3, "rtl_sim.bench")]
    assert imported_modules("from ..sim import x", "opu_fuse.hw") == [(1, "opu_fuse.sim.x")]
    assert imported_modules("from . import x", "opu_fuse.hw") == [(1, "opu_fuse.hw.x")]


def test_the_print_check_sees_all_ways_to_the_terminal():
    source = "print(1)\nsys.stderr.write('x')\ntyper.echo('x')\nlog.info('x')\n"
    assert prints(source) == [1, 2, 3]


def test_the_arrows_only_point_backwards():
    for index, folder in enumerate(FOLDERS):
        assert set(MAY_IMPORT[folder]) <= set(FOLDERS[:index]), folder
