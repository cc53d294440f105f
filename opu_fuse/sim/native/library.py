"""libopu as a shared library: compiled from `runtime/` where it is first used, then cached.

A wheel has the sources alone, so that it needs no compiler and fits every processor; the library is
compiled for the processor on which it runs.
"""

import ctypes
import hashlib
import logging
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from opu_fuse.errors import RunError
from opu_fuse.resources import cache_dir, processor, runtime_dir

log = logging.getLogger(__name__)

_SHARED = ("-std=c99", "-fPIC", "-shared")
_OPTIMISED = (
    ("-O3", "-march=native", "-mprefer-vector-width=512"),
    ("-O3", "-march=native"),
    ("-O3",),
)
"""Options of the compiler, the fastest first: not every compiler and processor knows all."""
_HELP = "install a C compiler (gcc or clang), or run with --engine functional"
_SECONDS = 300


class Fault(ctypes.Structure):
    """`struct opu_fault`."""

    _fields_ = tuple((n, ctypes.c_uint32) for n in ("code", "engine", "instruction", "word"))


class Report(ctypes.Structure):
    """`struct opu_report`."""

    _fields_ = (
        ("fault", Fault),
        ("retired", ctypes.c_void_p),
        ("room", ctypes.c_size_t),
        ("instructions", ctypes.c_size_t),
    )


class Words(ctypes.Structure):
    """`struct opu_program` and `struct opu_window`: an address and how much is there."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t))


def available() -> bool:
    """Whether the library can be loaded: it was compiled before, or a compiler is there."""
    try:
        library()
    except RunError as error:
        log.info("no native engine: %s", error)
        return False
    return True


@cache
def library() -> ctypes.CDLL:
    """The library, compiled at its first use. Raises RunError where there is no compiler, or it
    does not compile the sources.
    """
    return load(_compiled())


def load(path: Path) -> ctypes.CDLL:
    """A compiled library. Raises RunError where the system cannot load it."""
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        raise RunError(str(path), f"cannot be loaded: {error}", "delete the file") from error
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    found.opu_native_size.restype = size
    found.opu_native_size.argtypes = (pointer,)
    found.opu_native_init.argtypes = (pointer, pointer, pointer, size)
    found.opu_native_run.argtypes = (pointer,) * 4
    found.opu_native_memory.restype = pointer
    found.opu_native_memory.argtypes = (pointer, ctypes.c_uint32, pointer)
    for name in ("opu_status_text", "opu_fault_text"):
        getattr(found, name).restype = ctypes.c_char_p
        getattr(found, name).argtypes = (ctypes.c_uint32,)
    return found


def compile_library(target: Path, options: Sequence[str] = ()) -> None:
    """Compile the sources into a shared library. options: of the compiler, else the fastest that
    it knows. Raises RunError as `library` does.
    """
    compiler = _compiler()
    folder = runtime_dir()
    sources = sorted(str(path) for path in (folder / "src").glob("*.c"))
    said = ""
    for optimised in (tuple(options),) if options else _OPTIMISED:
        command = [*compiler, *_SHARED, *optimised, f"-I{folder / 'include'}", "-o", str(target)]
        try:
            done = subprocess.run(
                [*command, *sources], capture_output=True, text=True, check=False, timeout=_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RunError(
                compiler[0], f"cannot compile the native engine: {error}", _HELP
            ) from error
        if done.returncode == 0:
            return
        said = (done.stderr.strip().splitlines() or ["no message"])[0]
    raise RunError(compiler[0], f"cannot compile the native engine: {said}", _HELP)


def _compiler() -> list[str]:
    name, *options = shlex.split(_compiler_name()) or ["cc"]
    found = shutil.which(name)
    if found is None:
        what = f"it is compiled at its first use, and there is no {name}"
        raise RunError("engine native", what, _HELP)
    return [found, *options]


def _compiler_name() -> str:
    return os.environ.get("CC") or "cc"


def _compiled() -> Path:
    """The cached library for these sources, this compiler and this processor."""
    texts = [path.read_text(encoding="utf-8") for path in _files()]
    key = hashlib.sha256(
        "\n".join([_compiler_name(), processor(), repr(_OPTIMISED), *texts]).encode()
    )
    entry = cache_dir() / f"libopu-{key.hexdigest()[:20]}.so"
    if entry.is_file():
        return entry
    log.info("compile the native engine")
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="libopu-") as folder:
        fresh = Path(folder) / "libopu.so"
        compile_library(fresh)
        fresh.replace(entry)  # at once: another process sees all of it or none
    return entry


def _files() -> list[Path]:
    folder = runtime_dir()
    return sorted([*(folder / "include").glob("*.h"), *(folder / "src").glob("*.[ch]")])
