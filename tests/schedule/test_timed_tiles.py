"""Tiles that the closed form does not prefer, and the timed tile schedule finds faster."""

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.schedule import timed_tiles
from opu_fuse.sim.cycle.run import run_cycle
from tests.exact import assert_exact
from tests.networks.narrow_branches import block

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")


def tile_of(found, name):
    (part,) = [p for parts in found.plan.layers.values() for p in parts if name in p.layer.name]
    return part.tile


def test_a_layer_that_waits_for_post_takes_higher_tiles_and_is_faster(monkeypatch, rng):
    hw, model = load_hw("opu-1024a"), block(16, 8, (80, 80), first=32)
    found = compile_model(model, hw)
    monkeypatch.setattr(timed_tiles, "_high", lambda *_: {})
    before = compile_model(model, hw)
    assert tile_of(found, "cut").rows > tile_of(before, "cut").rows
    now, then = (run_cycle(c.bundle, hw).counters["cycles"] for c in (found, before))
    assert now < 0.99 * then
    assert_exact(found, hw, rng)


def test_machines_without_norms_keep_their_tiles():
    hw = load_hw("opu-1024t")
    found = compile_model(block(16, 8, (9, 15)), hw)
    assert not timed_tiles._high(found.plan, hw)
