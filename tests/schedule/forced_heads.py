"""Programs in which the heads of an attention are fused, however long it takes."""

from contextlib import contextmanager

import pytest

from opu_fuse.schedule import unit_order


@contextmanager
def forced_heads(transposes=0):
    """Models compiled inside have the first unit of fused heads that fits, with so many transposes
    of values in it.
    """

    def fused(_, new, *__):
        kept = [u for u in new if u.heads and len(u.layers) == 2 * u.heads.count + transposes]
        return float(bool(kept)), 0.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit_order, "saved", fused)
        yield
