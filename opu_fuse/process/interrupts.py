"""Ctrl-C ends a command with one word and exit code 130, wherever Python happens to be then.

KeyboardInterrupt alone does not: a library that is being imported turns it into an error of its
own, a finaliser swallows it, and where the interpreter cleans up it kills the process. So the
signal is also noted, sent once more where it was swallowed, and ignored when all is done.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_LATER = 0.02
"""Seconds after which a swallowed interrupt is tried again."""
_heard = threading.Event()


@contextmanager
def noted() -> Iterator[None]:
    """Around all that a process does for one command, in its main thread."""
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _swallowed
    try:
        yield
    except BaseException:
        if not heard():
            raise
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.write(2, b"interrupted\n")
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def heard() -> bool:
    """Whether somebody interrupted this command: errors from then on are no news."""
    return _heard.is_set()


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    _heard.set()
    raise KeyboardInterrupt


def _swallowed(unraisable: "sys.UnraisableHookArgs") -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        again = threading.Timer(_LATER, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(unraisable)
