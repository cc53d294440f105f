"""Fused stacks in which layers read or write parts of a map: halves of a Split, parts of a Concat.
And equal tables, which layers share on chip.
"""

from dataclasses import replace

import pytest

from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule.fused_stack_choice import StackSearch
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.tile_schedule.slot_lines import LOAD
from opu_fuse.tile_schedule.stack_wiring import Port, Wiring, wiring
from opu_fuse.zoo.tokens import TokenNet
from tests.exact import assert_exact
from tests.hw.norm_machine import four_pixel_machine
from tests.networks.narrow_branches import block, sums
from tests.schedule.planned import stacks
from tests.schedule.test_fused_stacks import ORDERS, TOGETHER, names, slow

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")


def wide():
    return replace(load_hw("opu-1024a"), name="wide")


def loads(found, opcode):
    """Addresses in DRAM of all loads of a kind."""
    programs = [p for p in found.plan.segments if isinstance(p, MachineProgram)]
    return [
        (x.params["dram_hi"], x.params["dram_lo"])
        for program in programs
        for x in program.instructions
        if x.engine is Engine.LOAD and x.opcode == opcode
    ]


@pytest.mark.parametrize("size", [(21, 17), (9, 8), (3, 2), (1, 1)])
@pytest.mark.parametrize("model", [block, sums])
def test_blocks_with_branches_have_the_golden_models_bits_in_any_order(model, size, rng):
    given = (16, 8, size) if model is block else (16, size)
    found = compile_model(model(*given), wide(), TOGETHER)
    assert max(map(len, names(found))) >= 5, names(found)
    assert_exact(found, wide(), rng, ORDERS)


@pytest.mark.parametrize(("width", "inner"), [(4, 4), (8, 4), (16, 16)])
def test_narrow_machines_fuse_branches_too(width, inner, rng):
    hw = four_pixel_machine()
    found = compile_model(block(width, inner, (14, 9)), hw, TOGETHER)
    assert stacks(found.plan)
    assert_exact(found, hw, rng, ORDERS)


def test_only_what_is_added_is_stored():
    """The halves of a Split are loaded again where one is added; the sum is read on chip."""
    found = compile_model(block(16, 8, (20, 20)), wide(), TOGETHER)
    stack = max(stacks(found.plan), key=lambda each: len(each.groups))
    assert stack.stack
    stored = dict(
        zip(names(found)[stacks(found.plan).index(stack)], stack.stack.stored, strict=True)
    )
    assert stored["cut"]
    assert not stored["out"]
    hidden = {found.dfg[found.plan.layers[g][0].layer.output].value for g in found.plan.not_stored}
    tensors = {tensor.name for tensor in found.bundle.tensors}
    assert {"sum"} <= hidden
    assert not hidden & tensors
    assert "join" not in tensors, "it is not all in memory"
    assert {"split.0", "split.1"} <= tensors


def test_keep_tensors_stores_all_parts(rng):
    everything = replace(TOGETHER, reuse_memory=False)
    found = compile_model(block(16, 8, (20, 20)), wide(), everything)
    assert max(map(len, names(found))) >= 5
    assert not found.plan.not_stored
    assert_exact(found, wide(), rng)


def test_a_slow_memory_gets_blocks_of_one_stack_and_they_are_predicted():
    hw = slow(wide(), 16)
    model = block(16, 8, (80, 80), first=32)
    alone = compile_model(model, hw, Options(cascades="never"))
    found = compile_model(model, hw)
    assert max(map(len, names(found))) >= 5
    before, now = (run_cycle(c.bundle, hw).counters["cycles"] for c in (alone, found))
    assert now < 0.65 * before
    predicted = sum(group.cycles for group in found.bundle.groups)
    assert abs(predicted / now - 1) < 0.03


def swishes(count):
    """Swishes of layers, one after the other."""
    net = TokenNet("swishes", seed=5)
    x = net.input("x", (1, 16, 32, 32))
    for n in range(count):
        x = net.swish(net.conv(x, f"layer{n}", out=16, kernel=3, pads=1), f"swish{n}")
    return net.finish(x)


def test_equal_tables_are_loaded_once(rng):
    found = compile_model(swishes(4), wide(), Options(cascades="never"))
    functions = [parts[0].functions for parts in found.plan.layers.values()]
    assert len(functions) == 4
    assert len(set(functions)) < 4, "scales are powers of two"
    assert len(loads(found, "table")) == len(set(functions))
    assert_exact(found, wide(), rng)


def test_tables_that_exceed_their_buffer_are_loaded_again_in_a_stack(rng):
    options = replace(TOGETHER, scales="free")
    found = compile_model(swishes(4), wide(), options)
    assert [len(each.groups) for each in stacks(found.plan)] == [4]
    assert len({parts[0].functions for parts in found.plan.layers.values()}) == 4
    assert len(loads(found, "table")) > 4
    assert_exact(found, wide(), rng, ORDERS)


def scores(side):
    """The scores of a detector's map: five layers, of which four look up."""
    net = TokenNet("scores", seed=7)
    x = net.input("x", (1, 64, side, side))
    for n, (out, kernel, groups) in enumerate(((64, 3, 64), (80, 1, 1), (80, 3, 80), (80, 1, 1))):
        x = net.conv(x, f"c{n}", out=out, kernel=kernel, pads=kernel // 2, groups=groups)
        x = net.swish(x, f"s{n}")
    return net.finish(net.conv(x, "last", out=80, kernel=1))


def test_stacks_are_joined_where_the_closed_form_proposes_several(monkeypatch):
    hw, options = slow(wide(), 16), Options(scales="free")
    joined = compile_model(scores(40), hw, options)
    assert [len(each.groups) for each in stacks(joined.plan)] == [5]
    monkeypatch.setattr(StackSearch, "_joined", lambda _, __, trials: trials)
    proposed = compile_model(scores(40), hw, options)
    assert [len(each.groups) for each in stacks(proposed.plan)] != [5]
    counts = [run_cycle(found.bundle, hw).counters["cycles"] for found in (joined, proposed)]
    assert counts[0] < 0.9 * counts[1]


def test_a_table_is_loaded_about_once_for_each_strip():
    """Four tables of which two fit: the order of slots knows those on chip."""
    found = compile_model(scores(40), slow(wide(), 16), Options(scales="free"))
    layers = [layer for layer in layers_of(found) if layer.shape.tables]
    assert len({layer.functions for layer in layers}) == 4
    (stack,) = stacks(found.plan)
    assert stack.stack
    strips = sum(slot.layer == LOAD for slot in stack.stack.slots)
    assert len(loads(found, "table")) <= 4 * (strips + 1)


def layers_of(found):
    return [parts[0] for parts in found.plan.layers.values()]


def test_a_block_is_wired_by_its_channel_blocks():
    """The sum is in a word of its own after the halves of the Split."""
    found = compile_model(block(16, 16, (12, 12), first=32), wide(), Options(cascades="never"))
    layers = [layer for layer in layers_of(found) if layer.layer.name.split(" ")[0] != "before"]
    wires = wiring(layers, branches=True)
    assert wires is not None
    *_, last = wires.sources
    assert last.blocks == 2
    assert wires.maps[last.map].blocks == 2
    into = [port for port in wires.targets if port.map == last.map]
    assert sorted(into) == [Port(last.map, 0, 1), Port(last.map, 1, 1)]
    assert wiring(layers[1:], branches=True) is None, "a half of the Concat is computed before"
    assert wiring(layers[:-1], branches=True) is None, (
        "nothing reads the halves but the sum, from DRAM"
    )
    assert wiring(layers, branches=False) is None, "of a batch, and behind a fast memory"


def test_a_chain_is_wired_layer_by_layer():
    layers = layers_of(compile_model(swishes(3), wide(), Options(cascades="never")))
    first, second, third = (layer.reads.layout for layer in layers)
    ports = tuple(Port(n, 0, 1) for n in range(3))
    assert wiring(layers, branches=True) == Wiring((first, second, third), ports, ports[1:])
