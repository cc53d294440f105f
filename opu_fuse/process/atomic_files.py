"""Atomic file writes: a file is written under a temporary name in its folder, then renamed.

An existing regular file under that name is replaced, and a link is followed. Anything else is
not replaced, because a renamed file would take the name of a device.
"""

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path

_BESIDE = ".opu-fuse-"


def require_target(path: Path) -> None:
    """Raises OSError, worded for people, where no file can be written. Called before the work
    that produces its content.
    """
    if not path.name:
        raise OSError(errno.EISDIR, "is a folder, not a file")
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise OSError(errno.ENOENT, f"the folder {target.parent} does not exist")
    if not os.access(target.parent, os.W_OK):
        raise OSError(errno.EACCES, f"the folder {target.parent} cannot be written to")
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, "is a folder, not a file")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "is a device or pipe, not a file")


def require_folder(folder: Path) -> None:
    """Raises OSError where no folder exists and none can be created."""
    if folder.exists() and not folder.is_dir():
        raise OSError(errno.ENOTDIR, "is a file, not a folder")


@contextlib.contextmanager
def whole_file(path: Path) -> Generator[Path]:
    """The name under which to write; in the end the file becomes `path`, after an error nothing is
    left of it. Raises OSError.
    """
    require_target(path)
    target = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(prefix=_BESIDE, suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(_mode(target))
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise


def _mode(target: Path) -> int:
    """That of the file that is replaced, else of a new one (mkstemp makes private ones)."""
    with contextlib.suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


@contextlib.contextmanager
def whole_folder(folder: Path) -> Generator[Path]:
    """A folder to write into; in the end its files move into `folder`, after an error none does.
    Raises OSError.
    """
    require_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=_BESIDE, dir=folder) as name:
        yield Path(name)
        files = sorted(Path(name).iterdir())
        for file in files:
            require_target(folder / file.name)
        for file in files:
            file.replace(Path(os.path.realpath(folder / file.name)))
