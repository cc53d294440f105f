"""Heads of an attention are arranged together: softmaxes next to the layer that has values."""

import pytest

from benchmarks.attention_networks import vit as vit_of
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule import co_scheduled_norms
from opu_fuse.schedule.emitted_units import planned_units
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.tile_schedule.shared_banks import shared_slots
from tests.exact import assert_batch_has_single_bits, assert_exact
from tests.hw.norm_machine import split_norm_machine
from tests.networks import attention_blocks as blocks
from tests.schedule.forced_pipelines import forced_pipelines
from tests.schedule.planned import co_scheduled, first_ranges

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

HEADS = blocks.transformer(24, 24, 3)
VIT = blocks.encoder_layer(197, 192, 3)


@pytest.fixture(scope="module")
def machine():
    return split_norm_machine()


@pytest.fixture(scope="module")
def found(machine):
    with forced_pipelines():
        return compile_model(HEADS, machine)


def test_values_are_computed_next_to_the_softmaxes(found):
    """The layer before the heads is split at its ranges of output channels."""
    ((source, first),) = first_ranges(found.plan).items()
    (layer,) = found.plan.layers[source]
    assert 0 < first < len(layer.ranges)
    together = [source]
    while together[-1] in co_scheduled(found.plan):
        together.append(co_scheduled(found.plan)[together[-1]])
    assert len(together) > 1
    assert all(found.plan.layers[norm][0].shape.passes for norm in together[1:])


def test_the_scores_of_a_head_come_between_two_ranges_of_that_layer(found):
    ((source, _),) = first_ranges(found.plan).items()
    norm = co_scheduled(found.plan)[source]
    order = [
        group
        for program in found.plan.segments
        if isinstance(program, MachineProgram)
        for x, group in zip(program.instructions, program.groups, strict=True)
        if x.engine is Engine.COMPUTE and group in {source, norm}
    ]
    scores = [at for at, group in enumerate(order) if group == norm]
    assert source in order[: scores[0]]
    assert source in order[scores[0] :]


def test_the_pieces_of_a_split_layer_are_those_of_the_whole_layer(found, machine):
    ((source, first),) = first_ranges(found.plan).items()
    units = [unit for units in planned_units(found.plan, machine) for unit in units]
    parts = [unit.layers[0] for unit in units if unit.groups[0] == source]
    (whole,) = found.plan.layers[source]
    assert [len(part.ranges) for part in parts] == [first, len(whole.ranges) - first]
    assert all(part.partial for part in parts)
    pieces = [(tile.out.block, tile.rect) for part in parts for tile in part.tiles]
    assert sorted(pieces) == sorted((tile.out.block, tile.rect) for tile in whole.tiles)


def test_banks_hold_every_tile_of_a_unit_once(found, machine):
    units = [unit for units in planned_units(found.plan, machine) for unit in units]
    words = machine.buffers.psum.bank_words
    for unit in [unit for unit in units if unit.interleaved]:
        slots = [*shared_slots(unit.layers, words)]
        held = [(layer.output, tile) for slot in slots for layer, tile, _ in slot]
        assert len(held) == len(set(held)) == sum(len(layer.tiles) for layer in unit.layers)
        assert all(sum(layer.shape.passes > 0 for layer, *_ in slot) <= 1 for slot in slots)


def test_heads_have_the_golden_models_bits_in_every_order(found, machine, rng):
    assert_exact(found, machine, rng, (None, 1, 2, 3))


def test_images_of_a_batch_have_the_bits_of_each(found, machine, rng):
    with forced_pipelines():
        together = compile_model(HEADS, machine, Options(batch=2))
    assert first_ranges(together.plan)
    assert_batch_has_single_bits(found, together, machine, rng)


def test_heads_that_cut_their_queries_out_of_one_map_are_arranged_together(machine, monkeypatch):
    """The last layer of a ViT reads the class token's queries only: a copy for each head."""
    found: list[int] = []

    def spy(units, attentions, _):
        found.extend(len(heads) for heads in attentions)
        return units

    monkeypatch.setattr(co_scheduled_norms, "with_pipelines", spy)
    compile_model(vit_of(size=32, patch=8, c=24, heads=3, depth=2), machine)
    assert found == [3, 3]


@pytest.fixture(scope="module")
def vit():
    return compile_model(VIT, load_hw("opu-1024a"))


def test_a_layer_of_vit_tiny_takes_a_fiftieth_less_than_with_partners_one_by_one(monkeypatch):
    """Where values are transposed after their layer, which is split."""
    hw = load_hw("opu-1024a")
    monkeypatch.setattr("opu_fuse.frontend.canonical.products.turned_heads", lambda *_: None)
    found = compile_model(VIT, hw)
    counters = run_cycle(found.bundle, hw).counters
    assert first_ranges(found.plan)
    monkeypatch.setattr(co_scheduled_norms, "with_pipelines", lambda units, *_: units)
    before = compile_model(VIT, hw)
    assert not first_ranges(before.plan)
    assert counters["cycles"] < 0.98 * run_cycle(before.bundle, hw).counters["cycles"]
    assert counters["work_compute"] > 0.95 * counters["cycles"]


def test_the_prediction_of_rows_of_tokens_is_near_the_cycle_engine(vit):
    cycles = run_cycle(vit.bundle, load_hw("opu-1024a")).counters["cycles"]
    assert sum(group.cycles for group in vit.bundle.groups) == pytest.approx(cycles, rel=0.01)
