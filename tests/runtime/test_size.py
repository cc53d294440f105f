"""libopu fits a microcontroller: code for RV32IMC, as Debian's compiler writes it."""

import subprocess
from pathlib import Path

import pytest

from opu_fuse.resources import rtl_dir, runtime_dir
from tests.tools import require_tools

COMPILER, SIZE = "riscv64-unknown-elf-gcc", "riscv64-unknown-elf-size"
HOST_KERNELS = {"opu_host.o", "opu_nest.o", "opu_topk.o"}
KIB = 1024


def test_the_library_is_below_64_kib_of_code(tmp_path: Path) -> None:
    """Engine, file reader, host kernels and registers' back end together."""
    require_tools(COMPILER, SIZE)
    sizes = _code_bytes(tmp_path)
    assert sizes.keys() > HOST_KERNELS
    without = sum(size for name, size in sizes.items() if name not in HOST_KERNELS)
    assert without < 40 * KIB, sizes
    assert sum(sizes.values()) < 64 * KIB, sizes


def _code_bytes(folder: Path) -> dict[str, int]:
    """Code and constants of each object file."""
    libc = pytest.importorskip("pythondata_software_picolibc").data_location
    (folder / "picolibc.h").touch()  # its settings: the declarations need none
    includes = [folder, runtime_dir() / "include", rtl_dir() / "driver"]
    command = [COMPILER, "-march=rv32imc", "-mabi=ilp32", "-Os", "-c"]
    command += [f"-I{path}" for path in includes]
    command += ["-isystem", f"{libc}/newlib/libc/include"]
    sources = [*runtime_dir().glob("src/*.c"), runtime_dir() / "hardware" / "opu_registers.c"]
    subprocess.run([*command, *map(str, sources)], cwd=folder, check=True)
    objects = sorted(path.name for path in folder.glob("*.o"))
    said = subprocess.run(
        [SIZE, *objects], cwd=folder, check=True, capture_output=True, text=True
    ).stdout
    rows = [line.split() for line in said.splitlines()[1:]]
    return {row[-1]: int(row[0]) for row in rows}
