"""What the verbs print with."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)


@contextmanager
def progress_bar(stages: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal that moves on with every stage named to it."""
    if not err.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("load", total=stages, completed=-1)
        yield lambda stage: bar.update(task, description=stage, advance=1)


def print_plain(text: str) -> None:
    """Text on stderr as it is, for what passes say of themselves."""
    err.print(text, markup=False, end="" if text.endswith("\n") else "\n")


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    out.print(json.dumps(value, indent=2), markup=False)
