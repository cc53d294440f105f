"""The process that judges cases: forked from a parent that has imported everything.

The parent holds the limits (`pool.py`): this side only works, and says what it begins. Between
cases the process forgets its peak of memory, so that a peak belongs to one case. What it shares
with its parent, which may have run a thousand tests before, is no case's.
"""

import contextlib
import ctypes
import faulthandler
import gc
import logging
import os
import resource
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO

from tests.fuzz.cases import Kind, Verdict, judged, outcome_of

ADDRESS_SPACE_BYTES = 12 << 30
SECONDS_PER_CASE = 20.0
SHOW_STACK = signal.SIGUSR1
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to judge: a case, or the seed of one. machine: None for all of the case."""

    kind: str
    seed: int
    case: Any = None
    machine: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Said before each machine: its time begins. seconds: how much it has."""

    machine: str
    seconds: float


def serve(kinds: dict[str, Kind], pipe: Connection, stack: BinaryIO) -> None:
    """Answer requests until there are none: `Begun` and `Verdict` by machine, then None.
    stack: file for where it is, when asked or dying.
    """
    inherited = resident_mib(os.getpid())
    gc.freeze()  # the parent's sessions of ONNX Runtime cannot end here: their threads are there
    faulthandler.enable(stack, all_threads=False)
    faulthandler.register(SHOW_STACK, stack, all_threads=False)
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells us
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)
    _silence()
    while True:
        try:
            request: Request = pipe.recv()
        except EOFError:
            return
        for verdict in _verdicts(kinds[request.kind], request, pipe):
            pipe.send(replace(verdict, peak_mib=max(verdict.peak_mib - inherited, 0)))
        pipe.send(None)
        gc.collect()


def _verdicts(kind: Kind, request: Request, pipe: Connection) -> Iterator[Verdict]:
    pipe.send(Begun(machine=request.machine or "", seconds=SECONDS_PER_CASE))
    forget_peak()
    begun = time.monotonic()
    try:
        case = kind.draw(request.seed) if request.case is None else request.case
        machines = kind.machines(case) if request.machine is None else [request.machine]
    except Exception as error:  # noqa: BLE001 our own mistake, and a find like others
        found = outcome_of(error)
        yield replace(found, line="while drawing the case: " + found.line)
        return
    for machine in machines:
        pipe.send(Begun(machine=machine, seconds=kind.seconds(case)))
        verdict = judged(kind, case, machine)
        yield _measured(verdict, begun)
        begun = time.monotonic()


def _measured(verdict: Verdict, begun: float) -> Verdict:
    return replace(verdict, seconds=time.monotonic() - begun, peak_mib=peak_mib())


def forget_peak() -> None:
    """Make the peak of this process's memory what it holds now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_mib() -> int:
    """Most resident memory since `forget_peak`."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.partition("VmHWM:")[2].split()[0]) // 1024


def resident_mib(pid: int) -> int:
    """Memory that a process holds now; 0 where there is none."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def _silence() -> None:
    """Libraries in C++ write to the screen by themselves."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
