"""Quick start and end of the command line. A process that only imports the package is
left alone.

onnx_ir imports sympy (half a second) for symbolic dimensions; networks with static shapes have
none. pydantic asks every installed package whether it is a plugin. numpy's OpenBLAS starts threads
that spin (0.1 s of CPU), and our products are too small for more than one. Compiling makes many
long-lived small objects: a collector that scans them again and again takes a fifth of the time,
and giving them back one by one when all is done another 15 to 35 ms.
"""

import atexit
import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

_LAZY = ("sympy", "onnx_ir._symbolic_shapes", "importlib.metadata._adapters")
"""Modules that are loaded when something of them is used."""
_COLLECT_EVERY = 500_000
"""New objects between two runs of the garbage collector (Python's own choice is 700)."""
_flushes: list[Callable[[], None]] = []
"""Flushes of a command that has succeeded; empty before."""


def start_quickly() -> None:
    """Call before the other imports of a process that runs one command and ends."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(_COLLECT_EVERY)
    atexit.register(_exit_at_once)  # the first, so the last that is called
    sys.meta_path.insert(0, _LazyFinder())


def allow_quick_exit(flush: Callable[[], None]) -> None:
    """The command has succeeded: the process may skip what Python does at its end. flush: writes
    what was printed.
    """
    _flushes.append(flush)


def _exit_at_once() -> None:
    gc.freeze()  # else Python's exit begins with a full collection
    for flush in _flushes:
        with suppress(OSError, ValueError):  # Python says what is wrong with a stream
            flush()
            os._exit(0)


class _LazyFinder:
    """Finder of modules that load on first use. It has the interface of
    `importlib.abc.MetaPathFinder`, whose import takes 10 ms.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _LAZY else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec
