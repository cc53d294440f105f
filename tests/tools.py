"""Programs that tests run and PyPI does not have."""

import shutil

import pytest

from tests.conftest import IN_CI


def require_tools(*tools: str) -> None:
    """Skip where one is missing; fail in CI, where `.ci/packages` installs them."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        (pytest.fail if IN_CI else pytest.skip)(f"needs {' and '.join(missing)} (.ci/packages)")
