"""Compiles the provider and libopu into one shared library; needs a C compiler and nothing else.

`CFLAGS` replaces the optimisation (`-O3 -march=native`: for the processor that builds).
"""

import os
import shlex
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNTIME = next(p for p in (HERE / "runtime", HERE.parents[1] / "runtime") if p.is_dir())
"""In a source archive, and in a checkout."""
STRICT = ("-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
SHARED = ("-fPIC", "-shared", "-fvisibility=hidden")
LIBRARIES = ("-lm", "-lpthread")


def build(target: Path, version: str, flags: str | None = None) -> None:
    """Write the library. Raises subprocess.CalledProcessError where it does not compile."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    optimised = shlex.split(flags or os.environ.get("CFLAGS") or "-O3 -march=native")
    sources = sorted([*(HERE / "src").glob("*.c"), *(RUNTIME / "src").glob("*.c")])
    include = (f"-I{HERE / 'src'}", f"-I{RUNTIME / 'include'}")
    define = f'-DOPU_PROVIDER_VERSION="{version}"'
    command = [*compiler, *STRICT, *SHARED, *optimised, define, *include, "-o", str(target)]
    subprocess.run([*command, *map(str, sources), *LIBRARIES], check=True)
