"""Stretches of work without the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_GROWTH = 1.25
"""Python's own: so many times the objects of the last full collection call for another one."""


class _Old:
    """objects: how many there were after the last full collection, 0 before the first stretch."""

    objects = 0


@contextmanager
def no_collection() -> Iterator[None]:
    """For work that keeps what it makes: looking through ever more objects for garbage again and
    again would take a third of the time. In the end all counts as old, looked through or not.

    Python forgets by that how much has become old, and would never look for old garbage again, as
    the models of a process that compiles many. So the beginning of a stretch does, where there are
    many more objects than before; not that of the first one, since most processes have no other.
    """
    enabled = gc.isenabled()
    if enabled:
        found = _all_old()
        if found > _GROWTH * _Old.objects > 0:
            gc.collect()
            _Old.objects = _all_old()
        _Old.objects = _Old.objects or found
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            _all_old()
            gc.enable()


def _all_old() -> int:
    """Make all objects old ones; how many there are (0 where somebody has frozen some)."""
    if gc.get_freeze_count():
        return 0
    gc.freeze()
    count = gc.get_freeze_count()
    gc.unfreeze()
    return count
