"""What the verbs print with."""

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
"""Characters that do something to a terminal, which names of a model may hold."""
_WIDTH = 80
"""Of a line where no terminal is."""


class Screen:
    """One of the two streams of the process. `rich`, which takes 30 ms to load, is loaded for what
    only it can draw. quiet: nothing is printed but what goes to `file`.
    """

    quiet = False

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def file(self) -> TextIO:
        """The stream as it is now."""
        return getattr(sys, self._name) or io.StringIO()  # None where there is no such stream

    @cached_property
    def rich(self) -> "Console":
        """What draws tables with long texts, and moving bars."""
        from rich.console import Console

        return Console(stderr=self._name == "stderr", soft_wrap=True, highlight=False)

    @property
    def is_terminal(self) -> bool:
        """Whether somebody may be watching."""
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
        """Text without control characters, or something to draw."""
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
    """The command line as it was typed, for pages to name."""
    return shlex.join(["opu-fuse", *sys.argv[1:]])


def flush() -> None:
    """Whatever was printed is written. Errors: OSError and ValueError as of the streams."""
    for screen in (out, err):
        screen.file.flush()


def print_plain(text: str) -> None:
    """Text on stderr as it is, for what passes say of themselves."""
    err.print(text, end="" if text.endswith("\n") else "\n")


def print_lines(lines: Iterable[str]) -> None:
    """Lines of any number on stdout, as they are: the console would look at every character."""
    text = "".join(f"{line}\n" for line in lines)
    out.file.write(text.translate(_CONTROL))


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    out.file.write(f"{_json(value)}\n")


def _json(value: Any, end: str = "\n") -> str:
    """`json.dumps(value, indent=2)` in half its time. end: line end and the next indent."""
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
