"""Plugin of pytest: tests that have not begun some seconds after the collection are skipped."""

import os
import time

import pytest

SECONDS = "OPU_FUSE_TEST_SECONDS"
_until: list[float] = []


def pytest_collection_finish() -> None:
    _until[:] = [time.monotonic() + float(os.environ[SECONDS])]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if time.monotonic() > _until[0]:
        pytest.skip("no time left in `make check`")
