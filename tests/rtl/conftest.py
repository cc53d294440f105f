"""What the RTL tests of a process share: simulators that run already."""

from collections.abc import Callable, Iterator

import pytest

from opu_fuse.hw.spec.hw_spec import HwSpec
from tests.rtl.session import Session


@pytest.fixture(scope="session")
def rtl() -> Iterator[Callable[[HwSpec], Session]]:
    """The session of a machine, opened by its first program."""
    opened: dict[int, Session] = {}
    yield lambda hw: opened.setdefault(hw.spec_hash, Session(hw))
    for session in opened.values():
        session.close()
