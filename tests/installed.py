"""An environment in which only some packages are installed."""

from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_FINDER = """\
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)

sys.meta_path.insert(0, Absent())
"""


def hide_other_packages(folder: Path, *requirements: str) -> None:
    """Write the `sitecustomize.py` that hides all modules but those of these packages, of what they
    ask for, and of opu-fuse itself; for the head of PYTHONPATH.

    requirements: as pip takes them, `opu-fuse[litex]`.
    """
    named: set[tuple[str, str]] = {("opu-fuse", "alone")}
    for each in map(Requirement, requirements):
        for extra in ("", *each.extras):
            _require(canonicalize_name(each.name), extra, named)
    packages = {name for name, _ in named}
    hidden = {
        module
        for module, owners in metadata.packages_distributions().items()
        if not packages & {canonicalize_name(owner) for owner in owners}
    }
    (folder / "sitecustomize.py").write_text(f"HIDDEN = {sorted(hidden)}\n{_FINDER}")


def _require(name: str, extra: str, named: set[tuple[str, str]]) -> None:
    """Add a package with what it asks for."""
    if (name, extra) in named:
        return
    named.add((name, extra))
    for each in map(Requirement, metadata.requires(name) or []):
        if each.marker is None or each.marker.evaluate({"extra": extra}):
            for further in ("", *each.extras):
                _require(canonicalize_name(each.name), further, named)
