"""The fast engine, and the footprints, against docs/machine.md transcribed with loops."""

import numpy as np
import pytest

from opu_fuse.hw.isa.footprint import footprint
from opu_fuse.hw.isa.table import Engine
from opu_fuse.sim.functional.machine import Machine
from opu_fuse.units.base import Space
from opu_fuse.units.table import TABLE_WORDS
from rtl_sim.benches.graph_orders import REQUANT, orders_of
from tests.sim import random_instructions as rand
from tests.sim.machines import MACHINES, TINY
from tests.sim.naive import NaiveMachine

SPECS = {TINY.name: TINY, **MACHINES}
ORDERS = orders_of(MACHINES["full"])
MAKERS = {
    "transfer": rand.transfer,
    "conv": rand.conv,
    "copy": rand.copy,
    "depthwise": rand.depthwise,
    "unfold": rand.unfold,
}
KINDS = [
    (name, kind)
    for name, spec in SPECS.items()
    for kind in MAKERS
    if {"depthwise": spec.array.depthwise, "unfold": spec.buffers.image}.get(kind, True)
]


def machines(rng, spec):
    machine = Machine(spec, np.zeros(rand.WINDOW_BYTES, np.uint8))
    rand.random_words(rng, machine.memories)
    return machine, NaiveMachine(spec, machine.memories)


def assert_same(fast, slow):
    mem = fast.memories
    assert np.array_equal(mem.dram, slow.dram)
    for space, words in slow.words.items():
        assert np.array_equal(mem.buffer(space)[: len(words)], words), space


def assert_footprint(x, slow):
    """Every access lies in the footprint, and both ends of every interval are touched."""
    said = {}
    for access in footprint(x, slow.spec):
        assert access.space not in said, "a memory stands twice"
        said[access.space] = access
        words = {w for a, b in access.intervals for w in range(a, b)}
        real = slow.touched[access.space, access.write]
        if access.write:
            real = real | slow.touched[access.space, False]
        assert real <= words, (access.space, sorted(real - words)[:5])
        if access.space is Space.TABLE and not access.write:
            assert len(words) == TABLE_WORDS, "which entries are read depends on the data"
            continue
        for start, end in access.intervals:
            assert start in real, (access.space, start)
            assert end - 1 in real, (access.space, end)
        if access.space not in (Space.FEATURE, Space.PSUM, Space.RESIDUAL) or access.write:
            assert real == words, access.space
        pairs = zip(access.intervals, access.intervals[1:], strict=False)
        assert all(a[1] < b[0] for a, b in pairs), "not merged"
    for space, write in slow.touched:
        assert space in said, f"{space} is touched, the footprint says nothing"
        assert said[space].write or not write


@pytest.mark.parametrize(("name", "kind"), KINDS)
@pytest.mark.parametrize("round_", range(25))
def test_an_instruction_does_what_the_page_says(name, kind, round_, rng):
    spec = SPECS[name]
    fast, slow = machines(rng, spec)
    x = rand.until_fits(MAKERS[kind], rng, spec)
    fast.execute(x)
    slow.execute(x)
    assert_same(fast, slow)
    assert_footprint(x, slow)


@pytest.mark.parametrize("order", ORDERS.every, ids=lambda n: "-".join(ORDERS.names(n)) or "none")
def test_every_post_chain_does_what_the_page_says(order, rng):
    spec = MACHINES["odd" if rng.random() < 0.25 else "full"]
    fast, slow = machines(rng, spec)

    def make(rng, spec):
        return rand.post(rng, spec, order)

    x = rand.until_fits(make, rng, spec)
    fast.execute(x)
    slow.execute(x)
    assert_same(fast, slow)
    assert_footprint(x, slow)
    written = fast.memories.output
    assert x.engine is Engine.POST
    assert len(np.unique(written)) > 1


def requant_only(rng, spec):
    return rand.post(rng, spec, ORDERS.pack([REQUANT]))


@pytest.mark.parametrize("kind", ["conv", "depthwise", "post"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_sums_wrap_in_the_array_and_do_not_in_the_requantiser(kind, sign, rng):
    spec = MACHINES["full"]
    fast, _ = machines(rng, spec)
    mem = fast.memories
    mem.psum[:] = sign * ((1 << 31) - 1)
    mem.param.reshape(-1, 8)[:, :4] = np.array([sign * ((1 << 31) - 1)], "<i4").view(np.uint8)
    slow = NaiveMachine(spec, mem)
    x = rand.until_fits(MAKERS.get(kind, requant_only), rng, spec)
    if kind != "post":
        x = rand.instruction(x.engine, x.opcode, {**x.params, "accumulate": 1})
    fast.execute(x)
    slow.execute(x)
    assert_same(fast, slow)


def test_the_pre_chain_does_not_wrap_either(rng):
    """v·A + B has 34 bits."""
    spec = MACHINES["full"]
    fast, _ = machines(rng, spec)
    records = fast.memories.pre.reshape(-1, 8)
    records[:] = np.array([255, 255, 255, 127, 255, 127, 26, 0])
    records[::2] = np.array([0, 0, 0, 128, 0, 128, 26, 0])
    slow = NaiveMachine(spec, fast.memories)
    shape = {"in_rows": 4, "in_cols": 4, "row_pitch": 4, "out_rows": 4, "out_cols": 4}
    step = {"stride_y": 1, "stride_x": 1, "dilation_y": 1, "dilation_x": 1}
    one = {"kernel_rows": 1, "kernel_cols": 1, "ic_steps": 1, "oc_steps": 2, "slot_log2": 3}
    pre = {"pre": 1, "pre_lo": -128, "pre_hi": 127}
    x = rand.instruction(Engine.COMPUTE, "conv", shape | step | one | pre)
    fast.execute(x)
    slow.execute(x)
    assert_same(fast, slow)


@pytest.mark.parametrize(("rows", "row_pitch", "block_pitch"), [(3, 1, 2), (2, 10, 5), (3, 7, 0)])
def test_a_store_over_itself_leaves_the_last_word(rows, row_pitch, block_pitch, rng):
    fast, slow = machines(rng, TINY)
    shape = {"run": 4, "rows": rows, "blocks": 3}
    shape |= {"row_pitch": row_pitch, "block_pitch": block_pitch}
    x = rand.instruction(Engine.STORE, "store", shape)
    fast.execute(x)
    slow.execute(x)
    assert_same(fast, slow)
