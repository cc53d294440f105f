"""Stretches of work without the garbage collector."""

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager

_GROWTH = 1.25
"""Python's own: so many times the objects of the last full collection call for another one."""


class _Old:
    """blocks: of memory in use after the last full collection, 0 before the first stretch. Objects
    would have to be counted one by one.
    """

    blocks = 0


@contextmanager
def no_collection() -> Generator[None]:
    """For work that keeps what it makes: looking through ever more objects for garbage again and
    again would take a third of the time. In the end all counts as old, looked through or not.

    Python forgets by that how much has become old, and would never look for old garbage again, as
    the models of a process that compiles many. So the beginning of a stretch does, where there are
    many more objects than before; not that of the first one, since most processes have no other.
    """
    enabled = gc.isenabled()
    if enabled:
        blocks = sys.getallocatedblocks()
        if blocks > _GROWTH * _Old.blocks > 0:
            gc.collect()
            _Old.blocks = sys.getallocatedblocks()
        _Old.blocks = _Old.blocks or blocks
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():  # objects that others froze remain frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()
