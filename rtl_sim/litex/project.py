"""Projects of openXC7 on a machine without it."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from litex.build.xilinx.yosys_nextpnr import XilinxYosysNextpnrToolchain

_FOLDERS = ("CHIPDB", "PRJXRAY_DB_DIR")
"""Variables that openXC7 has: databases of devices for nextpnr-xilinx and of Project X-Ray."""


@contextlib.contextmanager
def written(soc: Any, gateware: Path) -> Iterator[None]:
    """Have LiteX write the script for openXC7 though there is none: it looks for databases, and
    stops where they are missing. The script takes their folders from the environment then.
    """
    toolchain = soc.platform.toolchain
    if not isinstance(toolchain, XilinxYosysNextpnrToolchain) or all(map(os.environ.get, _FOLDERS)):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="opu_fuse-openxc7-") as name:
        folders = {variable: str(Path(name) / variable.lower()) for variable in _FOLDERS}
        for folder in folders.values():
            Path(folder).mkdir()
        part = soc.platform.device.rpartition("-")[0]
        (Path(folders["CHIPDB"]) / f"{part}.bin").touch()
        with mock.patch.dict(os.environ, folders):
            yield
    script = gateware / f"build_{soc.platform.name}.sh"
    text = script.read_text(encoding="utf-8")
    for variable, folder in folders.items():
        text = text.replace(folder, f"${{{variable}}}")
    script.write_text(text, encoding="utf-8")
