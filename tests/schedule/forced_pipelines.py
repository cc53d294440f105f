"""Programs in which the layer before the heads of an attention is split, however long it takes."""

from contextlib import contextmanager

import pytest

from opu_fuse.schedule import unit_order


def _splits(_, new, *__):
    """Of all units, those in which a layer is split save cycles."""
    return float(any(layer.partial for unit in new for layer in unit.layers)), 0.0


@contextmanager
def forced_pipelines():
    """Models compiled inside have the first pipeline with a split layer that fits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit_order, "saved", _splits)
        yield
