"""Stretches of work without the garbage collector."""

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager

_GROWTH = 1.25
"""Python's own: so many times the objects of the last full collection call for another one."""


class _LastCollection:
    """blocks: memory blocks in use after the last full collection, 0 before the first stretch
    (counting objects would take a pass over all of them).
    """

    blocks = 0


@contextmanager
def no_collection() -> Generator[None]:
    """For work whose results live long: repeated collections over ever more objects would take a
    third of the time. At the end all objects count as old, scanned or not.

    Python then no longer knows how many became old, and would never collect old garbage again, such
    as the models of a process that compiles many. So each stretch but the first begins with a
    collection where there are many more blocks than after the last one.
    """
    enabled = gc.isenabled()
    if enabled:
        blocks = sys.getallocatedblocks()
        if blocks > _GROWTH * _LastCollection.blocks > 0:
            gc.collect()
            _LastCollection.blocks = sys.getallocatedblocks()
        _LastCollection.blocks = _LastCollection.blocks or blocks
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():  # objects that others froze remain frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()
