"""Identifies the sources of opu-fuse: rows of another version are neither reused nor mixed in."""

import hashlib
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


@cache
def source_digest() -> str:
    """SHA-256 over the Python files of the package, their names included."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(_PACKAGE)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
