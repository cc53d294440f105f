"""What the verbs print with."""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from json.encoder import encode_basestring_ascii
from typing import Any

from rich.console import Console
from rich.control import strip_control_codes

out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)


@contextmanager
def progress_bar(stages: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal that moves on with every stage named to it."""
    with share_bar() as show:
        begun = itertools.count()
        yield lambda stage: show(stage, next(begun) / stages)


@contextmanager
def share_bar() -> Iterator[Callable[[str, float], None]]:
    """A bar on a terminal that is told what is being done, and which share of all is done."""
    if out.quiet or not err.is_terminal:
        yield lambda *_: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("load", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)


def time_left(what: str, done: int, total: int, seconds: float) -> str:
    """How far some work is. seconds: to its end, NaN or infinite where nobody knows."""
    if not math.isfinite(seconds):
        return f"{done} of {total} {what}"
    minutes, rest = divmod(round(seconds), 60)
    return f"{done} of {total} {what}, {minutes}:{rest:02} left"


def print_plain(text: str) -> None:
    """Text on stderr as it is, for what passes say of themselves."""
    err.print(text, markup=False, end="" if text.endswith("\n") else "\n")


def print_lines(lines: Iterable[str]) -> None:
    """Lines of any number on stdout, as they are: the console would look at every character."""
    text = "".join(f"{line}\n" for line in lines)
    out.file.write(strip_control_codes(text))


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    out.file.write(f"{_json(value)}\n")


def _json(value: Any, end: str = "\n") -> str:
    """`json.dumps(value, indent=2)` in half its time: with an indent that walks in generators. end:
    of the line, and how far the next one is indented.
    """
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
