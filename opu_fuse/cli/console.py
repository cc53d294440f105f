"""The two output streams of the command, and JSON."""

import io
import json
import os
import shlex
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, TextIO

from opu_fuse.report.terminal_tables import FittedTable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_CONTROL = dict.fromkeys(b"\a\b\v\f\r\x1b")
"""Control characters of terminals, which names of a model may hold; none is printed."""
_WIDTH = 80
"""Characters of a line where there is no terminal."""


class Screen:
    """An output stream of the process. name: `stdout` or `stderr`, the attribute of `sys`.

    quiet: nothing is printed, except what is written to `file` directly.

    The library `rich` takes 30 ms to load, so it is loaded only for what it must draw.
    """

    quiet = False

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def file(self) -> TextIO:
        """The stream that `sys` has now; a caller may have replaced it."""
        return getattr(sys, self._name) or io.StringIO()  # None in a process without this stream

    @cached_property
    def rich(self) -> "Console":
        """Draws tables with long texts, and progress bars."""
        from rich.console import Console

        return Console(stderr=self._name == "stderr", soft_wrap=True, highlight=False)

    @property
    def is_terminal(self) -> bool:
        """Whether the stream is a terminal that can be drawn on."""
        return self.file.isatty() and self.rich.is_terminal

    @property
    def width(self) -> int:
        """Characters of a line."""
        if (columns := os.environ.get("COLUMNS", "")).isdecimal():
            return int(columns)
        for stream in range(3):
            with suppress(OSError):
                return os.get_terminal_size(stream).columns or _WIDTH
        return _WIDTH

    def print(self, shown: "str | FittedTable | RenderableType", end: str = "\n") -> None:
        """Print text without its control characters, or draw something."""
        if self.quiet:
            return
        if isinstance(shown, FittedTable):
            unicode = (self.file.encoding or "").lower().startswith("utf")
            shown = "\n".join(shown.lines(self.width, ascii_only=not unicode))
        if isinstance(shown, str):
            self.file.write(shown.translate(_CONTROL) + end)
            self.file.flush()
        else:
            self.rich.print(shown)


out = Screen("stdout")
err = Screen("stderr")


def typed_command() -> str:
    """The command line as it was typed, for reports."""
    return shlex.join(["opu-fuse", *sys.argv[1:]])


def flush() -> None:
    """Write everything that was printed. Raises OSError and ValueError as the streams do."""
    for screen in (out, err):
        screen.file.flush()


def print_plain(text: str) -> None:
    """Print text on stderr with one line end: warnings, and messages of passes."""
    err.print(text, end="" if text.endswith("\n") else "\n")


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout in one write: there may be very many."""
    text = "".join(f"{line}\n" for line in lines)
    out.file.write(text.translate(_CONTROL))


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    out.file.write(f"{_json(value)}\n")


def _json(value: Any, end: str = "\n") -> str:
    """`json.dumps(value, indent=2)` in half its time. end: line end and indent of the value."""
    text, inner = encode_basestring_ascii, f"{end}  "
    if isinstance(value, dict) and value:
        items = [
            f"{text(k)}: {text(v) if type(v) is str else _json(v, inner)}" for k, v in value.items()
        ]
        return f"{{{inner}{f',{inner}'.join(items)}{end}}}"
    if isinstance(value, list | tuple) and value:
        items = [text(v) if type(v) is str else _json(v, inner) for v in value]
        return f"[{inner}{f',{inner}'.join(items)}{end}]"
    return str(value) if type(value) is int else json.dumps(value)
