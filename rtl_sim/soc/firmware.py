"""The firmware of `soc.sv`, compiled with the real driver, and the processor that runs it."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

from opu_fuse.errors import InternalError, RunError

HERE = Path(__file__).parent
COMPILER = "riscv64-unknown-elf-gcc"
INCLUDE = (HERE.parent / "driver", HERE.parent / "gen")
OPTIONS = (
    "-march=rv32ic",
    "-mabi=ilp32",
    "-Os",
    "-ffreestanding",
    "-nostdlib",
    "-Wl,--no-warn-rwx-segments",
)
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror")


def processor() -> Path:
    """The Verilog of PicoRV32. RunError when its package is missing."""
    result = importlib.util.find_spec("pythondata_cpu_picorv32")
    if result is None or result.origin is None:
        help_ = "install the extra `dev`: pip install 'opu-fuse[dev]'"
        raise RunError("firmware", "the Python package pythondata-cpu-picorv32 is missing", help_)
    return Path(result.origin).parent / "verilog" / "picorv32.v"


def firmware(folder: Path, cases: str) -> Path:
    """firmware.c with `cases` as its cases.h, for $readmemh: 32-bit words in hexadecimal.

    Raises RunError when the compiler is missing, InternalError when it refuses.
    """
    (folder / "cases.h").write_text(cases, encoding="utf-8")
    data = _compiled(folder)
    words = (data[at : at + 4][::-1].hex() for at in range(0, len(data), 4))
    (folder / "firmware.hex").write_text("\n".join(words), encoding="utf-8")
    return folder / "firmware.hex"


def _compiled(folder: Path) -> bytes:
    """start.S and firmware.c, laid out by link.ld, in whole words."""
    if shutil.which(COMPILER) is None:
        help_ = "install it, for example with `apt-get install gcc-riscv64-unknown-elf`"
        raise RunError("firmware", f"{COMPILER} is not on the PATH", help_)
    sources = [HERE / "start.S", HERE / "firmware.c", "-T", HERE / "link.ld"]
    include = [f"-I{path}" for path in (folder, *INCLUDE)]
    options = (*OPTIONS, *STRICT, *include)
    _call(COMPILER, *options, *sources, "-lgcc", "-o", folder / "firmware.elf")
    copy = COMPILER.replace("gcc", "objcopy")
    _call(copy, "-O", "binary", folder / "firmware.elf", folder / "firmware.bin")
    data = (folder / "firmware.bin").read_bytes()
    return data.ljust(-(-len(data) // 4) * 4, b"\0")


def _call(*command: object) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise InternalError("firmware", f"{command[0]} failed:\n{done.stdout[-3000:]}")
