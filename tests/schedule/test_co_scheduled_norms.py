"""Layers that keep the array busy share banks of partial sums with a product and its softmax."""

import numpy as np
import pytest
from msgspec.structs import replace

from opu_fuse import pipeline
from opu_fuse.dfg.build import build_dfg
from opu_fuse.fuse.partition import members
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule import co_scheduled_norms, head_pipelines
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.tiling.candidates import choose_tile
from opu_fuse.tiling.shared_banks import due, shared_tiles
from opu_fuse.timing import segment_cycles
from tests.exact import assert_batch_has_single_bits, assert_exact
from tests.hw.norm_machine import norm_machine, split_norm_machine
from tests.networks import attention_blocks as blocks
from tests.schedule.planned import co_scheduled
from tests.schedule.single_layer import make_shape

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

HEADS = blocks.cross(40, heads=3)
WINDOWS = blocks.windows(3, 25, 64, 4)


@pytest.fixture(scope="module")
def machine():
    return norm_machine()


@pytest.fixture(scope="module")
def found(machine):
    """Heads that are not fused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head_pipelines, "_fused", lambda *_: None)
        return compile_model(HEADS, machine)


def operators(found):
    """Group -> its operators."""
    return {g.index: [op.op for op in g.ops] for g in found.bundle.groups}


def test_the_product_with_values_is_computed_next_to_the_softmax_of_the_next_head(found):
    nodes, dfg = members(found.partition), found.dfg
    pairs = co_scheduled(found.plan).items()
    assert len(pairs) == 2
    for product, norm in pairs:
        assert [dfg[n].op for n in nodes[product]] == ["matmul"]
        assert [dfg[n].op for n in nodes[norm]] == ["matmul", "softmax"]


def test_together_they_give_the_golden_models_bits_in_every_order(found, machine, rng):
    assert_exact(found, machine, rng, (None, 1, 2, 3))


def test_both_are_in_one_bank_which_post_reads_when_the_array_leaves_it(found, machine):
    """Of each bank the array computes all tiles before post reads the first of them."""
    product, norm = next(iter(co_scheduled(found.plan).items()))
    steps = [
        (group, x)
        for program in found.plan.segments
        if isinstance(program, MachineProgram)
        for x, group in zip(program.instructions, program.groups, strict=True)
        if group in {product, norm} and x.engine in {Engine.COMPUTE, Engine.POST}
    ]
    half = machine.buffers.psum.bank_words
    computed: list[tuple[int, int]] = []
    shared = 0
    for group, x in steps:
        if x.engine is Engine.COMPUTE:
            computed.append((group, x.compute["psum"] // half))
            continue
        assert len({bank for _, bank in computed}) <= 1
        shared += len({group for group, _ in computed}) == 2
        computed = []
    assert shared >= 2


def test_a_pair_is_faster_than_its_groups_one_after_the_other(found, machine, monkeypatch):
    monkeypatch.setattr(pipeline, "with_co_scheduled_norms", lambda _, __, tiling, ___: tiling)
    alone = compile_model(HEADS, machine)
    assert not co_scheduled(alone.plan)
    before, now = (run_cycle(c.bundle, machine).counters["cycles"] for c in (alone, found))
    assert now < 0.97 * before


def test_the_prediction_of_pairs_is_near_the_cycle_engine(found, machine):
    cycles = run_cycle(found.bundle, machine).counters["cycles"]
    assert sum(group.cycles for group in found.bundle.groups) == pytest.approx(cycles, rel=0.05)


def test_heads_alike_are_timed_once(machine, monkeypatch):
    """Units that differ in the names of their maps only take the same cycles."""
    model, timed = blocks.cross(40, heads=9), []

    def counted(units, hw, cycles=segment_cycles.cycles):
        timed.append(cycles(units, hw))
        return timed[-1]

    monkeypatch.setattr(segment_cycles, "cycles", counted)
    once = compile_model(model, machine)
    few = len(timed)
    monkeypatch.setattr(segment_cycles, "_up_to_names", lambda _: object())
    each = compile_model(model, machine)
    assert np.array_equal(once.bundle.words, each.bundle.words)
    assert few < 0.6 * (len(timed) - few)


def test_what_reads_a_norm_last_leaves_it_the_layers_after(machine, rng, monkeypatch):
    model = blocks.classified(120)
    found = compile_model(model, machine)
    assert co_scheduled(found.plan)
    assert_exact(found, machine, rng, (None, 1))
    monkeypatch.setattr(co_scheduled_norms, "_last_readers_last", lambda units, *_: [*units])
    before = compile_model(model, machine)
    assert not co_scheduled(before.plan)
    cycles = [run_cycle(c.bundle, machine).counters["cycles"] for c in (found, before)]
    assert cycles[0] < cycles[1]


def test_what_reads_norms_last_may_run_next_to_a_later_norm(rng, monkeypatch):
    hw, model = split_norm_machine(), blocks.distances("split")
    alone = compile_model(model, hw)
    monkeypatch.setattr(co_scheduled_norms, "RESOLUTION", -9.0)  # slower units are taken, too
    found = compile_model(model, hw)
    assert not _sums_next_to_norms(alone)
    assert _sums_next_to_norms(found)
    assert_exact(found, hw, rng, (None, 1, 2))


def _sums_next_to_norms(found):
    """Convolutions of joined bins that run next to a softmax."""
    nodes, dfg = members(found.partition), found.dfg
    names = {dfg[node].name for group in co_scheduled(found.plan) for node in nodes[group]}
    return [name for name in names if name.endswith("sides")]


def test_images_of_a_batch_have_the_bits_of_each(machine, rng):
    model = blocks.cross(100, heads=3)
    found, together = (compile_model(model, machine, Options(batch=n)) for n in (1, 2))
    assert co_scheduled(together.plan)
    assert_batch_has_single_bits(found, together, machine, rng)


def test_tiles_of_other_layers_come_late_rather_than_early():
    assert [due(slot, 3, 5) for slot in range(1, 6)] == [0, 1, 1, 2, 3]
    assert [due(slot, 7, 3) for slot in range(1, 4)] == [2, 4, 7]


def test_a_machine_without_norms_keeps_its_tiling(machine):
    hw = load_hw("opu-tiny")
    model = blocks.transformer(13, 8, 1, between="Relu")
    fitted = pipeline.fuse_and_tile(build_dfg(pipeline.prepare(model).canonical), hw, "matched")
    assert pipeline.with_co_scheduled_norms(fitted.dfg, fitted.partition, fitted.tiling, hw) is (
        fitted.tiling
    )


def tiled_norm(hw, *, keys, queries):
    """A Softmax of the scores of queries, and its tile by the closed form."""
    scores = make_shape(hw, channels=64, out_channels=keys, rows=1, cols=queries, kernel=(1, 1))
    norm = replace(scores, passes=2, param_words=16)
    return norm, choose_tile("", norm, hw)[0]


def test_tiles_of_few_keys_fit_the_output_banks():
    """1500 queries of 9 keys: a bank of partial sums holds more pixels than one of results."""
    hw = load_hw("opu-1024a")
    norm, tile = tiled_norm(hw, keys=9, queries=1500)
    other = make_shape(hw, channels=512, out_channels=64, rows=1, cols=1500, kernel=(1, 1))
    found = shared_tiles((norm, tile), (), other, hw)
    assert found
    assert all(own.cols <= hw.buffers.output.bank_words for own, _ in found)


def test_tiles_next_to_a_norm_have_no_rows_of_few_pixels():
    """Each row of a tile is a burst of the memory."""
    hw = load_hw("opu-1024a")
    norm, tile = tiled_norm(hw, keys=16, queries=400)
    other = make_shape(hw, channels=80, out_channels=80, rows=40, cols=40, kernel=(1, 1))
    assert all(added.cols >= 8 for _, added in shared_tiles((norm, tile), (), other, hw))


@pytest.fixture(scope="module")
def windows():
    return compile_model(WINDOWS, load_hw("opu-1024a"))


def test_a_softmax_runs_before_the_values_of_the_head_before(monkeypatch):
    hw = load_hw("opu-1024a")
    monkeypatch.setattr(co_scheduled_norms, "with_pipelines", lambda units, *_: units)
    windows = compile_model(WINDOWS, hw)
    names = ["+".join(names) for names in operators(windows).values()]
    softmaxes = [i for i, name in enumerate(names) if name.endswith("softmax")]
    assert softmaxes[1] < names.index("matmul")
    monkeypatch.setattr(co_scheduled_norms, "_norms_first", lambda units, *_: units)
    before = compile_model(WINDOWS, hw)
    cycles = [run_cycle(c.bundle, hw).counters["cycles"] for c in (windows, before)]
    assert cycles[0] < cycles[1]


def test_a_tile_holds_several_rows_of_products_of_which_each_has_its_own_weights(windows, rng):
    layers = [layer for parts in windows.plan.layers.values() for layer in parts]
    products = [layer for layer in layers if layer.shape.computed]
    assert all(layer.shape.images == 3 for layer in products)
    assert max(layer.tile.images for layer in products) > 1
    assert_exact(windows, load_hw("opu-1024a"), rng, (None, 1, 2))


def test_the_prediction_of_tiles_of_several_rows_is_near_the_cycle_engine(windows):
    cycles = run_cycle(windows.bundle, load_hw("opu-1024a")).counters["cycles"]
    assert sum(group.cycles for group in windows.bundle.groups) == pytest.approx(cycles, rel=0.05)
