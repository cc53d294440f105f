"""How far long work is: whoever works reports, whoever waits listens, and nobody in between passes
anything on.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str, float], None]
"""Receives what is being done, and the share (0 to 1) of it that is done."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def report(what: str, share: float) -> None:
    """Tell the listener, if there is one, which share of the current work is done."""
    if (listener := _listener.get()) is not None:
        listener(what, share)


@contextmanager
def listening(listener: Listener) -> Generator[None]:
    """Whatever the block reports goes to the listener alone."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def part(first: float, last: float) -> Generator[None]:
    """What the block reports is the part from `first` to `last` of the work around it."""
    outer = _listener.get()
    if outer is None:
        yield
        return
    with listening(lambda what, share: outer(what, first + (last - first) * share)):
        yield
