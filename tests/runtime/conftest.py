"""Programs in C that several files of this folder run, under sanitizers."""

import pytest

from tests.runtime.built import SANITIZED, build, build_sanitized_library


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory):
    """libopu.a."""
    return build_sanitized_library(tmp_path_factory.mktemp("sanitized"))


@pytest.fixture(scope="session")
def command(sanitized, tmp_path_factory):
    """`opu-run`."""
    target = tmp_path_factory.mktemp("command") / "opu-run"
    return build(target, "tools/opu_run.c", sanitized, options=SANITIZED)
