"""Build hook: the wheel carries the shared library and is for this platform, any Python 3."""

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))


class LibraryHook(BuildHookInterface[Any]):
    """Compiles before the files of the wheel are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """version: standard or editable."""
        del version
        from build_library import build

        library = Path("onnxruntime_ep_opu") / "libonnxruntime_ep_opu.so"
        build(Path(self.root) / library, self.metadata.version)
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        build_data["artifacts"].append(f"{library}")
