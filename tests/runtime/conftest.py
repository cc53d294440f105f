"""Programs in C that several files of this folder run."""

import pytest

from tests.runtime.built import COMMAND, SANITIZED, build


@pytest.fixture(scope="session")
def command(tmp_path_factory):
    """`opu-run` under AddressSanitizer and UndefinedBehaviorSanitizer."""
    return build(tmp_path_factory.mktemp("command") / "opu-run", *COMMAND, options=SANITIZED)
