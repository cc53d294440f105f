"""Files of a run: arrays in and out, texts; every failure is one RunError that names the path."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from opu_fuse.errors import RunError


def read_inputs(pairs: list[str] | None) -> dict[str, np.ndarray] | None:
    """`NAME=FILE.npy` texts -> arrays by name; None without any."""
    if not pairs:
        return None
    found = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not equals or name in found:
            raise RunError(
                f"--input {pair}",
                "is not NAME=FILE.npy, or its name stands twice",
                "name every input once",
            )
        try:
            found[name] = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise RunError(
                path, f"cannot be read: {error}", "give a .npy file written by numpy.save"
            ) from error
    return found


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """One .npy per array, named as the array; a slash in a name is written %2F."""
    with file_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            plain = name.replace("%", "%25").replace("/", "%2F")
            np.save(folder / f"{plain}.npy", array)


@contextlib.contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn what the file system or the decoder says into a RunError."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise RunError(str(path), what, "choose another path") from error


def read_text(path: Path) -> str:
    """A UTF-8 text file."""
    with file_errors(path):
        return path.read_text(encoding="utf-8")


def write_text(path: Path, text: str) -> None:
    """A UTF-8 text file, replaced when it exists."""
    with file_errors(path):
        path.write_text(text, encoding="utf-8")


def write_bytes(path: Path, data: bytes) -> None:
    """A binary file, replaced when it exists."""
    with file_errors(path):
        path.write_bytes(data)
