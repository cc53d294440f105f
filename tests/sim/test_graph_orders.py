"""Instructions go the ways that the graph of their machine has, and no others."""

import pytest

from opu_fuse.hw.isa.legality import illegal
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw, spec_names
from opu_fuse.units.base import Stage
from rtl_sim.benches.graph_orders import orders_of
from tests.sim.random_instructions import instruction
from tests.tiers import by_night

TILE = ("in_rows", "in_cols", "out_rows", "out_cols", "blocks")
PIXEL = dict.fromkeys((*TILE, "win_rows", "win_cols", "stride_y", "stride_x"), 1)


LIKE_OTHERS = ("opu-1024", "opu-1024-lean", "opu-ulx3s")


@pytest.mark.parametrize("name", by_night(spec_names(), LIKE_OTHERS))
def test_exactly_the_orders_of_the_graph_are_legal(name):
    """All candidates, against ways through the graph that are walked edge by edge."""
    spec = load_hw(name)
    found = orders_of(spec)
    for order in found.candidates():
        change = {"order": order, "res_kind": int(found.is_product(order))}
        why = illegal(instruction(Engine.POST, "run", PIXEL | change), spec)
        if order in found.every and {Stage.NORM, Stage.POOL} <= {*found.kinds(order)}:
            assert why == "pools or spreads words, norm normalises whole pixels"
        elif order in found.every:
            assert why is None
        else:
            assert why is not None, f"{name} takes order {order:#x}"
            assert f"has order {order:#x}, which the graph of {name} has not: " in why


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (0xF, "unknown stage 15"),
        (0x201, "codes after its end"),
        (0x52, "compare does not lead to table"),
        (0x12, "compare does not lead to requant"),
        (0x11, "requant appears twice"),
        (0x46, "se and res_add share a unit, which a pass uses once"),
    ],
)
def test_why_an_order_is_none_names_machine_and_stage(order, why):
    x = instruction(Engine.POST, "run", PIXEL | {"order": order})
    expected = f"has order {order:#x}, which the graph of opu-light has not: {why}"
    assert illegal(x, load_hw("opu-light")) == expected


def test_a_few_ways_written_down():
    """What the walk itself finds on the smallest graph: add -> pool -> compare, pool passable."""
    found = orders_of(load_hw("opu-micro"))
    assert {found.names(order) for order in found.every} == {
        head + rest
        for head in ((), ("requant",))
        for rest in ((), ("pool",), ("compare",), ("pool", "compare"))
    }
