"""What a library does in a child process reaches us as one line, and never more than that."""

import ctypes
import os
import signal
import time
from collections.abc import Callable

import numpy as np
import pytest

from opu_fuse.errors import InternalError, ModelError
from opu_fuse.process.sandbox import ForeignError, complaints, in_child, in_child_concurrently


def _complain() -> None:
    with complaints():
        raise RuntimeError("/src/a.cc:7 check failed: no such thing.\nwith a second line")


def _refuse() -> None:
    raise ModelError("here", "this is wrong", "do that")


ENDS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "abort": (os.abort, ForeignError, r"^crashed \(SIGABRT\)$"),
    "a wild pointer": (lambda: ctypes.string_at(0), ForeignError, r"^crashed \(SIGSEGV\)$"),
    "division": (lambda: signal.raise_signal(signal.SIGFPE), ForeignError, r"\(SIGFPE\)$"),
    "exit": (lambda: os._exit(7), ForeignError, "^ended with exit code 7$"),
    "no end": (lambda: time.sleep(100), ForeignError, "^stopped after 1 s without an end$"),
    "a complaint": (_complain, ForeignError, "^no such thing$"),
    "a refusal": (_refuse, ModelError, "^here: this is wrong; do that$"),
    "a bug of ours": (lambda: 1 // 0, InternalError, "ZeroDivisionError"),
}


@pytest.mark.parametrize("kind", ENDS)
def test_every_end_of_a_child_is_one_error(kind: str, capfd: pytest.CaptureFixture[str]):
    work, error, message = ENDS[kind]
    with pytest.raises(error, match=message) as caught:
        in_child(work, seconds=1.0)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", ""), "a child says nothing on the user's screen"


def test_what_was_found_out_comes_back():
    data = np.arange(300_000)
    found = in_child(lambda: {"sum": data.sum(), "data": data}, seconds=20.0)
    assert found["sum"] == data.sum()
    np.testing.assert_array_equal(found["data"], data)


def test_the_parent_goes_on_meanwhile():
    reader, writer = os.pipe()
    with in_child_concurrently(lambda: os.read(reader, 1), seconds=20.0) as answer:
        os.write(writer, b"x")  # the child waits for it
        assert answer() == b"x"


def test_a_child_does_not_outlive_the_block(children: list[int]):
    with (
        pytest.raises(ZeroDivisionError),
        in_child_concurrently(lambda: time.sleep(100), seconds=100.0),
    ):
        raise ZeroDivisionError
    _require_gone(children)


def test_memory_is_limited():
    with pytest.raises(ForeignError, match="asked for more memory than it may have"):
        # More than any hole that earlier tests may have left in this process.
        in_child(lambda: len(bytes(1 << 36)), seconds=20.0, memory_bytes=1 << 28)


@pytest.fixture
def alarm():
    """Ctrl-C after a moment; only this process gets it, a terminal would send it to both."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 1.0)  # a large process takes longer to fork
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Process ids of all that is forked."""
    found: list[int] = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: found.append(pid := fork()) or pid)
    return found


def _require_gone(children: list[int]) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(children[0], 0)


def test_ctrl_c_ends_the_child_too(alarm: None, children: list[int]):
    with pytest.raises(KeyboardInterrupt):
        in_child(lambda: time.sleep(100), seconds=100.0)
    _require_gone(children)
