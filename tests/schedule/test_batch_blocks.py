"""A batch in rounds: a few images at a time through layers whose maps stay on chip then."""

from dataclasses import replace

import pytest

from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule import batch_blocks
from opu_fuse.schedule.fused_stack_text import unit_lines
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.schedule.tile_trace import explain_tiles
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.zoo.builder import Net
from tests.exact import assert_exact
from tests.schedule.planned import in_blocks, stacks
from tests.schedule.test_fused_stacks import slow
from tests.tiers import by_night

LIGHT = load_hw("opu-light")
MACHINES = {hw.name: hw for hw in (load_hw("opu-tiny"), LIGHT, load_hw("opu-1024"))}
BATCH = Options(batch=4, cascades="never")


def separable(channels, size, residual=False):
    """Depthwise and pointwise layers in turn: the former are as long in memory as on the array."""
    net = Net("separable", seed=6)
    x = net.conv(net.input("x", (1, channels, *size)), "stem", out=channels, kernel=1)
    for name in ("a", "b"):
        y = net.conv(x, f"{name}.depth", out=channels, kernel=3, pads=1, groups=channels)
        y = net.conv(net.relu6(y, f"{name}.relu"), f"{name}.point", out=channels, kernel=1)
        x = net.add(y, x, f"{name}.sum") if residual else y
    return net.finish(net.conv(x, "last", out=channels, kernel=3, pads=1, stride=2))


def everything(_units, run, _hw):
    """Every layer of a run saves a cycle."""
    return {work.output: 1.0 for work in run.layers}, 0.0


def names(found):
    return [
        [found.plan.layers[g][0].layer.name.split(" ")[0] for g in one.groups]
        for one in in_blocks(found.plan)
    ]


def segment(found):
    (program,) = (s for s in found.plan.segments if isinstance(s, MachineProgram))
    return program


def test_images_take_turns_where_maps_stay_on_chip_then_and_that_is_faster(monkeypatch, rng):
    model, hw = separable(512, (14, 14)), slow(LIGHT, 16)
    found = compile_model(model, hw, BATCH)
    (chain,) = names(found)
    assert {"a.point", "b.depth", "b.point"} <= set(chain)
    (one,) = in_blocks(found.plan)
    inner = [g for g in one.groups if g in found.plan.not_stored]
    assert inner, "maps of a round are on chip only"
    steps = zip(segment(found).instructions, segment(found).groups, strict=True)
    turns = [g for x, g in steps if x.engine is Engine.COMPUTE and g in one.groups]
    starts = [n for n, (g, before) in enumerate(zip(turns[1:], turns, strict=False)) if g < before]
    assert len(starts) == 4 // one.images - 1, "a round is over before the next one begins"
    monkeypatch.setattr(batch_blocks, "RESOLUTION", 1.0)
    alone = compile_model(model, hw, BATCH)
    assert not in_blocks(alone.plan)
    now, before = (run_cycle(c.bundle, hw).counters for c in (found, alone))
    assert now["cycles"] < before["cycles"]
    assert now["dram_bytes_written"] < 0.7 * before["dram_bytes_written"]
    predicted = sum(group.cycles for group in found.bundle.groups)
    assert predicted == pytest.approx(now["cycles"], rel=0.03)
    assert_exact(found, hw, rng, (None, 1))


@pytest.mark.parametrize("residual", [False, True], ids=["chain", "sums"])
@pytest.mark.parametrize("batch", by_night([2, 3, 4], [2, 4]))
@pytest.mark.parametrize("name", MACHINES)
def test_rounds_have_the_same_bits_in_any_order(name, batch, residual, monkeypatch, rng):
    """Taken whatever they cost, of an odd size."""
    monkeypatch.setattr(batch_blocks, "_saved", everything)
    hw = MACHINES[name]
    model = separable(12, (7, 9), residual) if name == "opu-tiny" else separable(96, (25, 27))
    found = compile_model(model, hw, replace(BATCH, batch=batch))
    assert names(found), "no map fits"
    assert_exact(found, hw, rng, (None, 1, 2))


def test_a_map_of_rounds_that_is_read_again_as_a_whole_is_stored(monkeypatch, rng):
    """Of the last round it is on chip still, of those before it is not."""
    net = Net("twice", seed=6)
    x = net.conv(net.input("x", (1, 96, 25, 27)), "first", out=96, kernel=1)
    inside, behind = (net.conv(x, name, out=96, kernel=1) for name in ("inside", "behind"))
    model = net.finish(inside, behind=behind)

    def all_but_the_third(_units, run, _hw):
        return {w.output: 1.0 if n < 2 else -1.0 for n, w in enumerate(run.layers)}, 0.0

    monkeypatch.setattr(batch_blocks, "_saved", all_but_the_third)
    found = compile_model(model, LIGHT, BATCH)
    assert names(found) == [["first", "inside"]]
    assert not found.plan.not_stored
    assert_exact(found, LIGHT, rng, (None, 1))


def test_a_number_of_images_without_divisors_goes_one_by_one(monkeypatch):
    monkeypatch.setattr(batch_blocks, "_saved", everything)
    found = compile_model(separable(96, (25, 27)), LIGHT, replace(BATCH, batch=5))
    assert {one.images for one in in_blocks(found.plan)} == {1}


def test_a_single_image_has_none_nor_has_a_machine_that_keeps_no_map(monkeypatch):
    monkeypatch.setattr(batch_blocks, "_saved", everything)
    model = separable(96, (25, 27))
    assert not in_blocks(compile_model(model, LIGHT, replace(BATCH, batch=1)).plan)
    blind = replace(LIGHT, post=replace(LIGHT.post, keep=False))
    assert not in_blocks(compile_model(model, blind, BATCH).plan)


def test_what_reads_weights_for_long_is_left_out():
    """A dense layer at the end would load them for every round."""
    net = Net("dense", seed=6)
    x = net.conv(net.input("x", (1, 512, 14, 14)), "stem", out=512, kernel=1)
    x = net.conv(x, "depth", out=512, kernel=3, pads=1, groups=512)
    x = net.conv(x, "point", out=512, kernel=1)
    x = net.flatten(net.global_average_pool(x, "pool"), "flat")
    model, hw = net.finish(net.dense(x, "fc", out=1000)), slow(LIGHT, 16)
    found = compile_model(model, hw, BATCH)
    assert in_blocks(found.plan)
    assert all("fc" not in chain for chain in names(found))


def test_a_batch_has_no_cascades_where_rounds_of_more_layers_are_better(monkeypatch, rng):
    model, hw, auto = separable(192, (20, 20)), slow(LIGHT, 8), replace(BATCH, cascades="auto")
    found = compile_model(model, hw, auto)
    assert in_blocks(found.plan)
    assert not stacks(found.plan)
    lines = list(explain_tiles(found.dfg, found.partition, found.plan, hw, "a.depth"))
    assert lines[-1].endswith("; the batch is better without fused stacks")
    monkeypatch.setattr(batch_blocks, "_price", lambda *_: 0.0)
    mixed = compile_model(model, hw, auto)
    assert stacks(mixed.plan)
    cycles = [run_cycle(c.bundle, hw).counters["cycles"] for c in (found, mixed)]
    assert cycles[0] < cycles[1]
    assert_exact(found, hw, rng, (None, 1))


def test_rounds_are_told():
    hw = slow(LIGHT, 16)
    found = compile_model(separable(512, (14, 14)), hw, BATCH)
    (line,) = unit_lines(found.plan)
    assert line.startswith(f"{in_blocks(found.plan)[0].images} of 4 images at a time: ")
    lines = list(explain_tiles(found.dfg, found.partition, found.plan, hw, "b.depth"))
    assert lines[1].startswith("  taken for batch blocks ")
    assert f"  {line}" in lines
