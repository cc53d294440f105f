"""Which cascades a chain is cut into: the best of all ways, as the closed form prices them."""

from collections import defaultdict
from itertools import combinations
from math import inf
from types import SimpleNamespace

import pytest

from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule import fused_stack_choice
from opu_fuse.schedule.fused_stack_choice import StackSearch
from opu_fuse.tile_schedule.fused_stack import FusedStack
from opu_fuse.tile_schedule.interleave import Order
from opu_fuse.zoo.builder import Net
from tests.schedule.test_fused_stacks import TINY, inverted, slow
from tests.some import some

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")
CYCLES_A_BYTE = 0.2
"""What a byte is worth, of the cycles that memory takes for it."""


def no_shorter_one(*_):
    """Layers of a half: too few for a cascade."""
    return 1


def chain_of(model, hw, monkeypatch):
    """The search in a network's first segment with a chain, and that chain."""
    given = []
    real = StackSearch.trials

    def noted(search, chain):
        given.append((search, chain))
        return real(search, chain)

    with monkeypatch.context() as patched:
        patched.setattr(StackSearch, "trials", noted)
        compile_model(model, hw, Options())
    return given[0]


def merits(search, chain):
    """(first, end) -> what these layers cost as a cascade in its best strips, or one alone."""
    dram, strips = search.hw.dram, search.strips
    price = CYCLES_A_BYTE / min(dram.bytes_per_cycle, dram.bus_bytes)
    works = [unit.layers[0] for unit in chain]
    single = [search.alone[w.output] + price * search.moved[w.output] for w in works]
    found = {(i, i + 1): cost for i, cost in enumerate(single)}
    for first, end in combinations(range(len(chain) + 1), 2):
        kept = all(unit.resident for unit in chain[first : end - 1])
        if end - first == 1 or kept:
            continue
        sized = (strips.size(works[first:end], *strip) for strip in fused_stack_choice.STRIPS)
        costs = [s.cycles + price * s.dram_bytes for s in sized if s is not None]
        if costs:
            found[first, end] = min(costs)
    return found


def cuts(end):
    """All ways to cut so many layers into stretches."""
    if not end:
        yield ()
    for first in range(end):
        yield from ((*before, (first, end)) for before in cuts(first))


def assert_best(search, chain):
    """That no other way to cut the chain costs less; the stretches proposed."""
    found = merits(search, chain)
    best = min(
        sum(found[stretch] for stretch in cut)
        for cut in cuts(len(chain))
        if all(stretch in found for stretch in cut)
    )
    found_by_it = search._proposed(chain, fused_stack_choice.LONGEST)
    proposed = [(at, at + len(s.layers)) for at, s in found_by_it]
    inside = {layer for first, end in proposed for layer in range(first, end)}
    single = [(i, i + 1) for i in range(len(chain)) if i not in inside]
    assert sum(found[stretch] for stretch in (*proposed, *single)) == pytest.approx(best)
    return proposed


@pytest.mark.parametrize("bytes_per_cycle", [1, 2, 4, 16])
@pytest.mark.parametrize("size", [(21, 17), (13, 11), (9, 7)])
def test_of_all_ways_to_cut_a_chain_the_best_is_proposed(bytes_per_cycle, size, monkeypatch):
    hw = slow(TINY, bytes_per_cycle)
    assert_best(*chain_of(inverted(size=size), hw, monkeypatch))


def test_a_cascade_may_go_through_maps_that_stay_on_chip_anyway(monkeypatch):
    """The last maps are small enough for that, the first ones are not."""
    net = Net("narrowing", seed=3)
    x = net.conv(net.input("x", (1, 8, 24, 20)), "wide", out=8, kernel=1)
    for name in ("half", "quarter"):
        x = net.conv(x, name, out=8, kernel=2, stride=2)
    x = net.conv(net.conv(x, "small", out=8, kernel=1), "last", out=8, kernel=1)
    search, chain = chain_of(net.finish(x), slow(TINY, 2), monkeypatch)
    assert [unit.resident is not None for unit in chain] == [False, False, True, True, False]
    assert assert_best(search, chain) == [(0, 5)]


def test_a_cascade_takes_the_place_of_its_layers_when_it_is_timed(monkeypatch):
    monkeypatch.setattr(fused_stack_choice, "ceil_div", no_shorter_one)
    search, chain = chain_of(inverted(), slow(TINY, 2), monkeypatch)
    outputs = [work.output for unit in search.units for work in unit.layers]
    timed = []

    def noted(units, *_):
        timed.append(units)
        return defaultdict(float)

    monkeypatch.setattr(fused_stack_choice, "cycles_by_layer", noted)
    tried = [*search.trials(chain)]
    assert len(timed) == len(tried) > 0
    for units in timed:
        near = [work.output for unit in units for work in unit.layers]
        first = outputs.index(near[0])
        assert near == outputs[first : first + len(near)]
        assert sum(unit.stack is not None for unit in units) == 1


def in_a_row(count):
    net = Net("row", seed=3)
    x = net.input("x", (1, 8, 24, 20))
    for number in range(count):
        x = net.conv(x, f"n{number}", out=8, kernel=1)
    return net.finish(x)


@pytest.mark.parametrize(
    ("first", "end", "timed", "counted"),
    [
        (0, 2, (0, 5), (0, 4)),  # nothing in front: it begins as the network does
        (2, 4, (0, 7), (0, 6)),
        (3, 5, (1, 8), (2, 7)),
        (8, 10, (6, 10), (7, 10)),  # and ends as it does
    ],
)
def test_what_a_cascade_saves_its_neighbours_is_counted_too(
    first, end, timed, counted, monkeypatch
):
    """By itself a layer takes 12 cycles, in the walk 10. The outermost layers of the walk begin
    with nothing loaded and end with stores that they do not wait for otherwise.
    """
    search, _ = chain_of(in_a_row(10), slow(TINY, 2), monkeypatch)
    outputs = [unit.layers[0].output for unit in search.units]

    def walked(near, *_):
        found = [work.output for unit in near for work in unit.layers]
        assert found == outputs[slice(*timed)]
        return dict.fromkeys(found, 10.0)

    monkeypatch.setattr(fused_stack_choice, "cycles_by_layer", walked)
    layers = tuple(unit.layers[0] for unit in search.units[first:end])
    stack = FusedStack(layers=layers, stored=(), line_buffers=(), load_rows=1, slots=())
    search.alone = dict.fromkeys(outputs, 12.0)
    found = search._saved(first, end - first, stack)
    count = counted[1] - counted[0]
    assert found == (2.0 * count, 12.0 * count)


@pytest.mark.parametrize(
    ("clocks", "timed"),
    [
        ((100, 120, 102, 101, 103, 200, 300, 400, 500), [100, 101, 102]),  # no more than three
        ((100, 120, 104, 102, 150, 200, 300, 400, 500), [100, 102]),
        ((100, 120, 104, 105, 150, 200, 300, 400, 500), []),  # nothing to choose from
    ],
)
def test_of_the_strips_near_the_fastest_the_walk_says_which(clocks, timed, monkeypatch):
    """The clock of each strip is given, the walk finds the second that it times the fastest. Behind
    a slow memory it times three.
    """
    search, _ = chain_of(inverted(), slow(TINY, 2), monkeypatch)
    strips = (*fused_stack_choice.STRIPS, *fused_stack_choice.TALL)
    clock, tried = dict(zip(strips, clocks, strict=True)), []

    def walked(units, _):
        tried.append(units[0].stack.cycles)
        return float(len(tried) != 2)

    def ordered(layers, rows, parts, limit=inf):
        cycles = clock[rows, parts]
        return SimpleNamespace(layers=layers, cycles=cycles) if cycles <= limit else None

    monkeypatch.setattr(search.strips, "size", lambda *_: SimpleNamespace(cycles=0.0, array=0.0))
    monkeypatch.setattr(search.strips, "ordered", ordered)
    monkeypatch.setattr(fused_stack_choice, "cycles", walked)
    search.strips.fastest.clear()
    works = [unit.layers[0] for unit in search.units]
    chosen = fused_stack_choice._timed(works, search.strips)
    assert tried == timed
    assert some(chosen).cycles == (timed[1] if timed else 100)


def test_what_is_not_near_the_fastest_is_given_up_and_nothing_else(monkeypatch):
    search, _ = chain_of(inverted(), slow(TINY, 2), monkeypatch)
    given_up, strips = 0, search.strips
    for first, end in combinations(range(len(search.units) + 1), 2):
        layers = [unit.layers[0] for unit in search.units[first:end]]
        found = fused_stack_choice._ordered(layers, strips)
        every = [strips.ordered(layers, *strip) for strip in fused_stack_choice.STRIPS]
        every = sorted((x for x in every if x is not None), key=lambda stack: stack.cycles)
        near = [x for x in every[:3] if x.cycles <= 1.03 * every[0].cycles]
        assert [stack for stack, _ in found][: len(near)] == near
        given_up += len(every) - len(found)
    assert given_up


def test_layers_like_others_before_are_cut_as_those(monkeypatch):
    """Which strips are best is asked once of layers that differ by nothing but their weights."""
    hw = slow(TINY, 2)
    search, _ = chain_of(inverted(), hw, monkeypatch)
    works, strips = [unit.layers[0] for unit in search.units[:2]], search.strips
    tried = []
    real = strips.ordered
    monkeypatch.setattr(strips, "ordered", lambda w, *s: tried.append(s) or real(w, *s))
    strips.fastest.clear()
    first = fused_stack_choice._timed(works, strips)
    count = len(tried)
    assert count > 1
    assert fused_stack_choice._timed(works, strips) == first
    assert len(tried) == count
    fused_stack_choice._timed(works[:1], strips)
    assert len(tried) > count


def test_strips_near_the_cycles_of_the_array_are_the_last_ones_tried(monkeypatch):
    search, _ = chain_of(inverted(), slow(TINY, 2), monkeypatch)
    tried = []

    def ordered(layers, rows, parts, limit=inf):
        tried.append((rows, parts))
        return SimpleNamespace(layers=layers, cycles=(110.0, 100.4)[len(tried) - 1])

    monkeypatch.setattr(search.strips, "size", lambda *_: SimpleNamespace(cycles=0.0, array=100.0))
    monkeypatch.setattr(search.strips, "ordered", ordered)
    found = fused_stack_choice._ordered([], search.strips)
    assert tried == [*fused_stack_choice.STRIPS[:2]]
    assert [stack.cycles for stack, _ in found] == [100.4, 110.0]


@pytest.mark.parametrize(("array", "tried"), [(0.98, 3), (0.995, 1)])
def test_of_a_stack_near_the_cycles_of_its_array_no_shorter_ones_are_tried(
    array, tried, monkeypatch
):
    search, chain = chain_of(inverted(), slow(TINY, 2), monkeypatch)
    works = [unit.layers[0] for unit in chain]
    alone = sum(search.alone[work.output] for work in works[:4])
    monkeypatch.setattr(
        search,
        "_proposed",
        lambda units, *_: [
            (
                at,
                SimpleNamespace(
                    layers=units[at : at + n],
                    shares_tables=False,
                    dram_bytes=0,
                    array=array * alone,
                ),
            )
            for at, n in ([(0, 4)] if len(units) > 4 else [(2, 2), (0, 2)])
        ],
    )
    monkeypatch.setattr(
        fused_stack_choice, "_timed", lambda w, *_: SimpleNamespace(layers=w, slots=())
    )
    monkeypatch.setattr(fused_stack_choice, "BYTES", 0.0)
    monkeypatch.setattr(fused_stack_choice, "SLOT_BYTES", 0)
    monkeypatch.setattr(search, "_saved", lambda *_: (0.001 * alone, 1.0))
    scored = []
    real = search._score
    monkeypatch.setattr(search, "_score", lambda *given: scored.append(1) or real(*given))
    search.idle = [0.0] * len(search.units)
    assert all(trial.chosen for trial in search.trials(chain))
    assert len(scored) == tried


@pytest.mark.parametrize(("gain_of_half", "taken"), [(90.0, [4]), (110.0, [2, 2])])
def test_two_shorter_cascades_are_taken_where_the_walk_says_that_they_are_better(
    gain_of_half, taken, monkeypatch
):
    """The long one gains 200 cycles."""
    search, chain = chain_of(inverted(), slow(TINY, 2), monkeypatch)

    def proposed(chain, longest, *_):
        works = [unit.layers[0] for unit in chain]
        cuts = [(0, 4)] if longest == fused_stack_choice.LONGEST else [(2, 4), (0, 2)]
        sized = [
            SimpleNamespace(layers=works[a:b], shares_tables=False, dram_bytes=0, array=1.0)
            for a, b in cuts
        ]
        return [(a, each) for (a, _), each in zip(cuts, sized, strict=True)]

    def gain(at, count, stack):
        return (200.0 if len(stack.layers) == 4 else gain_of_half), 1.0

    monkeypatch.setattr(fused_stack_choice, "BYTES", 0.0)
    monkeypatch.setattr(fused_stack_choice, "SLOT_BYTES", 0)
    search.idle = [0.0] * len(search.units)
    monkeypatch.setattr(search, "_proposed", proposed)
    monkeypatch.setattr(
        fused_stack_choice, "_timed", lambda w, *_: SimpleNamespace(layers=w, slots=())
    )
    monkeypatch.setattr(search, "_saved", gain)
    found = [w for w in search.trials(chain) if w.chosen]
    assert [len(w.fused.groups) for w in found] == taken


def test_what_finds_no_order_of_its_turns_is_no_cascade(monkeypatch):
    search, chain = chain_of(inverted(), slow(TINY, 2), monkeypatch)
    assert [*search.trials(chain)]
    search.strips.fastest.clear()
    monkeypatch.setattr(Order, "schedule", lambda *_: None)
    assert not [*search.trials(chain)]


def test_bytes_that_a_layer_moves_by_itself(monkeypatch):
    """Maps on chip are neither loaded nor stored."""
    net = Net("small", seed=3)
    x = net.input("x", (1, 8, 6, 5))
    for name in ("first", "second", "third"):
        x = net.conv(x, name, out=8, kernel=1)
    search, _ = chain_of(net.finish(x), TINY, monkeypatch)
    weights, image = 8 * 8, 6 * 5 * 8
    moved = [search.moved[unit.layers[0].output] for unit in search.units]
    assert moved == [image + weights, weights, weights + image]


@pytest.mark.parametrize(("more", "taken"), [(-0.1, False), (0.1, True)])
def test_a_cascade_is_taken_when_it_gains_more_than_the_timing_may_be_wrong_by(
    more, taken, monkeypatch
):
    """A turn takes 96 bytes of instructions, which the timing leaves out; a quarter of a percent of
    the cycles near it is what that may be wrong by. Other tiles could save idle cycles of its
    groups and of the next one.
    """
    monkeypatch.setattr(fused_stack_choice, "ceil_div", no_shorter_one)
    near, rate = 1000.0, 2
    search, chain = chain_of(inverted(), slow(TINY, rate), monkeypatch)
    monkeypatch.setattr(search, "_saved", lambda *_: (0.0, near))
    search.idle = [float(at + 1) for at in range(len(search.units))]
    tried = list(search.trials(chain))
    assert tried
    for at, found in enumerate(tried):
        stack, first = found.fused.stack, found.fused.groups[0]
        outputs = {work.output for work in stack.layers}
        alone = (u.layers[0] for u in search.units if u.layers[0].output in outputs)
        turns = len(stack.slots) - sum(len(work.tiles) for work in alone)
        saved_bytes = found.bytes_alone - found.bytes
        enough = 0.0025 * near + turns * 96 / rate - CYCLES_A_BYTE * saved_bytes / rate
        enough += sum(search.idle[first : first + len(found.fused.groups) + 1])
        monkeypatch.setattr(search, "_saved", lambda *_, gain=enough + more: (gain, near))
        assert list(search.trials(chain))[at].chosen == taken
