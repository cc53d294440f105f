"""Program files with changed numbers behind their checksums, opened and run by libopu in C.

`runtime/tests/fuzz.c` changes them and gives libopu memories of exactly the size that it asks for,
under AddressSanitizer and UndefinedBehaviorSanitizer: whatever it returns is right, as long as it
touches nothing else.
"""

import functools
import hashlib
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnx import TensorProto

from opu_fuse import zoo
from opu_fuse.bundle.file import save
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import compile_model
from opu_fuse.resources import cache_dir, runtime_dir
from tests.fuzz.worker import SECONDS_PER_CASE
from tests.runtime.built import LIBRARY, SANITIZED, build
from tests.runtime.test_host_segments import (
    CLOSE,
    EXACT,
    INTEGERS,
    LOOKUPS,
    joined_model,
    lookup_model,
    model_of,
    top_model,
)

PROGRAMS = 50
"""Changed program files of a case, by default."""
MEMBERS = ("runtime.bin", "dram.bin", "program.bin")
SECONDS_TO_BUILD = 300.0
"""Whoever is first compiles the library, while others may do so, too."""
_MISTAKE = ("SUMMARY: ", "runtime error: ")
"""In lines of the sanitizers."""
_OPTIONS = ("-std=c11", *SANITIZED)


def _bases() -> list[tuple[Any, dict[str, Any]]]:
    """Networks with machine segments, with both kinds of segments, and every host operator alone,
    each with its options of compiling.
    """
    host = {"keep_float": ("only",)}
    return [
        (lambda: zoo.build("tiny_residual", image=8), {}),
        (joined_model, {"batch": 2}),
        *((lambda one=one: model_of(*one), host) for one in (EXACT | CLOSE).values()),
        *((lambda o=o: model_of(*o, dtype=TensorProto.INT64), {}) for o in INTEGERS.values()),
        *((lambda operator=operator: lookup_model(operator), {}) for operator in LOOKUPS),
        (lambda: top_model(1, largest=1), {}),
    ]


BASES = _bases()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """base: place in `BASES`. first, count: seeds of the changed files, one after the other."""

    base: int
    first: int
    count: int = PROGRAMS


@functools.cache
def _members(base: int) -> dict[str, bytes]:
    """What libopu reads of a sound program file."""
    model, options = BASES[base]
    bundle = compile_model(model(), load_hw("opu-tiny"), Options(host="c", **options)).bundle
    with tempfile.TemporaryDirectory() as folder:
        save(bundle, Path(folder) / "base.opu")
        with zipfile.ZipFile(Path(folder) / "base.opu") as archive:
            return {name: archive.read(name) for name in MEMBERS}


@functools.cache
def _fuzzer() -> Path:
    """`fuzz.c` with libopu, built once for these sources."""
    texts = [path.read_bytes() for path in sorted(runtime_dir().rglob("*.[ch]"))]
    key = hashlib.sha256(b"\n".join([repr(_OPTIONS).encode(), *texts])).hexdigest()
    target = cache_dir() / f"libopu-fuzz-{key[:20]}"
    if not target.is_file():
        with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="libopu-") as folder:
            build(Path(folder) / "fuzz", *LIBRARY, "tests/fuzz.c", options=_OPTIONS).replace(target)
    return target


def change_and_run(case: Case, changed: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Its output: how many files were refused, ended with another status, and ran. changed: folder
    for the last one's members.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, data in _members(case.base).items():
            (Path(folder) / name).write_bytes(data)
        words = [_fuzzer(), case.first, case.count, *(Path(folder) / name for name in MEMBERS)]
        # Workers limit their address space, of which sanitizers reserve more than there is memory.
        unlimited = ["sh", "-c", 'ulimit -S -v "$(ulimit -H -v)" && exec "$@"', "sh"]
        return subprocess.run(
            [*unlimited, *map(str, words), *([str(changed)] if changed else [])],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=SECONDS_PER_CASE * max(case.count / PROGRAMS, 1) - 2,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The kind `runtime`."""

    name: str = "runtime"
    share: float = 0.2

    def draw(self, seed: int) -> Case:
        return Case(base=seed % len(BASES), first=seed * PROGRAMS)

    def machines(self, case: Case) -> Sequence[str]:
        return [""]

    def seconds(self, case: Case) -> float:
        return SECONDS_PER_CASE if _fuzzer.cache_info().currsize else SECONDS_TO_BUILD

    def judge(self, case: Case, machine: str) -> str | None:
        try:
            done = change_and_run(case)
        except subprocess.TimeoutExpired:
            return "does not end"
        if done.returncode == 0:
            return None
        said = [line for line in done.stderr.splitlines() if any(m in line for m in _MISTAKE)]
        return (said or [f"ends with {done.returncode}: {done.stderr[-200:]}"])[0]

    def smaller(self, case: Case, machine: str) -> Iterator[Case]:
        """Both halves."""
        half = case.count // 2
        if half:
            yield replace(case, count=half)
            yield replace(case, first=case.first + half, count=case.count - half)

    def write(self, case: Case, folder: Path) -> None:
        """The members of its last file."""
        change_and_run(case, folder)


KIND = Runtime()
