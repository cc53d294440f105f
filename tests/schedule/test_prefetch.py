"""Loads come in an order in which nothing waits behind what has to wait."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.tile_schedule.input_region import Part, blocks_in_time, late_blocks
from opu_fuse.tile_schedule.scratchpad import Scratchpad
from opu_fuse.tile_schedule.tiled_layer import LayerTile
from opu_fuse.tiling.tile import Rect
from opu_fuse.zoo.builder import Net
from tests.exact import assert_exact

HW = load_hw("opu-1024")
SHUFFLES = (None, 1)


def test_small_things_lie_beside_each_other_and_the_oldest_go_first():
    """Two banks of ten words, by hand."""
    places = Scratchpad(words=20, banks=2)
    assert places.take("a", 3) == (0, False)
    assert places.take("b", 3) == (3, False)
    assert places.take("c", 8) == (10, False), "no place runs over the end of a bank"
    assert places.take("d", 4) == (6, False)
    assert places.take("a", 3) == (0, True)
    assert places.take("e", 9) == (10, False), "c is older than a, b and d"
    assert places.take("f", 7) == (3, False), "b and d, not a"
    assert places.take("a", 3) == (0, True)
    assert places.take("c", 8) == (10, False)


def test_room_beside_a_layers_own_weights():
    places = Scratchpad(words=20, banks=2)
    for key, words in (("ours", 6), ("mine", 6)):
        places.take(key, words)
    assert places.fits_without_evicting(["ours", "mine"], 4)
    assert not places.fits_without_evicting(["ours", "mine"], 5)
    assert places.fits_without_evicting(["mine"], 5)
    assert not places.fits_without_evicting(["ours", "mine", "not there yet"], 4), (
        "that needs room, too"
    )


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 12)), min_size=1, max_size=40),
)
def test_what_is_taken_leaves_what_was_taken_before_it(banks, drawn):
    """So that one is loaded while the other is used, whatever their sizes are."""
    sizes = dict(drawn)
    places = Scratchpad(words=12 * (banks + 1), banks=banks + 1)
    memory, before = {}, None
    for key, _ in drawn:
        first, held = places.take(key, sizes[key])
        words = range(first, first + sizes[key])
        assert first >= 0, key
        assert words[-1] < 12 * (banks + 1), key
        assert held == (all(memory.get(word) == key for word in words)), key
        memory = {word: there for word, there in memory.items() if there != key}
        memory |= dict.fromkeys(words, key)
        if before is not None:
            assert Counter(memory.values())[before] == sizes[before], f"{key} took from {before}"
        before = key


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), min_size=1, max_size=80),
)
def test_the_lowest_place_that_was_used_longest_ago_is_taken(banks, drawn):
    """Against all places, one after the other: a bank begins, or something ends, there."""
    sizes = dict(drawn)
    places, there, used = Scratchpad(words=12 * banks, banks=banks), {}, {}
    for time, (key, _) in enumerate(drawn):
        words = sizes[key]
        first, held = places.take(key, words)
        assert held == (key in there)
        if not held:
            starts = {*range(0, 12 * banks, 12), *(at + sizes[k] for k, at in there.items())}
            lost = {
                at: [k for k, f in there.items() if f < at + words and at < f + sizes[k]]
                for at in sorted(starts)
                if at < 12 * banks and at % 12 + words <= 12
            }
            assert first == min(lost, key=lambda at: max((used[k] for k in lost[at]), default=-1))
            there = {k: at for k, at in there.items() if k not in lost[first]} | {key: first}
        used[key] = time


def work(home: int, block: int = 0) -> Any:
    """What `late_blocks` asks of a layer."""
    storage = SimpleNamespace(alias_root=home, block=block, layout=SimpleNamespace(rows=9))
    shape, phase = SimpleNamespace(permute=None, upsample=(1, 1)), SimpleNamespace(stride=(1, 1))
    return SimpleNamespace(reads=storage, writes=storage, shape=shape, phase=phase)


@pytest.mark.parametrize(
    ("of", "rows", "late", "first"),
    [
        (work(7), (0, 9), (3, 1), [(0, 3), (4, 1)]),
        (work(7, block=2), (0, 9), (1, 1), [(0, 1), (2, 3)]),
        (work(7), (0, 4), (5, 0), [(0, 5)]),
        (work(8), (0, 9), (5, 0), [(0, 5)]),
        (work(7, block=4), (0, 9), (5, 0), [(0, 5)]),
    ],
    ids=["block 3", "seen from block 2 on", "other rows", "another map", "blocks behind it"],
)
def test_of_five_blocks_the_one_made_last_comes_last(of: Any, rows, late, first):
    written: Any = SimpleNamespace(block=3, blocks=1)
    unused: Any = None
    made = work(7), LayerTile(written, Rect(4, 5, 0, 9), unused)
    part = Part(source=1, blocks=(0, 5), rows=rows, words=(0, 9))
    assert late_blocks(made, of, part) == late
    assert list(blocks_in_time(part, late)) == first


def loads(found):
    """(name of the group, opcode) of all loads."""
    (program,) = (s for s in found.plan.segments if isinstance(s, MachineProgram))
    steps = zip(program.instructions, program.groups, strict=True)
    names = {g: parts[0].layer.name.split(" ")[0] for g, parts in found.plan.layers.items()}
    return [(names[g], x.opcode) for x, g in steps if x.engine is Engine.LOAD]


def dense(growth=64):
    """Each layer reads all that those before have made."""
    net = Net("dense", seed=3)
    x = net.conv(net.input("x", (1, 64, 7, 7)), "stem", out=128, kernel=1)
    for name in ("first", "second"):
        y = net.relu(net.conv(x, f"{name}.narrow", out=128, kernel=1), f"{name}.relu")
        y = net.conv(y, f"{name}.wide", out=growth, kernel=3, pads=1)
        x = net.concat([x, y], f"{name}.both")
    return net.finish(net.conv(x, "last", out=64, kernel=1))


def test_a_map_that_grows_is_loaded_but_for_the_last_piece_while_that_is_made(rng):
    found = compile_model(dense(), HW, Options())
    order = [opcode for name, opcode in loads(found) if name == "second.narrow"]
    assert order[:3] == ["weight", "feature", "feature"], order
    assert_exact(found, HW, rng, SHUFFLES)


def residual(stride):
    net = Net("residual", seed=4)
    x = net.relu(net.conv(net.input("x", (1, 64, 14, 14)), "stem", out=64, kernel=3, pads=1), "r")
    y = net.conv(x, "one", out=64, kernel=3, stride=stride, pads=1)
    y = net.conv(net.relu(y, "one.relu"), "two", out=64, kernel=3, pads=1)
    x = net.conv(x, "beside", out=64, kernel=1, stride=stride) if stride > 1 else x
    y = net.relu(net.add(y, x, "sum"), "sum.relu")
    return net.finish(net.conv(y, "last", out=64, kernel=3, pads=1))


def test_weights_of_the_next_layer_do_not_wait_behind_the_last_residual(rng):
    found = compile_model(residual(1), HW, Options())
    order = loads(found)
    last = max(n for n, load in enumerate(order) if load == ("two", "residual"))
    assert order.index(("last", "weight")) < last, order
    assert_exact(found, HW, rng, SHUFFLES)


def test_what_comes_between_a_map_and_its_reader_comes_before_it(rng):
    """ "one" stays on chip for "two", which adds what "beside" makes."""
    found = compile_model(residual(2), HW, Options())
    names = {g: parts[0].layer.name.split(" ")[0] for g, parts in found.plan.layers.items()}
    (program,) = (s for s in found.plan.segments if isinstance(s, MachineProgram))
    order = list(dict.fromkeys(names[g] for g in program.groups if g in names))
    assert order == ["stem", "beside", "one", "two", "last"]
    assert "one" in {names[g] for g in found.plan.resident_groups}
    assert_exact(found, HW, rng, SHUFFLES)


def test_a_machine_that_keeps_no_map_leaves_the_models_order():
    hw = load_hw("opu-classic")
    found = compile_model(residual(2), hw, Options())
    names = {g: parts[0].layer.name.split(" ")[0] for g, parts in found.plan.layers.items()}
    (program,) = (s for s in found.plan.segments if isinstance(s, MachineProgram))
    order = list(dict.fromkeys(names[g] for g in program.groups if g in names))
    assert order.index("one") < order.index("beside")


def test_the_same_bits_whatever_lies_where():
    x = np.random.default_rng(7)
    for growth in (24, 32, 96):
        assert_exact(compile_model(dense(growth), HW, Options()), HW, x, SHUFFLES)
