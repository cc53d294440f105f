"""Groups that leave the array idle run between the tiles of one that keeps it busy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opu_fuse.bundle.program import MachineSegment
from opu_fuse.dfg.build import build_dfg
from opu_fuse.fuse.coschedule import find_co_scheduled
from opu_fuse.fuse.group_order import execution_order, producers
from opu_fuse.fuse.strategies.registry import partition
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.layout.data_layout import lay_out
from opu_fuse.pipeline import compile_model
from opu_fuse.schedule import tile_choice
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.schedule.segment_order import UnitGroups, segment_of
from opu_fuse.schedule.tile_choice import Tiling, members
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.tiling.estimate import Estimate
from opu_fuse.zoo.builder import Net
from tests.dfg import canonical
from tests.exact import assert_exact
from tests.fuse.reading import machine
from tests.schedule.planned import co_scheduled
from tests.written import written


def branches(channels, size=30):
    """A convolution of several tiles and a pool, both on the result of the first convolution."""
    net = Net("branches", seed=3)
    x = net.conv(net.input("x", (1, channels, size, size)), "stem", out=channels, kernel=3, pads=1)
    wide = net.conv(x, "wide", out=2 * channels, kernel=3, pads=1)
    pooled = net.max_pool(x, "pool", kernel=3, stride=1, pads=1)
    narrow = net.conv(pooled, "narrow", out=channels, kernel=1)
    return net.finish(net.concat([wide, narrow], "joined"))


@pytest.mark.parametrize(("name", "channels"), [("opu-micro", 24), ("opu-1024", 72)])
def test_a_pool_on_its_own_is_hidden_behind_a_convolution(name, channels, monkeypatch):
    hw, model = load_hw(name), branches(channels)
    together = compile_model(model, hw)
    (segment,) = together.bundle.segments
    assert isinstance(segment, MachineSegment)
    groups = {g.name: g.index for g in together.bundle.groups}
    runs = {name: np.flatnonzero(np.equal(segment.groups, groups[name])) for name in groups}
    wide, pool = runs["wide"], runs["pool"]
    assert wide[0] < pool[0] <= pool[-1] < wide[-1]
    assert len(together.bundle.groups[groups["wide"]].instructions) > 1
    monkeypatch.setattr(tile_choice, "find_co_scheduled", lambda *_: {})
    alone = compile_model(model, hw)
    cycles = [run_cycle(c.bundle, hw) for c in (alone, together)]
    before, now = (result.counters["cycles"] for result in cycles)
    in_turn = {g.index: g.cycles for g in cycles[0].groups}
    cost = in_turn[{g.name: g.index for g in alone.bundle.groups}["pool"]]
    assert before - now > cost / 3, (
        f"{before} cycles in turn, {now} together; the pool takes {cost}"
    )


@pytest.mark.parametrize("name", ["opu-tiny", "opu-light", "opu-micro"])
def test_together_they_give_the_bits_that_they_give_alone(name, rng):
    hw = load_hw(name)
    found = compile_model(branches(24), hw)
    assert co_scheduled(found.plan)
    for result in assert_exact(found, hw, rng, (None, 1, 2, 3)):
        assert not result.masks


def test_two_tiles_are_enough_for_something_to_come_between_them():
    plan = compile_model(branches(4, 10), load_hw("opu-tiny")).plan
    groups = {parts[0].layer.name: group for group, parts in plan.layers.items()}
    assert plan.layers[groups["wide"]][0].pieces == 2
    assert co_scheduled(plan) == {groups["wide"]: groups["pool"]}


def test_tiles_of_the_one_are_spread_evenly_between_those_of_the_other():
    found = compile_model(branches(4, 16), load_hw("opu-tiny"))
    ((wide, pool),) = co_scheduled(found.plan).items()
    assert [found.plan.layers[group][0].pieces for group in (wide, pool)] == [4, 9]
    (program,) = (s for s in found.plan.segments if isinstance(s, MachineProgram))
    steps = zip(program.instructions, program.groups, strict=True)
    tiles = [g for x, g in steps if x.engine is Engine.POST and g in {wide, pool}]
    assert tiles == [wide, *3 * [*3 * [pool], wide]]


def test_nothing_comes_between_the_tiles_of_a_group_that_has_one():
    found = compile_model(branches(32, 4), load_hw("opu-1024"))
    names = {parts[0].layer.name: parts[0].pieces for parts in found.plan.layers.values()}
    assert names["wide"] == 1
    assert not co_scheduled(found.plan)


PHASES = """<ir_version: 10, opset_import: ["" : 17]> g
    (float[1,24,30,30] x) => (float[1,24,60,60] y, float[1,24,30,30] p)
    <float[24,24,1,1] s, float[24,24,2,2] w>
    { stem = Conv(x, s)  y = ConvTranspose<strides=[2,2]>(stem, w)
      p = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(stem) }"""


def test_nothing_comes_between_the_tiles_of_a_group_in_phases():
    hw = load_hw("opu-micro")
    found = compile_model(written(PHASES, seed=3), hw)
    assert [len(parts) for parts in found.plan.layers.values()] == [1, 4, 1]
    assert all(parts[0].pieces > 1 for parts in found.plan.layers.values())
    assert not co_scheduled(found.plan)


def test_a_chain_has_no_companions():
    net = Net("chain", seed=3)
    x = net.conv(net.input("x", (1, 24, 30, 30)), "first", out=24, kernel=3, pads=1)
    x = net.max_pool(
        net.max_pool(x, "pool", kernel=3, stride=1, pads=1), "again", kernel=2, stride=2
    )
    found = compile_model(
        net.finish(net.conv(x, "last", out=48, kernel=3, pads=1)), load_hw("opu-tiny")
    )
    assert any(not parts[0].layer.shape.array for parts in found.plan.layers.values())
    assert not co_scheduled(found.plan)


@st.composite
def graphs(draw):
    """(text, cycles of every operator): operators with cycles keep the array busy."""
    values, lines = ["x"], []
    for i in range(draw(st.integers(2, 12))):
        a, b = (draw(st.sampled_from(values)) for _ in range(2))
        lines.append(f"[n{i}] v{i} = " + (f"Relu({a})" if a == b else f"Add({a}, {b})"))
        values.append(f"v{i}")
    outputs = ", ".join(f"float[1,4,2,2] {v}" for v in values[1:])
    text = f"g (float[1,4,2,2] x) => ({outputs}) {{ {' '.join(lines)} }}"
    return text, draw(st.lists(st.integers(0, 3), min_size=12, max_size=12))


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_companions_never_wait_for_each_other(drawn):
    text, cycles = drawn
    dfg = build_dfg(canonical.canonical(text))
    hw = machine("opu-tiny")
    found = partition(dfg, hw, strategy="none")
    nodes = {g.index: {m.node for m in g.matches} for g in found.groups}
    costs = {
        group: Estimate(compute_cycles=n, post_cycles=0, dram_bytes=0, total_cycles=n)
        for group, n in zip(sorted(nodes), cycles, strict=False)
    }
    idle, busy = ({g: c for g, c in costs.items() if (c.compute_cycles > 0) == b} for b in (0, 1))
    order = [s.group for s in execution_order(dfg, found) if s.group is not None]
    fillers = find_co_scheduled(dfg, members(found), order, idle, busy, hw)
    assert fillers.keys() <= busy.keys()
    assert set(fillers.values()) <= idle.keys()
    assert len(set(fillers.values())) == len(fillers)
    before = reads(dfg)
    for ours, theirs in fillers.items():
        assert not any(n in before[m] or m in before[n] for n in nodes[ours] for m in nodes[theirs])
    units = segment_of(tuple(order), nodes)
    layout = lay_out(dfg, members(found), (), hw)
    tiling = Tiling(layers={}, order=(units,), layout=layout, constants_bytes=0)
    tiling = tiling.with_units(UnitGroups(groups=pair) for pair in fillers.items())
    assert co_scheduled(tiling) == fillers
    done = set()
    for group in (group for unit in tiling.units for group in unit.groups):
        assert all(set(producers(dfg, n)) <= done for n in nodes[group])
        done |= nodes[group]
    assert sum(map(len, nodes.values())) == len(done), "a step was lost"


def reads(dfg):
    """Call -> every call that it waits for."""
    found = {}
    for node in dfg.calls:
        direct = producers(dfg, node.index)
        found[node.index] = set(direct).union(*(found[p] for p in direct))
    return found
