"""python -m tests.mutation FILE: change a file in small ways and see whether its tests notice.

Every change is tried in a process forked from one that has imported all libraries and nothing of
the project; there the changed source takes the file's place while it is imported. The file itself
is not touched.
"""

import argparse
import importlib
import importlib.machinery
import importlib.util
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import CodeType

import pytest

from tests.mutation.changes import Mutant, mutants
from tests.mutation.concern import is_equivalent, tests_of

LIBRARIES = ("hypothesis.extra.numpy", "ml_dtypes", "networkx", "numpy", "onnx", "onnx_ir",
             "onnxruntime", "onnxscript", "pydantic", "rich", "typer", "yaml")  # fmt: skip


WAITING = 10
"""Seconds of the clock for one of the processor, on a machine that does other work."""


class Changed(importlib.machinery.SourceFileLoader):
    """Loads one module from another source, as a finder and a loader."""

    def __init__(self, file: Path, source: str) -> None:
        super().__init__(".".join(file.with_suffix("").parts), str(file.resolve()))
        self.source = source

    def find_spec(self, name: str, *_: object):
        if name == self.name:
            return importlib.util.spec_from_file_location(name, self.path, loader=self)
        return None

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 the name is the base class's
        return compile(self.source, self.path, "exec")


def passes(file: Path, source: str, tests: list[str], seconds: float) -> tuple[bool, float]:
    """Whether the tests pass with another source of the file, and the seconds of processor time
    that they took. They do not pass when one fails, when the time is over or the process ends
    otherwise. Time is the processor's, so that other work on the machine kills no mutant; what
    waits for ever is ended by the clock.
    """
    child = os.fork()
    if child == 0:
        os.setsid()  # what tests start goes with it
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
        signal.alarm(WAITING * int(seconds))
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        sys.meta_path.insert(0, Changed(file, source))
        os._exit(pytest.main(["-x", "--assert=plain", "-p", "no:cacheprovider", *tests]))
    _, status, used = os.wait4(child, 0)
    return status == 0, used.ru_utime + used.ru_stime


def verdict(file: Path, mutant: Mutant, tests: list[str], seconds: float) -> str:
    """What becomes of a mutant; the known equivalent ones are not run."""
    if is_equivalent(file.as_posix(), mutant.text, mutant.change):
        return "equivalent"
    return "left" if passes(file, mutant.source, tests, seconds)[0] else "killed"


def main() -> int:
    """1 when a mutant is left."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("file", type=Path, help="for example opu_fuse/fixedpoint.py")
    parser.add_argument("--tests", nargs="+", help="instead of those of tests/mutation/concern.py")
    parser.add_argument("--count", type=int, help="a random share, not all")
    parser.add_argument("--seed", type=int, default=1, help="of the share")
    args = parser.parse_args()
    tests = args.tests or tests_of(args.file.as_posix())
    os.environ["CI"] = "true"  # the same hypothesis examples for every mutant
    for library in LIBRARIES:
        importlib.import_module(library)
    source = args.file.read_text(encoding="utf-8")
    begun = time.monotonic()
    passed, used = passes(args.file, source, tests, 600)
    if not passed:
        parser.error(f"{' '.join(tests)}: fails without a change")
    seconds = 10 + 4 * used
    chosen = [*mutants(source)]
    if args.count is not None and args.count < len(chosen):
        chosen = random.Random(args.seed).sample(chosen, args.count)
    counts: Counter[str] = Counter()
    for mutant in sorted(chosen, key=lambda m: m.line):
        counts[outcome := verdict(args.file, mutant, tests, seconds)] += 1
        if outcome == "left":
            print(f"{args.file}:{mutant.line}: {mutant.text}\n    {mutant.change}", flush=True)
    share = f"seed {args.seed}" if args.count is not None else "all"
    print(f"{args.file}: {len(chosen)} mutants ({share}), {counts['killed']} killed, "
          f"{counts['equivalent']} equivalent, {counts['left']} left, "
          f"{time.monotonic() - begun:.0f} s")  # fmt: skip
    return int(counts["left"] > 0)


if __name__ == "__main__":
    sys.exit(main())
