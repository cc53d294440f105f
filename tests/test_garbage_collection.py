"""Stretches without the garbage collector leave none behind for good: models of a process that
compiles many.
"""

import gc
import weakref

from opu_fuse.process.garbage_collection import no_collection

STRETCHES = 60


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self):
        self.me = self


def test_what_stretches_leave_behind_is_collected_by_later_ones():
    share = len(gc.get_objects()) // 10
    with no_collection():
        first = weakref.ref(Ring())
    for _ in range(STRETCHES):
        if first() is None:
            return
        with no_collection():
            for _ in range(share):
                Ring()
    raise AssertionError(f"garbage is still there after {STRETCHES} stretches")


def test_a_stretch_leaves_the_collector_as_it_was():
    with no_collection():
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
