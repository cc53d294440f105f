"""Tiles for slow memories: several cuts are timed, in equal chunks of input channels; a norm of a
sum may use whole buffers of post, so that its layer's weights are loaded for fewer tiles.
"""

from dataclasses import replace
from math import prod

import pytest
from msgspec.structs import replace as with_fields

from benchmarks.attention_networks import vit
from opu_fuse import pipeline
from opu_fuse.fuse.strategies.strategy_names import DEFAULT_STRATEGY
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model, fuse_and_tile
from opu_fuse.schedule import timed_tiles
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.schedule.timed_tiles import with_tiles_for_slow_memory
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.tile_schedule.scratchpad import Banks, Scratchpad, map_banks
from opu_fuse.tiling.candidates import choose_tile, equal_chunks
from opu_fuse.units.base import Space
from opu_fuse.zoo.builder import Net
from tests.exact import assert_exact
from tests.hw.norm_machine import norm_machine
from tests.networks import attention_blocks
from tests.networks.residual_streams import stream
from tests.schedule.single_layer import make_shape
from tests.schedule.test_fused_stacks import slow

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

ALONE = Options(cascades="never")


def few_words_of_post():
    """A machine with a norm whose banks of second operands and results hold half of the sums."""
    hw = norm_machine()
    buffers = hw.buffers
    halves = {
        name: replace(getattr(buffers, name), words=getattr(buffers, name).words // 2)
        for name in ("residual", "output")
    }
    return replace(hw, name="few-words", buffers=replace(buffers, **halves))


def loads(found, space):
    return [
        x
        for program in found.plan.segments
        if isinstance(program, MachineProgram)
        for x in program.instructions
        if x.engine is Engine.LOAD and x.opcode == space
    ]


def large_map():
    """A product whose input exceeds a feature bank, as the second one of an MLP."""
    net = Net("mlp", seed=3)
    x = net.input("x", (1, 384, 14, 14))
    y = net.relu(net.conv(x, "first", out=1536, kernel=1), "relu")
    return net.finish(net.add(net.conv(y, "second", out=384, kernel=1), x, "sum"))


def test_the_timed_tiles_are_faster_on_a_slow_memory(monkeypatch):
    model, hw = large_map(), slow(load_hw("opu-1024"), 16)
    timed = compile_model(model, hw, ALONE)
    monkeypatch.setattr(pipeline, "with_tiles_for_slow_memory", lambda tiling, *_, **__: tiling)
    untimed = compile_model(model, hw, ALONE)
    cycles = [run_cycle(x.bundle, hw).counters["cycles"] for x in (timed, untimed)]
    assert cycles[0] < 0.985 * cycles[1]


@pytest.mark.slow
def test_layers_next_to_units_are_timed_again(monkeypatch):
    """What a norm is computed with was not known before: its neighbours wait for other tiles."""
    model, hw = vit(64, 4, 192, 3, 3), slow(load_hw("opu-1024a"), 16)
    again = compile_model(model, hw)

    def once(tiling, hw, *, next_to_units=False):
        return tiling if next_to_units else with_tiles_for_slow_memory(tiling, hw)

    monkeypatch.setattr(pipeline, "with_tiles_for_slow_memory", once)
    cycles = [run_cycle(x.bundle, hw).counters["cycles"] for x in (again, compile_model(model, hw))]
    assert cycles[0] < 0.995 * cycles[1]


def test_a_memory_as_fast_as_its_bus_keeps_the_tiles_of_the_closed_form():
    hw = load_hw("opu-1024")
    tiling = fuse_and_tile(compile_model(large_map(), hw).dfg, hw, DEFAULT_STRATEGY).tiling
    assert with_tiles_for_slow_memory(tiling, hw) is tiling


def test_a_bank_holds_parts_of_a_size_of_their_own_behind_a_slow_memory():
    fast = load_hw("opu-1024")
    places, banks = (map_banks(hw)[Space.FEATURE] for hw in (slow(fast, 16), fast))
    for each in (places, banks):
        for key in ("a", "b", "c"):
            each.take(key, 600)
    assert [places.find(key) for key in ("a", "b", "c")] == [0, 600, 1200]
    assert banks.find("a") is None


def test_a_whole_bank_is_taken_for_a_map_of_all_rows_and_spares_the_last_part():
    hw = slow(load_hw("opu-1024"), 16)
    places = map_banks(hw)[Space.FEATURE]
    places.take("part", 600)
    assert places.take("map") == (hw.buffers.feature.bank_words, False)
    assert places.find("part") == 0


def test_a_layer_reads_parts_of_its_input_again_without_loading_them(monkeypatch):
    model, hw = large_map(), slow(load_hw("opu-1024"), 16)
    after = compile_model(model, hw, ALONE)
    monkeypatch.setattr("opu_fuse.tile_schedule.scratchpad.Places", Banks)
    before = compile_model(model, hw, ALONE)
    cycles = [run_cycle(x.bundle, hw).counters["cycles"] for x in (after, before)]
    assert cycles[0] < cycles[1]


def test_entries_on_a_grid_do_not_overlap_two_places():
    pad = Scratchpad(64, 2)
    pad.take("odd", 5)
    pad.grid = 10
    assert [pad.take(n, 10)[0] for n in range(4)] == [10, 20, 32, 42]


def test_chunks_of_input_channels_are_equal_and_no_more_than_asked_for():
    hw = load_hw("opu-1024")
    shape = make_shape(hw, channels=24 * 64, out_channels=64, rows=7, cols=7, kernel=(1, 1))
    tile = with_fields(choose_tile("", shape, hw)[0], in_blocks=20)
    assert [equal_chunks(shape, tile, hw, times).in_blocks for times in (1, 2, 99)] == [12, 6, 1]


@pytest.mark.parametrize(("channels", "size"), [(40, (5, 5)), (48, (1, 25)), (64, (4, 4))])
def test_a_norm_of_a_sum_in_whole_buffers_has_the_golden_models_bits(channels, size, rng):
    hw = few_words_of_post()
    found = compile_model(stream("sum for a norm", "layer_norm", channels, size), hw)
    assert any(p.tile.whole_post for (p, *_) in found.plan.layers.values())
    assert_exact(found, hw, rng, (None, 1, 2, 3))


def test_softmaxes_of_one_scale_load_their_exponentials_once(rng):
    hw = norm_machine()
    found = compile_model(attention_blocks.transformer(40, 24, 3), hw)
    softmaxes = [op for g in found.bundle.groups for op in g.ops if op.op == "softmax"]
    assert len(softmaxes) == 3
    assert len(loads(found, "norm")) == 1
    assert_exact(found, hw, rng, (None, 1))


@pytest.mark.parametrize(("channels", "rate"), [(32, 2), (32, 4), (64, 4)])
def test_attention_on_a_slow_memory_takes_the_cycles_that_are_predicted(channels, rate):
    """Loads of keys and values wait for the store of the layer that computes them: else the
    prediction of the last case would be 1.6 % too low.
    """
    hw = slow(norm_machine(), rate)
    found = compile_model(attention_blocks.transformer(50, channels, 2), hw)
    predicted = sum(group.cycles for group in found.bundle.groups)
    cycles = run_cycle(found.bundle, hw).counters["cycles"]
    assert predicted == pytest.approx(cycles, rel=0.01)


def test_a_first_layer_starts_with_small_parts_of_an_image_that_stays(monkeypatch):
    """The image of a ViT exceeds a feature bank. Its parts stay in both, so small tiles
    load neither image nor weights again, and the array waits less for the first.
    """
    hw = slow(load_hw("opu-1024a"), 16)
    net = Net("patches", seed=3)
    image = net.input("x", (1, 3, 232, 224))  # of other sizes its port packs patches
    model = net.finish(net.conv(image, "patches", out=384, kernel=16, stride=16))
    found = compile_model(model, hw)
    words = [prod(x.params[n] for n in ("run", "rows", "blocks")) for x in loads(found, "feature")]
    assert sum(words) == 224 * 224 * 4 // 64
    assert len(words) > 2
    monkeypatch.setattr(timed_tiles, "_with_kept_features", lambda *_: ())
    before = compile_model(model, hw)
    cycles = [run_cycle(x.bundle, hw).counters["cycles"] for x in (found, before)]
    assert cycles[0] < 0.98 * cycles[1]
