"""Files of a run: arrays in and out, texts; every failure is one RunError that names the path."""

import contextlib
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from opu_fuse.errors import RunError
from opu_fuse.process.atomic_files import require_folder, require_target, whole_file, whole_folder

_UNREADABLE = (
    *(OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError),
    *(NotImplementedError, KeyError, SyntaxError, OverflowError, UnicodeError, TypeError),
    tokenize.TokenError,  # of headers, from Python 3.12 on
)
"""Errors of numpy and the archive reader for files that are truncated, encrypted or damaged."""

_HEADS = (b"\x93NUMPY", b"PK")
"""First bytes of .npy and .npz files; numpy takes all others for pickled objects."""

_LONGEST_HEAD = max(map(len, _HEADS))

_Taken = TypeVar("_Taken")

_NUMPY_FILE = "give a .npy file written by numpy.save"


def read_array(path: Path) -> np.ndarray:
    """The array of a .npy file, or the only one of an .npz file. RunError for whatever is none."""
    return _read(path, _only)


def read_inputs(
    pairs: Sequence[str] | None, read: Callable[[Path], np.ndarray] = read_array
) -> dict[str, np.ndarray] | None:
    """`NAME=FILE.npy` texts, and `FILE.npz` for arrays named as inputs -> arrays by name; None
    without any. read: what reads the file of a name.
    """
    if not pairs:
        return None
    results: dict[str, np.ndarray] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        arrays: dict[str, np.ndarray] = {}
        if equals:
            arrays = {name: read(Path(path))}
        elif name.endswith(".npz"):
            arrays = _read(Path(name), _all)
        if not arrays or not results.keys().isdisjoint(arrays):
            raise RunError(
                f"--input {pair}",
                "is neither NAME=FILE.npy nor FILE.npz, or a name appears twice",
                "name every input once",
            )
        results |= arrays
    return results


def _read(path: Path, take: Callable[[object, Path], _Taken]) -> _Taken:
    try:
        if not path.is_file():
            raise RunError(str(path), "no such file", _NUMPY_FILE)
        with warnings.catch_warnings(), path.open("rb") as file:
            warnings.simplefilter("ignore")  # of headers by older versions: they are read all right
            if not file.peek(_LONGEST_HEAD).startswith(_HEADS):
                raise RunError(str(path), "cannot be read: it holds no array", _NUMPY_FILE)
            return take(np.load(file, allow_pickle=False), path)
    except MemoryError:
        raise RunError(
            str(path), "holds an array larger than memory", "give the model's shape"
        ) from None
    except _UNREADABLE as error:
        first = str(error).splitlines()[0] if str(error) else "it ends too early"
        raise RunError(str(path), f"cannot be read: {first}", _NUMPY_FILE) from error


def _all(loaded: object, path: Path) -> dict[str, np.ndarray]:
    if isinstance(loaded, np.ndarray):
        raise RunError(str(path), "holds one array without a name", "give NAME=FILE.npy")
    assert isinstance(loaded, np.lib.npyio.NpzFile)
    with loaded as archive:
        return {name: archive[name] for name in archive.files}


def _only(loaded: object, path: Path) -> np.ndarray:
    if isinstance(loaded, np.ndarray):
        return loaded
    assert isinstance(loaded, np.lib.npyio.NpzFile)
    with loaded as archive:
        names = list(archive.files)
        if len(names) != 1:
            raise RunError(
                str(path),
                f"is an archive of {len(names)} arrays, an input is one",
                "save them one by one with numpy.save",
            )
        return archive[names[0]]


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """One .npy per array, named as the array (`file_name`); all of them or none."""
    with file_errors(folder), whole_folder(folder) as fresh:
        for name, array in arrays.items():
            np.save(fresh / f"{file_name(name)}.npy", array)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Files by name into a folder, all of them or none; those of these names are replaced."""
    with file_errors(folder), whole_folder(folder) as fresh:
        for name, content in files.items():
            (fresh / name).write_bytes(content)


def file_name(name: str) -> str:
    """A tensor's name as that of a file: slashes, percent signs and control characters as %XX."""
    return "".join(f"%{ord(c):02X}" if c in "/%" or not c.isprintable() else c for c in name)


@contextlib.contextmanager
def file_errors(path: Path) -> Generator[None]:
    """Convert errors of the file system or the decoder into a RunError."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise RunError(str(path), "is no UTF-8 text", "give a text file") from error
    except OSError as error:
        what = error.strerror or str(error)
        raise RunError(str(path), what, "choose another path") from error


def require_targets(*paths: Path | None) -> None:
    """RunError for the first file that could not be written: before the work, not after it."""
    for path in paths:
        if path is not None:
            with file_errors(path):
                require_target(path)


def require_folders(*folders: Path | None) -> None:
    """RunError for the first folder that could not be one: before the work, not after it."""
    for folder in folders:
        if folder is not None:
            with file_errors(folder):
                require_folder(folder)


def read_text(path: Path) -> str:
    """A UTF-8 text file."""
    with file_errors(path):
        if path.exists() and not path.is_file():  # a pipe would be waited for, a device has no end
            raise RunError(str(path), "is no file", "give a text file")
        return path.read_text(encoding="utf-8")


def write_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically. write: writes the content to the temporary path it receives."""
    with file_errors(path), whole_file(path) as temporary:
        write(temporary)


def write_text(path: Path, text: str) -> None:
    """A UTF-8 text file, replaced when it exists."""
    write_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """A binary file, replaced when it exists."""
    write_file(path, lambda temporary: temporary.write_bytes(data))
