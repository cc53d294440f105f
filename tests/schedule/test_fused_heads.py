"""The probabilities of an attention stay on chip between their softmax and the product."""

from dataclasses import replace as replace_fields
from itertools import pairwise

import pytest
from msgspec.structs import replace

from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule import head_pipelines
from opu_fuse.schedule.emitted_units import PlannedUnit, planned_units
from opu_fuse.schedule.fused_head_units import fused_heads
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.tile_schedule.fused_heads import LAG, feature_regions, head_runs, head_slots
from opu_fuse.tile_schedule.tiled_layer import psum_words
from tests.exact import assert_batch_has_single_bits, assert_exact
from tests.hw.norm_machine import norm_machine, split_norm_machine
from tests.networks import attention_blocks as blocks
from tests.schedule.forced_heads import forced_heads
from tests.schedule.planned import heads
from tests.schedule.test_fused_stacks import slow

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

CROSS = blocks.cross(40, heads=3)
SHARING = blocks.windows(3, 25, 24, 6)
MODELS = {
    "heads of one map": (blocks.transformer(24, 24, 3), 2),
    "heads of their own": (CROSS, 2),
    "windows": (blocks.windows(3, 25, 32, 4), 3),
    "windows of heads that share words": (SHARING, 2),
}


@pytest.fixture(scope="module")
def machine():
    return split_norm_machine()


@pytest.fixture(scope="module")
def cross(machine):
    return compile_model(CROSS, machine)


def fused(found, hw):
    """The only unit of fused heads of a program, the number of its heads, and its slots."""
    units = [unit for units in planned_units(found.plan, hw) for unit in units]
    (unit,) = [unit for unit in units if unit.heads]
    assert unit.heads is not None
    count = unit.heads.count
    return unit, count, [*head_slots(unit.layers, count, regions_of(unit, hw))]


def regions_of(unit, hw):
    regions = feature_regions(unit.layers, unit.heads.count, hw)
    assert regions is not None
    return regions


def instructions(found, engine):
    """(group, instruction) of an engine, in program order."""
    return [
        (group, x)
        for program in found.plan.segments
        if isinstance(program, MachineProgram)
        for x, group in zip(program.instructions, program.groups, strict=True)
        if x.engine is engine
    ]


@pytest.mark.parametrize("inside", [False, True], ids=["", "with transposes"])
@pytest.mark.parametrize("name", MODELS)
def test_fused_heads_have_the_golden_models_bits_in_every_order(name, inside, machine, rng):
    model, transposes = MODELS[name]
    with forced_heads(inside * transposes):
        found = compile_model(model, machine)
    unit, count, _ = fused(found, machine)
    assert len(unit.layers) == 2 * count + inside * transposes
    assert_exact(found, machine, rng, (None, 1, 2, 3))


def test_images_of_a_batch_have_the_bits_of_each(machine, rng):
    with forced_heads():
        found, together = (compile_model(CROSS, machine, Options(batch=n)) for n in (1, 2))
    assert heads(together.plan)
    assert_batch_has_single_bits(found, together, machine, rng)


def test_the_probabilities_are_neither_stored_nor_loaded_and_have_no_memory(cross, machine):
    unit, count, _ = fused(cross, machine)
    last = 2 * count
    scores, products = unit.groups[:last:2], unit.groups[1:last:2]
    assert not {group for group, _ in instructions(cross, Engine.STORE)} & {*scores}
    loads = [x.opcode for group, x in instructions(cross, Engine.LOAD) if group in products]
    assert set(loads) == {"weight", "param"}
    outputs = {layer.output for layer in unit.layers[:last:2]}
    assert not outputs & {*cross.plan.placements}


def test_what_is_shown_is_stored(machine, rng):
    found = compile_model(CROSS, machine, Options(reuse_memory=False))
    unit, *_ = fused(found, machine)
    assert {layer.output for layer in unit.layers} <= {*found.plan.placements}
    assert_exact(found, machine, rng)


def test_small_heads_take_one_feature_bank_and_large_ones_the_buffer(cross, machine):
    """The input of the next layer is loaded into the other bank."""
    model, transposes = MODELS["heads of one map"]
    with forced_heads(transposes):
        small = compile_model(model, machine)
    sizes = [regions_of(fused(found, machine)[0], machine).words for found in (small, cross)]
    assert sizes == [machine.buffers.feature.bank_words, machine.buffers.feature.words]


def test_post_writes_where_no_load_does(cross, machine):
    """Tiles of probabilities and banks of queries are disjoint."""
    unit, *_ = fused(cross, machine)
    regions = regions_of(unit, machine)
    kept = [x.post["keep_at"] for group, x in instructions(cross, Engine.POST) if x.post["keep"]]
    assert len({*kept}) >= LAG
    assert max(kept) < regions.banks.first
    loads = [
        x.params["dst"]
        for group, x in instructions(cross, Engine.LOAD)
        if group in unit.groups and x.opcode == "feature"
    ]
    assert loads
    assert min(loads) >= regions.banks.first


def test_a_bank_has_scores_and_the_product_of_two_steps_before(cross, machine):
    _, _, slots = fused(cross, machine)
    for slot in slots[LAG:-LAG]:
        scores, product = slot.tiles[:2]
        assert product.word == psum_words(scores.layer, scores.tile)
        assert scores.to
        assert product.source
        assert scores.to.bank == product.source.bank
    written = [slot.tiles[0].to for slot in slots[:-LAG]]
    read = [each.source for slot in slots for each in slot.tiles if each.source]
    assert read == written


def test_every_tile_runs_once(machine):
    with forced_heads(2):
        found = compile_model(CROSS, machine)
    unit, _, slots = fused(found, machine)
    run = [(each.layer.output, each.tile.rect) for slot in slots for each in slot.tiles]
    every = [(layer.output, tile.rect) for layer in unit.layers for tile in layer.tiles]
    assert sorted(run) == sorted(every)


def test_heads_of_windows_that_share_words_load_queries_and_values_once(machine):
    with forced_heads():
        found = compile_model(SHARING, machine)
    unit, count, _ = fused(found, machine)
    scores = unit.layers[: 2 * count : 2]
    tiles = len(scores[0].tiles)
    assert tiles > 1
    assert head_runs(scores) == [(0, 2), (2, 4)]
    loads = instructions(found, Engine.LOAD)
    queries = [group for group, x in loads if group in unit.groups and x.opcode == "feature"]
    assert len(queries) == 2 * tiles
    turned = [g.index for g in found.bundle.groups if [op.op for op in g.ops] == ["transpose"]]
    values = {group for group, x in loads if group in turned and x.opcode == "weight"}
    assert len(values) < len(turned) == 6


def test_probabilities_that_others_read_are_not_fused(cross, machine):
    scores, values, *_ = fused(cross, machine)[0].layers
    for readers in (1, 2):
        norm, product = (
            PlannedUnit(layers=(layer,), groups=(0,))
            for layer in (replace(scores, readers=readers), values)
        )
        unit = fused_heads([(norm, product)], [], scores.tile, machine)
        assert (unit is None) == (readers > 1)


def test_fused_heads_of_vit_tiny_save_a_fiftieth_behind_a_slow_memory(monkeypatch):
    hw = load_hw("opu-1024a")
    hw = replace_fields(hw, dram=replace_fields(hw.dram, bytes_per_cycle=16.0))
    model = blocks.encoder_layer(197, 192, 3)
    found = compile_model(model, hw)
    assert heads(found.plan)
    cycles = run_cycle(found.bundle, hw).counters["cycles"]
    predicted = sum(group.cycles for group in found.bundle.groups)
    assert predicted == pytest.approx(cycles, rel=0.03)
    monkeypatch.setattr(head_pipelines, "_fused", lambda *_: None)
    before = compile_model(model, hw)
    assert cycles < 0.98 * run_cycle(before.bundle, hw).counters["cycles"]


def test_the_next_layers_input_is_loaded_before_the_last_probabilities_are_written(rng):
    """They share a write port. The last head's block is not computed yet, the others are."""
    hw = slow(load_hw("opu-1024a"), 16)
    found = compile_model(blocks.encoder_layer(197, 192, 3), hw)
    units = [unit for units in planned_units(found.plan, hw) for unit in units]
    ((heads, reader),) = [(a, b) for a, b in pairwise(units) if a.heads]
    programs = [x for x in found.plan.segments if isinstance(x, MachineProgram)]
    order = [x for p in programs for x in zip(p.groups, p.instructions, strict=True)]
    own = [i for i, (group, _) in enumerate(order) if group in heads.groups]
    written = max(i for i in own if order[i][1].post and order[i][1].post.get("keep"))
    loads = [i for i, (g, x) in enumerate(order) if g in reader.groups and x.opcode == "feature"]
    assert sum(i < written for i in loads) == 2
    assert sum(written < i < max(own) for i in loads) == 0
    assert len(loads) > 2
    assert_exact(found, hw, rng, (None, 1))


def test_the_input_of_the_next_layer_waits_for_an_only_head(machine, rng):
    """None of its blocks is complete while the head runs, and its bank is taken nevertheless."""
    with forced_heads():
        found = compile_model(blocks.encoder_layer(24, 8, 1), machine)
    assert fused(found, machine)[1] == 1
    assert_exact(found, machine, rng, (None, 1))


def test_a_machine_that_cannot_keep_maps_fuses_no_heads(machine):
    hw = norm_machine()
    hw = replace_fields(hw, post=replace_fields(hw.post, keep=False))
    assert not heads(compile_model(CROSS, hw).plan)
