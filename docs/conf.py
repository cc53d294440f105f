"""How Sphinx makes a site of README, CONTRIBUTING and docs/ (`make docs`)."""

import re
from typing import Any

from sphinx.application import Sphinx

import opu_fuse

project = "opu-fuse"
author = "the opu-fuse contributors"
version = release = opu_fuse.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**"]

default_role = "code"  # single backticks in docstrings
myst_heading_anchors = 4  # links to headings are GitHub's

html_theme = "furo"
html_title = f"opu-fuse {version}"
html_show_sphinx = False

_FIELD = re.compile(r"[a-z_]\w*(, \w+)*( \([\w ,]+\))?: ")


def _fields_as_list(_app: Sphinx, *about: Any) -> None:
    """Docstrings have a line per field, `name: meaning`; on the site these are a list."""
    lines: list[str] = about[-1]
    before, inside = "", False
    for number, line in enumerate(lines):
        starts = bool(_FIELD.match(line)) and (inside or not before)
        inside = bool(line) and (starts or inside)
        if inside:
            lines[number] = f"{'* ' if starts else '  '}{line.strip()}"
        before = line


def setup(app: Sphinx) -> None:
    """Sphinx calls it."""
    app.connect("autodoc-process-docstring", _fields_as_list)
