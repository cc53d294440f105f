"""Fixtures of several tests of schedules."""

import pytest

from opu_fuse.schedule import plan


@pytest.fixture
def closed_form_tiles(monkeypatch):
    """Layers keep the tiles that the closed form takes."""
    monkeypatch.setattr(plan, "with_tiles_without_waits", lambda tiling, _: tiling)
