"""Rows on disk as they come: a line each, written through, so that a killed sweep loses none."""

import fcntl
import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from msgspec import Struct, field

from opu_fuse.errors import UserError
from opu_fuse.process.interrupts import deferred

Row = dict[str, Any]
NAME = "rows.jsonl"


class Journal(Struct):
    """The rows of a sweep, appended to a file. rows: by the key of their point."""

    _file: IO[bytes]
    rows: dict[str, Row] = field(default_factory=dict)

    def add(self, rows: Sequence[Row]) -> None:
        """Append rows; they are on disk when this returns. A known key keeps its row."""
        new = [row for row in rows if row["key"] not in self.rows]
        text = b"".join(json.dumps(row).encode() + b"\n" for row in new)
        with deferred():
            self._file.write(text)
            self._file.flush()
            os.fsync(self._file.fileno())
            self.rows |= {row["key"]: row for row in new}


@contextmanager
def journal(folder: Path) -> Generator[Journal]:
    """The rows of a folder, those of earlier runs included. A line that was being written when the
    run was killed is cut off. Raises UserError while another sweep writes to it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / NAME).open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                str(folder), "another sweep is writing to it", "wait for it, or name another folder"
            ) from None
        file.seek(0)
        text = file.read()
        whole = text.rfind(b"\n") + 1
        file.truncate(whole)
        rows = (json.loads(line) for line in text[:whole].splitlines())
        yield Journal(file, {row["key"]: row for row in rows})
