"""The fast engine, and the footprints, against docs/machine.md transcribed with loops."""

import numpy as np
import pytest

from opu_fuse.hw.footprint import footprint
from opu_fuse.hw.isa import Engine, Space, Stage
from opu_fuse.hw.load import load_hw
from opu_fuse.sim.functional import Machine
from tests.sim import random_instructions as rand
from tests.sim.naive import NaiveMachine

SPEC = load_hw("opu-tiny")
MAKERS = {"transfer": rand.transfer, "conv": rand.conv, "copy": rand.copy}


def machines(rng):
    machine = Machine(SPEC, np.zeros(rand.WINDOW_BYTES, np.uint8))
    rand.random_words(rng, machine.memories)
    return machine, NaiveMachine(SPEC, machine.memories)


def assert_same(fast, slow):
    mem = fast.memories
    assert np.array_equal(mem.dram, slow.dram)
    for space, words in slow.words.items():
        assert np.array_equal(mem.buffer(space)[: len(words)], words), space


def assert_footprint(x, slow):
    """Every access lies in the footprint, and both ends of every interval are touched."""
    said = {}
    for access in footprint(x, SPEC):
        assert access.space not in said, "a memory stands twice"
        said[access.space] = access
        words = {w for a, b in access.intervals for w in range(a, b)}
        real = slow.touched[access.space, access.write]
        if access.write:
            real = real | slow.touched[access.space, False]
        assert real <= words, (access.space, sorted(real - words)[:5])
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


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("round_", range(40))
def test_an_instruction_does_what_the_page_says(kind, round_, rng):
    fast, slow = machines(rng)
    x = rand.until_fits(MAKERS[kind], rng, SPEC)
    fast.execute(x)
    slow.execute(x)
    assert_same(fast, slow)
    assert_footprint(x, slow)


@pytest.mark.parametrize("chain", rand.CHAINS, ids=lambda c: "-".join(s.name for s in c) or "none")
@pytest.mark.parametrize("round_", range(12))
def test_every_post_chain_does_what_the_page_says(chain, round_, rng):
    fast, slow = machines(rng)

    def make(rng, spec):
        return rand.post(rng, spec, chain)

    x = rand.until_fits(make, rng, SPEC)
    fast.execute(x)
    slow.execute(x)
    assert_same(fast, slow)
    assert_footprint(x, slow)
    written = fast.memories.output
    assert x.engine is Engine.POST
    assert len(np.unique(written)) > 1


def requant_only(rng, spec):
    return rand.post(rng, spec, (Stage.REQUANT,))


@pytest.mark.parametrize("kind", ["conv", "post"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_sums_wrap_in_the_array_and_do_not_in_the_requantiser(kind, sign, rng):
    fast, _ = machines(rng)
    mem = fast.memories
    mem.psum[:] = sign * ((1 << 31) - 1)
    mem.param.reshape(-1, 8)[:, :4] = np.array([sign * ((1 << 31) - 1)], "<i4").view(np.uint8)
    slow = NaiveMachine(SPEC, mem)
    if kind == "conv":
        x = rand.until_fits(MAKERS["conv"], rng, SPEC)
        x = rand.instruction(x.engine, x.opcode, {**x.params, "accumulate": 1})
    else:
        x = rand.until_fits(requant_only, rng, SPEC)
    fast.execute(x)
    slow.execute(x)
    assert_same(fast, slow)


def test_a_store_over_itself_leaves_the_last_word(rng):
    fast, slow = machines(rng)
    shape = {"run": 4, "rows": 3, "blocks": 2, "row_pitch": 1, "block_pitch": 2}
    x = rand.instruction(Engine.STORE, "store", shape)
    fast.execute(x)
    slow.execute(x)
    assert_same(fast, slow)
