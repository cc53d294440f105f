"""Ctrl-C ends a command with one word and exit code 130, wherever Python happens to be then, and
SIGTERM with the same word and 143.

KeyboardInterrupt alone does not: a library that is being imported raises an error of its own
instead, an extension module that is being initialised crashes, a finaliser swallows it, and where
the interpreter cleans up it kills the process. So the signal is also recorded, sent again where it
was swallowed or came too early, and ignored when all is done.
"""

import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_RESEND_SECONDS = 0.02
"""Seconds after which a swallowed interrupt is tried again."""
_received: list[int] = []
"""Numbers of the signals that came."""


@contextmanager
def handled() -> Generator[None]:
    """Around all that a process does for one command, in its main thread: an interrupt ends it."""
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    sys.unraisablehook = _resend_swallowed
    threading.excepthook = _report_thread_failure
    try:
        yield
    except BaseException:
        if not was_interrupted():
            raise
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        os.write(2, b"interrupted\n")
        sys.exit(128 + _received[0])
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def deferred() -> Generator[None]:
    """Work that is not interrupted: an interrupt that comes in the block is raised at its end.
    Processes and threads that start in it never see SIGINT, which a terminal sends to all.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda number, _: received.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            handlers[signal.Signals(received[0])](received[0], None)


def was_interrupted() -> bool:
    """Whether this command was interrupted: errors after that are consequences."""
    return bool(_received)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _initialises_extension(frame):
        _resend(number)
        return
    _received.append(number)
    raise KeyboardInterrupt


def _initialises_extension(frame: FrameType | None) -> bool:
    """Whether an extension module is being initialised, whose C++ takes an exception for fatal."""
    while frame is not None:
        if frame.f_code.co_qualname.startswith("ExtensionFileLoader."):
            return True
        frame = frame.f_back
    return False


def _resend(number: int) -> None:
    again = threading.Timer(_RESEND_SECONDS, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _resend_swallowed(unraisable: "sys.UnraisableHookArgs") -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _resend((*_received, signal.SIGINT)[0])
    elif not was_interrupted():
        sys.__unraisablehook__(unraisable)


def _report_thread_failure(failure: threading.ExceptHookArgs) -> None:
    if not was_interrupted():
        threading.__excepthook__(failure)
