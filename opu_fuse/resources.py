"""Folders of the machines (`hw_specs/`), the RTL (`rtl_sim/`) and the C library (`runtime/`), and
that of what is built on the user's machine.

A checkout (and an editable install) has them as top-level folders next to `opu_fuse/`; a wheel
carries them below `opu_fuse/_share/`. Nothing else in the package may guess these paths.
"""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

from opu_fuse.errors import RunError, UserError

_PACKAGE = Path(__file__).resolve().parent


def hw_specs_dir() -> Path:
    """The folder with the machines that come with the package, `<name>.yaml` each."""
    return _resource("hw_specs")


def rtl_dir() -> Path:
    """The folder `rtl_sim` with the SystemVerilog sources and the simulation drivers.

    Its parent on PYTHONPATH makes `import rtl_sim` work in the process that runs the simulation.
    The folder may be read-only: builds and results go elsewhere.
    """
    return _resource("rtl_sim")


def runtime_dir() -> Path:
    """The folder `runtime` with the C sources of libopu."""
    return _resource("runtime")


def cache_dir() -> Path:
    """The folder of built simulators and libraries, created if missing: `$OPU_FUSE_CACHE`, else
    `$XDG_CACHE_HOME/opu_fuse`, else `~/.cache/opu_fuse`. Raises RunError where it cannot be made.
    """
    own = os.environ.get("OPU_FUSE_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opu_fuse"
    folder = Path(own) if own else base
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            str(folder),
            f"the cache folder cannot be created ({error.strerror})",
            "set OPU_FUSE_CACHE to a folder that can be written",
        ) from error
    return folder


def processor() -> str:
    """What `-march=native` depends on."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return os.uname().machine


def _resource(name: str) -> Path:
    # The wheel's folder first: site-packages may hold another package's folder of the same name.
    for parent in (_PACKAGE / "_share", _PACKAGE.parent):
        if (parent / name).is_dir():
            return parent / name
    raise UserError(
        where=str(_PACKAGE),
        what=f"the installation is incomplete: its folder {name} is missing",
        help="install opu-fuse again, or run it from a complete checkout",
    )


@contextlib.contextmanager
def locked(path: Path) -> Generator[None]:
    """While one process is inside, others that come with the same file wait."""
    import fcntl  # not on Windows, where one can compile

    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
