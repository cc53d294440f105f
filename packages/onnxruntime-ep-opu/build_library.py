"""Compiles the provider and libopu into one shared library; needs a C compiler and nothing else.

`CFLAGS` replaces the optimisation (`-O3 -march=native`: for the processor that builds).
"""

import os
import shlex
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE if (HERE / "runtime").is_dir() else HERE.parents[1]
"""With the sources of libopu and of the driver: a source archive, or a checkout."""
STRICT = ("-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
SHARED = ("-fPIC", "-shared", "-fvisibility=hidden")
LIBRARIES = ("-lm", "-lpthread")


def build(target: Path, version: str, flags: str | None = None) -> None:
    """Write the library. Raises subprocess.CalledProcessError where it does not compile."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    optimised = shlex.split(flags or os.environ.get("CFLAGS") or "-O3 -march=native")
    runtime = ROOT / "runtime"
    folders = (HERE / "src", runtime / "src", runtime / "hardware")
    sources = sorted(file for folder in folders for file in folder.glob("*.c"))
    headers = (*folders, runtime / "include", ROOT / "rtl_sim" / "driver")
    include = [f"-I{folder}" for folder in headers]
    define = f'-DOPU_PROVIDER_VERSION="{version}"'
    command = [*compiler, *STRICT, *SHARED, *optimised, define, *include, "-o", str(target)]
    subprocess.run([*command, *map(str, sources), *LIBRARIES], check=True)
