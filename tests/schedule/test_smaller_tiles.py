"""Layers between windows and norms have tiles for which the array does not wait: the same bits,
sooner.
"""

import pytest

from benchmarks.attention_networks import convnext
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule import plan, smaller_tiles
from opu_fuse.sim.cycle.run import run_cycle
from tests.exact import assert_batch_has_single_bits, assert_exact

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")
HW = load_hw("opu-1024a")


def blocks(depth=2):
    """Blocks of ConvNeXt-T's third stage."""
    return convnext(56, (384,), (depth,))


def without_smaller_tiles(monkeypatch, model, hw=HW):
    with monkeypatch.context() as patched:
        patched.setattr(plan, "with_smaller_tiles", lambda tiling, _: tiling)
        return compile_model(model, hw)


def test_windows_norms_and_products_wait_less_for_each_other(monkeypatch, rng):
    before, after = without_smaller_tiles(monkeypatch, blocks()), compile_model(blocks(), HW)
    tiles = [
        {group: parts[0].tile for group, parts in found.plan.layers.items()}
        for found in (before, after)
    ]
    changed = [group for group, tile in tiles[0].items() if tiles[1][group] != tile]
    assert changed
    for old, new in ((tiles[0][group], tiles[1][group]) for group in changed):
        assert new.cols >= old.cols  # whole rows
        assert new.rows * new.cols * new.blocks < old.rows * old.cols * old.blocks
    took = [run_cycle(found.bundle, HW).counters["cycles"] for found in (before, after)]
    assert took[1] < 0.99 * took[0]
    assert_exact(after, HW, rng, (None, 1))


def test_it_is_predicted(monkeypatch):
    found = compile_model(blocks(), HW)
    predicted = sum(group.cycles for group in found.bundle.groups)
    assert predicted == pytest.approx(run_cycle(found.bundle, HW).counters["cycles"], rel=0.02)


def test_a_batch_has_the_bits_of_its_images(rng):
    model = convnext(32, (64,), (1,))
    one, two = (compile_model(model, HW, Options(batch=images)) for images in (1, 2))
    assert_batch_has_single_bits(one, two, HW, rng)


def test_equal_blocks_are_timed_once(monkeypatch):
    timed = []
    real = smaller_tiles.saved

    def counted(old, new, hw, known):
        before = len(known)
        result = real(old, new, hw, known)
        timed.append(len(known) - before)
        return result

    monkeypatch.setattr(smaller_tiles, "saved", counted)
    compile_model(blocks(4), HW)
    few = sum(timed)
    timed.clear()
    compile_model(blocks(7), HW)
    assert sum(timed) == few


def test_machines_without_norms_keep_their_programs(monkeypatch):
    hw = load_hw("opu-1024t")
    monkeypatch.setattr(smaller_tiles, "cycles_by_output", None)
    found = compile_model(convnext(32, (64,), (1,)), hw)
    assert found.plan.layers
