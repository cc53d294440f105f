"""How Sphinx makes a site of README, CONTRIBUTING and docs/ (`make docs`)."""

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
