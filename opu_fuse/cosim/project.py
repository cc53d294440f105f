"""The small project of `opu-fuse cosim init`: a system with the machine inside, and its bench."""

from collections.abc import Mapping
from pathlib import Path

from opu_fuse import resources
from opu_fuse.errors import RunError
from opu_fuse.sim.array_files import write_files

NETWORK = "network.onnx"
_MACHINE = "@machine@"


def project_files(machine: str) -> dict[str, str]:
    """Text of every file but the network. machine: name or path of the spec."""
    folder = resources.rtl_dir() / "project"
    return {
        path.name: path.read_text(encoding="utf-8").replace(_MACHINE, machine)
        for path in sorted(folder.iterdir())
        if path.is_file()
    }


def write_project(folder: Path, files: Mapping[str, bytes]) -> None:
    """All files of a project or none. RunError where one of them already exists."""
    for name in files:
        if (folder / name).exists():
            raise RunError(str(folder / name), "already exists", "choose an empty folder")
    write_files(folder, files)
