"""The sources of `runtime/`, built for tests."""

import subprocess

from opu_fuse.resources import rtl_dir, runtime_dir

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
HARDWARE = ("src/*.c", "hardware/*.c")
COMMAND = (*HARDWARE, "tools/opu_run.c")


def build(target, *patterns, compiler="cc", options=("-O2",), source=None):
    """Compile C sources of `runtime/` (and one more file) into a program or a library."""
    runtime = runtime_dir()
    sources = [str(path) for pattern in patterns for path in sorted(runtime.glob(pattern))]
    sources += [str(source)] if source else []
    folders = [f"-I{runtime / 'include'}", f"-I{runtime / 'src'}", f"-I{rtl_dir() / 'driver'}"]
    command = [compiler, *STRICT, *options, *folders, "-o", str(target), *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target
