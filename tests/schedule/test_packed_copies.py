"""Narrow maps that share words: their readers compute several pixels at a time, from a copy with
several pixels in a word; post spreads what is added to them.
"""

from itertools import count

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.model.effort import multiplications
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule import packed_copies
from opu_fuse.sim.cycle.run import run_cycle
from tests.exact import assert_exact
from tests.hw.norm_machine import four_pixel_machine
from tests.networks.narrow_branches import block, sums

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

COPY = "split.1/packed"


@pytest.fixture
def always(monkeypatch):
    """Every copy that a reader can use is taken."""
    faster = count(0, -1)
    monkeypatch.setattr(packed_copies, "_cycles", lambda *_: next(faster))


def shapes_of(found):
    layers = [part.layer for parts in found.plan.layers.values() for part in parts]
    return {layer.name.split(" ")[0]: layer.shape for layer in layers}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("size", [(5, 8), (6, 13), (1, 1), (3, 2)])
def test_a_copy_with_four_pixels_in_a_word_has_the_golden_models_bits(size, rng):
    hw = four_pixel_machine()
    found = compile_model(block(4, 4, size), hw)
    shapes = shapes_of(found)
    assert (shapes[COPY].px, shapes[COPY].repacks) == (4, True)
    assert (shapes["in"].slot, shapes["in"].px) == (4, 4)
    assert_exact(found, hw, rng, (None, 1))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("size", [(5, 8), (6, 13), (1, 1), (3, 2)])
@pytest.mark.parametrize(("first", "again"), [(3, True), (8, True), (9, False)])
def test_half_of_a_map_is_computed_again_from_words_of_several_pixels(size, first, again, rng):
    """A word of 16 lanes holds two pixels of eight channels."""
    hw = four_pixel_machine()
    found = compile_model(block(4, 4, size, first=first), hw)
    shape = shapes_of(found)[COPY]
    assert (shape.px, shape.repacks, shape.slot < hw.word_bytes) == (4, True, again)
    assert ("again" in found.partition.rewrites[COPY]) == again
    assert_exact(found, hw, rng, (None, 1))


@pytest.mark.usefixtures("always")
def test_what_is_computed_again_counts_no_multiplications(monkeypatch):
    model, hw = block(4, 4, (6, 8), first=4), four_pixel_machine()
    again = compile_model(model, hw)
    monkeypatch.setattr(packed_copies, "_reads_slots", lambda *_: False)
    copied = compile_model(model, hw)
    for found in (again, copied):
        calls = [n.ir_node for n in found.dfg.calls if n.ir_node is not None and n.owner is None]
        assert sum(group.macs for group in found.bundle.groups) == sum(map(multiplications, calls))
    assert sum(g.macs for g in again.bundle.groups) == sum(g.macs for g in copied.bundle.groups)


def test_half_of_a_map_is_computed_again_in_fewer_cycles(monkeypatch):
    """One group after the other: in fused stacks both take about the cycles of the array."""
    model, hw, alone = (
        block(16, 8, (80, 80), first=32),
        load_hw("opu-1024a"),
        Options(cascades="never"),
    )
    again = compile_model(model, hw, alone)
    monkeypatch.setattr(packed_copies, "_reads_slots", lambda *_: False)
    copied = compile_model(model, hw, alone)
    cycles = [run_cycle(found.bundle, hw).counters["cycles"] for found in (again, copied)]
    assert cycles[0] < 0.97 * cycles[1]


@pytest.mark.parametrize(
    ("width", "inner", "slot", "px"), [(4, 4, 1, 4), (8, 4, 1, 2), (4, 8, 0, 2)]
)
def test_a_sum_with_half_of_a_map_is_computed_several_pixels_at_a_time(
    width, inner, slot, px, request, rng
):
    """The half is in a slot of its word that need not be the first one."""
    if px == 4:
        request.getfixturevalue("always")
    hw = four_pixel_machine()
    found = compile_model(block(width, inner, (9, 15)), hw)
    shape = shapes_of(found)["out"]
    assert shape.sides
    assert (shape.px, shape.spread, shape.out_slot) == (px, True, slot)
    assert_exact(found, hw, rng, (None, 1))


@pytest.mark.parametrize(("inner", "copied"), [(8, True), (64, False)])
def test_a_map_is_copied_where_the_timed_schedule_is_faster(inner, copied):
    """A convolution of 64 output channels keeps the array busy, one pixel at a time."""
    found = compile_model(block(16, inner, (40, 40), first=32), load_hw("opu-1024a"))
    assert (COPY in found.partition.rewrites) == copied
    assert (COPY in shapes_of(found)) == copied


_CHAIN = ("first", "in0", "out0", "in1", "out1")


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("size", [(5, 8), (6, 13), (1, 1), (3, 2)])
def test_sums_before_a_joined_one_have_several_pixels_in_a_word(size, rng):
    """The joined map is a copy, and the first convolution packs what it reads from whole words."""
    hw = four_pixel_machine()
    found = compile_model(sums(4, size), hw)
    shapes = shapes_of(found)
    assert [(shapes[name].px, shapes[name].spread) for name in _CHAIN] == [(4, False)] * 5
    assert (shapes["first"].repacks, shapes["sum1/packed"].stored_px) == (True, 1)
    assert_exact(found, hw, rng, (None, 1))


def test_sums_with_several_pixels_in_a_word_take_fewer_cycles(monkeypatch):
    model, hw = sums(16, (40, 40)), load_hw("opu-1024a")
    packed = compile_model(model, hw)
    assert "sum1/packed" in packed.partition.rewrites
    monkeypatch.setattr(packed_copies, "_joined_sums", lambda *_: ())
    whole = compile_model(model, hw)
    cycles = [run_cycle(found.bundle, hw).counters["cycles"] for found in (packed, whole)]
    assert cycles[0] < 0.8 * cycles[1]
