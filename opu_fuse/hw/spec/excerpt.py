"""The line of a file that a message is about, to be printed below it."""

from collections.abc import Iterator
from pathlib import Path


def excerpt(where: str) -> Iterator[str]:
    """The line that `file:line` names, and a caret below its first word; nothing where there is no
    such line.
    """
    file, _, number = where.rpartition(":")
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
        line = lines[int(number) - 1]
    except (OSError, ValueError, IndexError):
        return
    margin = " " * len(number)
    indent = line[: len(line) - len(line.lstrip())]
    yield f"  {number} | {line}"
    yield f"  {margin} | {indent}^"
