"""The sources of `runtime/`, built for tests."""

import subprocess

from opu_fuse.resources import rtl_dir, runtime_dir

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
SANITIZED = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
LIBRARY = ("src/*.c", "hardware/*.c")
COMMAND = (*LIBRARY, "tools/opu_run.c")


def build(target, *sources, compiler="cc", options=("-O1",)):
    """Compile C sources, patterns in `runtime/` or other files, into a program or a library."""
    _compile(compiler, [*options, "-o", str(target)], sources, target.parent)
    return target


def build_sanitized_library(folder):
    """libopu.a under AddressSanitizer and UndefinedBehaviorSanitizer."""
    _compile("cc", [*SANITIZED, "-c"], LIBRARY, folder)
    target = folder / "libopu.a"
    objects = sorted(str(path) for path in folder.glob("*.o"))
    subprocess.run(["ar", "rcs", str(target), *objects], check=True)
    return target


def _compile(compiler, options, sources, folder):
    runtime = runtime_dir()
    folders = [f"-I{runtime / 'include'}", f"-I{runtime / 'src'}", f"-I{rtl_dir() / 'driver'}"]
    files = [
        str(path)
        for source in sources
        for path in (sorted(runtime.glob(source)) if isinstance(source, str) else [source])
    ]
    command = [compiler, *STRICT, *folders, *options, *files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
