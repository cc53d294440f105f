"""Where libraries run that may abort, never end, or ask for all memory.

onnx's shape inference and version conversion, and ONNX Runtime, are C++: on a damaged model they
may end the whole process. So they run in a fork of it, which shares its memory (no weights are
copied) and sends back only the result. It is killed when its time is up.
"""

import ctypes
import faulthandler
import gc
import logging
import os
import pickle
import re
import resource
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import astuple
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from opu_fuse.errors import InternalError, UserError

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_CHUNK = 1 << 20
"""Bytes read from the pipe at once."""
_WATCH_SECONDS = 0.5
"""Between two calls of `watch`."""
_SET_PDEATHSIG = 1
"""PR_SET_PDEATHSIG of <sys/prctl.h>."""


class ForeignError(Exception):
    """A library failed; the text is one line, in its words or ours."""


class _Outcome(StrEnum):
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    BROKEN = "broken"


def in_child(
    work: Callable[[], _T],
    *,
    seconds: float,
    memory_bytes: int | None = None,
    watch: Callable[[], None] = lambda: None,
) -> _T:
    """Result of `work`, computed in a fork of this process; small, since it is copied.

    seconds: limit of real time
    memory_bytes: limit of the fork's address space
    watch: called now and then while the fork runs, to look at memory that both share

    Raises the UserErrors and ForeignErrors of `work`, ForeignError when it crashes or takes too
    long, and InternalError for any other exception (a bug of ours: libraries are called inside
    `complaints`).
    """
    fork = in_child_concurrently(work, seconds=seconds, memory_bytes=memory_bytes, watch=watch)
    with fork as answer:
        return answer()


@contextmanager
def in_child_concurrently(
    work: Callable[[], _T],
    *,
    seconds: float,
    memory_bytes: int | None = None,
    watch: Callable[[], None] = lambda: None,
) -> Generator[Callable[[], _T]]:
    """Run as `in_child` does, concurrently with the block: the function it gets waits for the
    answer, once. The fork does not live longer than the block.
    """
    end = time.monotonic() + seconds
    reader, writer = os.pipe()
    with warnings.catch_warnings():  # of Python 3.12 on: no thread of ours is needed in the fork
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        gc.freeze()  # what is to be freed of the parent's may wait for threads of the parent
        os.close(reader)
        _run_and_exit(work, writer, seconds, memory_bytes)
    os.close(writer)
    status = 0

    def stop() -> None:
        nonlocal status
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)

    def answer() -> _T:
        with running.pop_all():
            payload = _read(reader, end, watch)
        if payload is None:
            raise ForeignError(f"stopped after {seconds:.0f} s without an end")
        return _result(payload, status)

    with ExitStack() as running:  # Ctrl-C passes through here too
        running.callback(stop)
        yield answer


@contextmanager
def complaints() -> Generator[None]:
    """Raise a ForeignError of one line for whatever a library raises."""
    try:
        yield
    except (ForeignError, UserError):
        raise
    except Exception as error:
        raise ForeignError(first_line(error)) from error


def first_line(error: BaseException) -> str:
    """First line of a library's message, without the locations in its own sources."""
    text = str(error).strip()
    line = text.splitlines()[0].rstrip(".") if text else type(error).__name__
    line = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", line.rsplit("failed: ", 1)[-1])
    return re.sub(r"^/\S+:\d+ .*?\) ", "", line)


def _read(reader: int, end: float, watch: Callable[[], None]) -> bytes | None:
    """All that the child writes; None when the time is over."""
    poll, chunks = select.poll(), []
    poll.register(reader, select.POLLIN)
    while (left := end - time.monotonic()) > 0.0:
        if not poll.poll(min(left, _WATCH_SECONDS) * 1000.0):
            watch()
            continue
        chunk = os.read(reader, _CHUNK)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
    return None


def _result(answer: bytes, status: int) -> Any:
    try:
        outcome, value = pickle.loads(answer)  # noqa: S301  our own child wrote it
    except (EOFError, pickle.UnpicklingError):
        raise ForeignError(_ending(status)) from None
    match outcome:
        case _Outcome.DONE:
            return value
        case _Outcome.REFUSED:
            kind, fields = value
            raise kind(*fields)
        case _Outcome.FAILED:
            raise ForeignError(value)
        case _:
            _log.debug("in a child process:\n%s", value)
            raise InternalError(stage="a child process", what=value.strip().splitlines()[-1])


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"crashed ({signal.Signals(os.WTERMSIG(status)).name})"
    return f"ended with exit code {os.waitstatus_to_exitcode(status)}"


def _run_and_exit(
    work: Callable[[], Any], writer: int, seconds: float, memory_bytes: int | None
) -> NoReturn:
    """All that the child does; it cleans up, flushes and prints nothing of the parent's."""
    try:
        _restrict(seconds, memory_bytes)
        payload = _payload(work)
        with open(writer, "wb") as pipe:
            pipe.write(payload)
    finally:
        os._exit(0)


def _payload(work: Callable[[], Any]) -> bytes:
    """What `work` returns or raises, as the parent reads it."""
    answer: tuple[_Outcome, Any]
    try:
        answer = (_Outcome.DONE, work())
    except UserError as error:
        answer = (_Outcome.REFUSED, (type(error), astuple(error)))
    except ForeignError as error:
        answer = (_Outcome.FAILED, str(error))
    except MemoryError:
        answer = (_Outcome.FAILED, "asked for more memory than it may have")
    except BaseException:  # noqa: BLE001  raised again in the parent
        answer = (_Outcome.BROKEN, traceback.format_exc())
    return pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)


def _restrict(seconds: float, memory_bytes: int | None) -> None:
    """Silent, without a core file; Ctrl-C ends it, and the end of its parent."""
    faulthandler.disable()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    _end_with_parent()
    logging.disable()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, int(seconds + 1.0) * (os.cpu_count() or 1))
    if memory_bytes is not None:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + memory_bytes)


def _end_with_parent() -> None:
    """A worker may be killed while it waits for its child."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:  # Linux has it
        prctl(_SET_PDEATHSIG, signal.SIGKILL)


def _limit(what: int, amount: int) -> None:
    with suppress(ValueError, OSError):  # a lower limit holds already
        resource.setrlimit(what, (amount, resource.getrlimit(what)[1]))
