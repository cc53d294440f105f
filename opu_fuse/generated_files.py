"""Files of a checkout that are generated: they are checked in, and tests compare their bytes."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from opu_fuse.resources import hw_specs_dir

logger = logging.getLogger(__name__)


def write_generated(files: Callable[[Path], Mapping[str, str]]) -> int:
    """Write what changed, and say so. An exit code: 1 in an installed package, which has none.

    files: the project's folder -> text of each file by its path below that folder.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    project = hw_specs_dir().parent
    if not (project / "pyproject.toml").is_file():
        logger.error("generated files belong to a checkout, this is an installed package")
        return 1
    for name, text in files(project).items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            logger.info("wrote %s", name)
    return 0


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Header and rows, their bars escaped, and a line end."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(c).replace("|", "\\|") for c in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
