"""Folders of the machines (`hw_specs/`) and of the RTL (`rtl_sim/`).

A checkout (and an editable install) has both as top-level folders next to `opu_fuse/`; a wheel
carries them below `opu_fuse/_share/`. Nothing else in the package may guess these paths.
"""

from pathlib import Path

from opu_fuse.errors import UserError

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
