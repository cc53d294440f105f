"""Layers computed together, a few rows at a time: the same bits, in any order; inner maps never in
memory; chosen where that is better.
"""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opu_fuse.errors import InternalError
from opu_fuse.hw.dram_layout import Layout
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.layout.shape import Shape, Window
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule import fused_stack_choice, fused_stacks
from opu_fuse.schedule.fused_stack_text import unit_lines
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.schedule.proofs import prove_no_race
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.tile_schedule import stack_wiring
from opu_fuse.tile_schedule.line_buffers import line_buffer, reach
from opu_fuse.zoo.builder import Net
from tests.exact import assert_exact
from tests.schedule.mutants import without_tokens
from tests.schedule.planned import stacks
from tests.schedule.test_residency import chains
from tests.some import some
from tests.tiers import by_night

TINY = load_hw("opu-tiny")
LIGHT = load_hw("opu-light")
MACHINES = {hw.name: hw for hw in (TINY, LIGHT, load_hw("opu-1024"))}
TOGETHER = Options(cascades="always")
ORDERS = (None, 1, 2)


def slow(hw, bytes_per_cycle):
    return replace(hw, dram=replace(hw.dram, bytes_per_cycle=bytes_per_cycle))


def inverted(channels=12, size=(21, 17), wide=40):
    """Two inverted residual blocks behind a stem, on a map of odd size; a max pool in the end."""
    net = Net("inverted", seed=5)
    x = net.input("x", (1, 3, 2 * size[0] - 1, 2 * size[1]))
    x = net.relu6(net.conv(x, "stem", out=channels, kernel=3, stride=2, pads=1), "stem.relu")
    for name, stride in (("same", 1), ("half", 2)):
        y = net.relu6(net.conv(x, f"{name}.expand", out=wide, kernel=1), f"{name}.expand.relu")
        y = net.conv(y, f"{name}.depth", out=wide, kernel=3, stride=stride, pads=1, groups=wide)
        y = net.conv(net.relu6(y, f"{name}.depth.relu"), f"{name}.project", out=channels, kernel=1)
        x = net.add(y, x, f"{name}.sum") if stride == 1 else y
    x = net.conv(x, "skewed", out=channels, kernel=(2, 3), pads=(0, 2, 1, 0))
    return net.finish(net.max_pool(net.relu(x, "skewed.relu"), "pool", kernel=3, stride=2, pads=1))


def compiled(model, hw, options=TOGETHER):
    found = compile_model(model, hw, options)
    (program,) = (s for s in found.plan.segments if isinstance(s, MachineProgram))
    return found, program


def names(found):
    return [
        [found.plan.layers[g][0].layer.name.split(" ")[0] for g in together.groups]
        for together in stacks(found.plan)
    ]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("name", MACHINES)
def test_layers_together_have_the_same_bits_in_any_order(name, scales, batch, rng):
    model = inverted(6, (9, 7), 14) if name == "opu-tiny" else inverted()
    options = replace(TOGETHER, scales=scales, batch=batch)
    found, program = compiled(model, MACHINES[name], options)
    assert max(map(len, names(found))) >= (2 if name == "opu-tiny" else 6), names(found)
    groups = {g for together in stacks(found.plan) for g in together.groups}
    turns = [g for g in program.groups if g in groups]
    assert sum(a > b for a, b in pairwise(turns)) > 2, "they take no turns"
    assert any(r.again for t in stacks(found.plan) for r in some(t.stack).line_buffers), (
        "no ring turns over"
    )
    tiles = [found.plan.layers[g][0].tile for t in stacks(found.plan) for g in t.groups]
    assert tiles == [work.tile for t in stacks(found.plan) for work in some(t.stack).layers]
    assert_exact(found, MACHINES[name], rng, ORDERS)


def test_inner_maps_are_never_in_memory():
    model = inverted(size=(56, 56))
    alone, _ = compiled(model, LIGHT, Options(cascades="never"))
    found, program = compiled(model, LIGHT)
    inner = {g for together in stacks(found.plan) for g in together.groups[:-1]}
    read_beside = {"stem"}  # added two layers later
    hidden = {found.plan.layers[g][0].layer.name.split(" ")[0] for g in found.plan.not_stored}
    chosen = {found.plan.layers[g][0].layer.name.split(" ")[0] for g in inner}
    assert hidden == chosen - read_beside
    steps = zip(program.instructions, program.groups, strict=True)
    assert not {g for x, g in steps if x.engine is Engine.STORE} & found.plan.not_stored
    moved = [
        sum(run_cycle(c.bundle, LIGHT).counters[f"dram_bytes_{way}"] for way in ("read", "written"))
        for c in (alone, found)
    ]
    assert moved[1] < 0.9 * moved[0]


@pytest.mark.parametrize("batch", [1, 3])
def test_constants_of_a_cascade_are_loaded_once(batch):
    found, program = compiled(inverted(), LIGHT, replace(TOGETHER, batch=batch))
    inside = {g for together in stacks(found.plan) for g in together.groups}
    steps = zip(program.instructions, program.groups, strict=True)
    loads = [x for x, g in steps if g in inside and x.opcode in {"weight", "param", "table"}]
    assert len(loads) >= 2 * len(inside), "every layer has weights, and parameters of channels"
    places = Counter((x.opcode, x.params["dram_hi"], x.params["dram_lo"]) for x in loads)
    assert set(places.values()) == {1}


def test_keep_tensors_stores_all_of_them(rng):
    everything, _ = compiled(inverted(), LIGHT, Options(cascades="always", reuse_memory=False))
    assert stacks(everything.plan)
    assert not everything.plan.not_stored
    assert_exact(everything, LIGHT, rng)


@pytest.mark.parametrize("batch", by_night([1, 4], [4]))
@pytest.mark.parametrize(("bytes_per_cycle", "off"), [(16, 0.04), (8, 0.12)])
def test_where_memory_is_slow_they_are_chosen_and_predicted(bytes_per_cycle, off, batch):
    """Beside an eighth of the bus stores hold up more than the prediction says."""
    model = inverted(16, (56, 56), 96)
    hw = slow(LIGHT, bytes_per_cycle)
    alone, _ = compiled(model, hw, Options(cascades="never", batch=batch))
    found, _ = compiled(model, hw, Options(batch=batch))
    assert stacks(found.plan)
    assert all(trial.chosen for trial in found.plan.stack_trials)
    before, now = (run_cycle(c.bundle, hw).counters["cycles"] for c in (alone, found))
    assert now < 0.7 * before, f"{before} cycles alone, {now} together"
    predicted = sum(group.cycles for group in found.bundle.groups)
    assert abs(predicted / now - 1) < off


def test_the_images_of_a_batch_follow_each_other_without_a_gap():
    """The first layers are at work on the next image while the last ones end this one."""
    model, hw = inverted(16, (56, 56), 96), slow(LIGHT, 16)
    one, four = (compiled(model, hw, Options(batch=n))[0] for n in (1, 4))
    (together,) = stacks(four.plan)
    first = [turn.number for turn in some(together.stack).slots if turn.layer == 0]
    tiles = len(first) // 4
    order = [(turn.layer, turn.number) for turn in some(together.stack).slots]
    last = len(together.groups) - 1
    ends = [number for layer, number in order if layer == last]
    behind = order.index((last, ends[len(ends) // 4 - 1]))
    assert order.index((0, tiles)) < behind, "the second image begins when the first is done"
    cycles = [run_cycle(c.bundle, hw).counters["cycles"] for c in (one, four)]
    assert cycles[1] < 3.9 * cycles[0], cycles


def test_each_cascade_is_told_with_its_own_figures():
    found, _ = compiled(inverted(), slow(TINY, 1), Options())
    plan = found.plan
    tried = {trial.fused.groups: trial for trial in plan.stack_trials}
    lines = list(unit_lines(plan))
    assert len(lines) > 1
    for line, together in zip(lines, stacks(plan), strict=True):
        own = tried[together.groups]
        assert line.endswith(
            f"{own.cycles:,} cycles and {own.bytes:,} bytes, "
            f"one after the other {own.cycles_alone:,} and {own.bytes_alone:,}"
        )


def test_a_cascade_that_gains_nothing_is_not_taken():
    """All maps stay on chip anyway."""
    net = Net("small", seed=3)
    x = net.conv(net.input("x", (1, 64, 8, 8)), "first", out=64, kernel=3, pads=1)
    x = net.conv(x, "second", out=64, kernel=3, pads=1)
    found, _ = compiled(net.finish(net.conv(x, "third", out=64, kernel=1)), LIGHT, Options())
    assert not stacks(found.plan)


def test_a_cascade_that_would_be_slower_is_told_and_not_taken(monkeypatch):
    monkeypatch.setattr(fused_stack_choice.StackSearch, "_saved", lambda *_: (-1e9, 1.0))
    found, _ = compiled(inverted(), slow(TINY, 2), Options())
    assert found.plan.stack_trials
    assert not stacks(found.plan)


def joined(net, x):
    """What the last one reads lies in a map of two."""
    a = net.conv(x, "a", out=16, kernel=1)
    return net.conv(net.concat([a, x], "both"), "last", out=8, kernel=3, pads=1)


def upsampled(net, x):
    x = net.upsample(net.conv(x, "first", out=8, kernel=1), "up", scale=2)
    return net.conv(x, "last", out=8, kernel=1)


def large_weights(net, x):
    x = net.conv(x, "first", out=512, kernel=1)
    return net.conv(x, "last", out=256, kernel=1)


def large_weights_behind_two(net, x):
    return large_weights(net, net.conv(x, "zeroth", out=16, kernel=1))


def added_in_front(net, x):
    """Its rows are added to results of rows that lie far above."""
    first = net.conv(x, "first", out=8, kernel=1)
    y = net.conv(first, "second", out=8, kernel=(5, 1), pads=(4, 0, 0, 0))
    y = net.conv(y, "third", out=8, kernel=(5, 1), pads=(0, 0, 4, 0))
    return net.add(y, first, "sum")


def two(net, x):
    return net.conv(net.conv(x, "first", out=8, kernel=3, pads=1), "last", out=8, kernel=3)


def beside_a_pool(net, x):
    """The pool runs between the tiles of "wide", so neither of them takes turns with others."""
    x = net.conv(x, "stem", out=16, kernel=3, pads=1)
    wide = net.conv(x, "wide", out=64, kernel=3, pads=1)
    pool = net.max_pool(x, "pool", kernel=3, stride=1, pads=1)
    return net.conv(net.concat([wide, pool], "joined"), "last", out=8, kernel=1)


CASES = {
    "two layers": (two, LIGHT, [["first", "last"]]),
    "a layer with a companion": (beside_a_pool, LIGHT, []),
    "a joined map": (joined, LIGHT, []),
    "rows stored twice": (upsampled, LIGHT, []),
    "weights larger than their buffer": (large_weights, LIGHT, []),
    "weights larger than their buffer, behind two layers": (
        large_weights_behind_two, LIGHT, [["zeroth", "first"]],
    ),
    "a machine that keeps no map": (
        added_in_front, replace(LIGHT, post=replace(LIGHT.post, keep=False)), [],
    ),
    "an operand made in the same cascade": (
        added_in_front, LIGHT, [["first", "second", "third"]],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("build", "hw", "expected"), CASES.values(), ids=CASES)
def test_what_cannot_be_computed_together(build, hw, expected, rng):
    net = Net("case", seed=3)
    model = net.finish(build(net, net.input("x", (1, 16, 40, 30))))
    found = compile_model(model, hw, TOGETHER)
    assert names(found) == expected
    assert_exact(found, hw, rng, ORDERS[:2])


def test_a_row_whose_blocks_of_channels_come_one_after_the_other(rng):
    """The bank of partial sums holds 64 words, a row of 34 columns has 68."""
    net = Net("deep", seed=3)
    x = net.conv(net.input("x", (1, 8, 9, 34)), "first", out=16, kernel=1)
    model = net.finish(net.conv(x, "deep", out=16, kernel=(2, 1), groups=2))
    found = compile_model(model, TINY, TOGETHER)
    assert names(found) == [["first", "deep"]]
    assert_exact(found, TINY, rng, ORDERS[:2])


@pytest.mark.parametrize(("rows", "strips"), [(16, 1), (17, 2), (33, 4), (200, 8)])
def test_a_map_of_very_many_rows_has_wider_strips(rows, strips, monkeypatch):
    """A row at a time would be some instructions a group for every one of them."""
    monkeypatch.setattr(fused_stacks, "_MOST_STRIPS", 16)
    net = Net("column", seed=3)
    x = net.input("x", (1, 8, 2 * rows + 1, 3))
    x = net.conv(net.conv(x, "first", out=8, kernel=(2, 1)), "second", out=8, kernel=1)
    x = net.conv(x, "last", out=8, kernel=(2, 1), stride=2)
    found = compile_model(net.finish(x), LIGHT, TOGETHER)
    (together,) = stacks(found.plan)
    assert [work.tile.rows for work in some(together.stack).layers][-1] == strips


def test_rows_that_are_too_far_apart_for_the_register_do_not_turn(monkeypatch):
    net = Net("pitch", seed=3)
    model = net.finish(two(net, net.input("x", (1, 16, 40, 30))))
    found = compile_model(model, LIGHT, TOGETHER)
    (together,) = stacks(found.plan)
    layout = some(together.stack).layers[1].reads.layout
    furthest = layout.blocks * layout.row_words
    for highest, expected in ((furthest, 1), (furthest - 1, 0)):
        monkeypatch.setattr(stack_wiring, "_ROW_PITCH", SimpleNamespace(highest=highest))
        assert len(stacks(compile_model(model, LIGHT, TOGETHER).plan)) == expected


@given(chains())
@settings(max_examples=10, deadline=None)
def test_any_chain_is_exact_in_any_order(drawn):
    model, name = drawn
    hw = MACHINES.get(name, TINY)
    assert_exact(compile_model(model, hw, TOGETHER), hw, np.random.default_rng(0), ORDERS[:2])


def test_every_token_of_a_cascade_is_needed():
    _, program = compiled(inverted(6, (9, 7), 14), TINY)
    for mutant in without_tokens(program.instructions):
        with pytest.raises(InternalError, match="race proof"):
            prove_no_race(mutant, TINY)


@st.composite
def windows(draw):
    kernel, stride = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    top, bottom = draw(st.integers(0, kernel - 1)), draw(st.integers(0, kernel - 1))
    rows = draw(st.integers(max(1, kernel - top - bottom), 30))
    window = Window(kernel=(kernel, 1), strides=(stride, 1), pads=(top, 0, bottom, 0))
    out = (rows + top + bottom - kernel) // stride + 1
    return rows, out, window, draw(st.integers(1, out)), draw(st.integers(1, rows))


@given(windows(), st.integers(0, 3), st.integers(1, 3))
def test_rows_that_are_read_together_follow_each_other_in_a_ring(drawn, ahead, images):
    """Written in order, never further than the tile that is read next allows."""
    rows, out, window, tile_rows, made = drawn
    shape = Shape(
        array=True, in_channels=1, in_rows=rows, in_cols=1, slot=8, window=window, groups=1,
        pre_pool_channels=1, pre_pool_rows=out, pre_pool_cols=1, pool=None, out_rows=out,
        out_cols=1, images=images,
    )  # fmt: skip
    layout = Layout(channels=1, rows=images * rows, cols=1, word=8, lanes=8, slot=8)
    found = line_buffer(layout, shape, tile_rows, made, ahead)
    assert found.words <= max(layout.words, 1), "the whole map would take less"
    memory, written = {}, 0
    spans = reach(shape, tile_rows)
    read = [(n * rows + row, count) for n in range(images) for row, count in spans]
    for number, (first, count) in enumerate(read):
        ends = [sum(span) for span in read[: number + 1 + ahead]]
        while written < ends[-1]:
            here = min(made, rows - written % rows)
            if (
                found.sequence_number(written + here - 1) - found.sequence_number(first)
                >= found.rows
            ):
                break
            for at, n, word in found.written(written, here):
                memory |= {word + i: written + at + i for i in range(n)}
            written += here
        held = [memory[found.word(first) + i] for i in range(count)]
        assert held == list(range(first, first + count))
