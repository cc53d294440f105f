"""The order of the slots of a fused stack: legal, nearly the fastest, found in linear time."""

from itertools import pairwise
from math import inf

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.tile_schedule import interleave
from opu_fuse.tile_schedule.interleave import Order
from opu_fuse.tile_schedule.slot_lines import LOAD
from opu_fuse.zoo.builder import Net
from tests.schedule.planned import stacks
from tests.schedule.test_fused_stacks import TINY, inverted, slow
from tests.some import some

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")


def orders(model, hw, monkeypatch):
    """The searches that a compilation starts, as (arguments, slots, cycles)."""
    found = []
    real = Order.schedule

    def noted(order, limit=inf):
        result = real(order, limit)
        if result is not None:
            found.append((order, *result))
        return result

    with monkeypatch.context() as patched:
        patched.setattr(Order, "schedule", noted)
        compile_model(model, hw, Options())
    return found


def residual(side):
    """An expansion, which post bounds, and a projection, which the array bounds."""
    net = Net("residual", seed=5)
    x = net.input("x", (1, 16, side, side))
    y = net.relu6(net.conv(x, "expand", out=64, kernel=1), "expand.relu")
    y = net.conv(y, "depth", out=64, kernel=3, pads=1, groups=64)
    return net.finish(net.conv(net.relu6(y, "depth.relu"), "project", out=16, kernel=1))


def test_every_slot_has_its_input_and_room_for_its_rows(monkeypatch):
    found = orders(inverted(), slow(TINY, 2), monkeypatch)
    assert found
    for order, slots, _ in found:
        done = dict.fromkeys(range(LOAD, len(order.lines) - 1), 0)
        for slot in slots:
            assert slot.number == done[slot.layer]
            assert all(done[n] >= slots for n, slots in (*slot.needs, *slot.frees))
            done[slot.layer] += 1
        assert [*done.values()] == [len(line.post) for line in order.lines]


def test_orders_are_nearly_as_fast_as_the_best_one(monkeypatch):
    """Of stacks so short that very many orders can be kept."""
    found = orders(mobile_block(), load_hw("opu-1024a"), monkeypatch)
    monkeypatch.setattr(interleave, "BEAM", 500)
    monkeypatch.setattr(interleave, "KEPT", 1 << 20)
    for order, _, cycles in sorted(found, key=lambda each: len(each[1]))[:3]:
        found_best = order.schedule()
        assert found_best is not None
        assert cycles <= 1.03 * found_best[1]


def test_a_limit_changes_no_order_and_ends_the_search_for_slower_ones(monkeypatch):
    steps = []
    for order, *_ in orders(inverted(), slow(TINY, 2), monkeypatch):
        slots, cycles = order.schedule()
        assert order.schedule(cycles) == (slots, cycles)
        with monkeypatch.context() as patched:
            real = Order._after
            patched.setattr(Order, "_after", lambda *x, real=real: steps.append(1) or real(*x))
            assert order.schedule(0.8 * cycles) is None
            assert len(steps) < len(slots) * interleave.BEAM
        steps.clear()


def test_of_many_slots_fewer_orders_are_kept(monkeypatch):
    """The time of the search grows with the slots, not faster."""
    steps = []
    real = Order._after
    monkeypatch.setattr(Order, "_after", lambda order, step: steps.append(1) or real(order, step))
    monkeypatch.setattr(interleave, "KEPT", 64)
    for order, slots, _ in orders(residual(40), slow(TINY, 2), monkeypatch):
        steps.clear()
        order.schedule()
        assert len(steps) <= max(64, 2 * len(slots))


def test_array_and_post_work_at_the_same_time():
    """The expansion keeps post busy, the projection the array: if they alternate, both are."""
    hw = load_hw("opu-1024a")
    found = compile_model(mobile_block(), hw)
    (stack,) = stacks(found.plan)
    turns = [slot.layer for slot in some(stack.stack).slots if slot.layer != LOAD]
    assert sum(a != b for a, b in pairwise(turns)) > 0.8 * len(turns)
    array = sum(parts[0].estimate.compute_cycles for parts in found.plan.layers.values())
    assert run_cycle(found.bundle, hw).counters["cycles"] < 1.15 * array


def mobile_block():
    """The first block of MobileViT-S."""
    net = Net("block", seed=5)
    x = net.input("x", (1, 16, 128, 128))
    y = net.relu(net.conv(x, "expand", out=64, kernel=1), "expand.relu")
    y = net.conv(y, "depth", out=64, kernel=3, pads=1, groups=64)
    return net.finish(net.conv(net.relu(y, "depth.relu"), "project", out=32, kernel=1))
