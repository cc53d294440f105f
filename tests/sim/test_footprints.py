"""The race proof sees every memory of the machine, and whole words where a store skips bytes."""

import numpy as np
import pytest
from msgspec.structs import replace

from opu_fuse.errors import InternalError
from opu_fuse.hw.isa.footprint import footprint, moved_bytes
from opu_fuse.hw.isa.instruction import split_address
from opu_fuse.hw.isa.table import Engine
from opu_fuse.schedule.proofs import prove_no_race
from opu_fuse.sim.functional.machine import Machine
from opu_fuse.units.base import Space
from rtl_sim.benches.graph_orders import orders_of
from tests.bundle.sample import program
from tests.sim.machines import MACHINES
from tests.sim.random_instructions import instruction

FULL = MACHINES["full"]
CHAIN = orders_of(FULL)
SAMPLE = {x.opcode: x for x in program()}


def load(opcode, dst, words=8, dram=0):
    shape = {"run": words, "rows": 1, "blocks": 1, "dst": dst}
    return instruction(Engine.LOAD, opcode, {**shape, **split_address(dram)})


def user(opcode, **changes):
    x = SAMPLE[opcode]
    return instruction(x.engine, opcode, {**x.params, **changes})


def depthwise(**changes):
    params = {**SAMPLE["conv"].params, "kernel_rows": 2, "kernel_cols": 2, **changes}
    return instruction(Engine.COMPUTE, "depthwise", params)


STORE = user("store", skip_low=4, **split_address(512))
RACES = {
    "pre parameters": (load("pre", 8), user("conv", pre=1, pre_param=8)),
    "pre parameters of a later block": (
        load("pre", 16),
        user("conv", pre=1, ic_first=2, block_pitch=0),
    ),
    "table": (
        load("table", 300),
        user("run", order=CHAIN.pack(["pool", "table"]), table=50),
    ),
    "depthwise weights": (load("weight", 4), depthwise()),
    "broadcast residual": (
        load("residual", 9),
        user("run", order=CHAIN.pack(["pool", "res_add"]), res=9, res_broadcast=1),
    ),
    "word of which only other bytes are written": (STORE, load("feature", 0, 1, 512)),
    "repeated row": (
        user("store", repeat_rows=2, row_pitch=9, **split_address(0)),
        load("feature", 0, 1, 8 * 2 * 9),
    ),
    "word behind a gap": (
        user("store", word_gap=5, **split_address(0)),
        load("feature", 0, 1, 8 * 3 * 6),
    ),
}


@pytest.mark.parametrize("kind", RACES)
@pytest.mark.parametrize("swapped", [False, True])
def test_two_engines_on_the_same_words_need_a_token(kind, swapped):
    one, two = RACES[kind][:: -1 if swapped else 1]
    with pytest.raises(InternalError, match=r"touch the same words, .* in no fixed order"):
        prove_no_race([one, two], FULL)
    ordered = [replace(one, signals=(two.engine,)), replace(two, waits=(one.engine,))]
    prove_no_race(ordered, FULL)


APART = {
    "pre parameters of an earlier block": (
        load("pre", 0),
        user("conv", pre=1, ic_first=2, block_pitch=0),
    ),
    "conv without pre chain": (load("pre", 0), user("conv")),
    "another table": (
        load("table", 256),
        user("run", order=CHAIN.pack(["pool", "table"]), table=0),
    ),
    "word inside a gap": (
        user("store", word_gap=5, **split_address(0)),
        load("feature", 0, 5, 8),
    ),
    "short weight rows": (load("weight", 9 * 4), user("conv", mode=2, oc_steps=1)),
    "packed sums": (
        user("conv", mode=2, oc_steps=1, psum=FULL.buffers.psum.words // 2 - 8),
        user("run", psum=FULL.buffers.psum.words // 2, in_rows=2, out_rows=1),
    ),
}


@pytest.mark.parametrize("kind", APART)
def test_words_side_by_side_need_no_token(kind):
    prove_no_race(APART[kind], FULL)


def test_a_load_of_a_word_is_ordered_behind_all_stores_into_it():
    """Two groups fill the halves of a word; the token of the second carries the first."""
    low, high = (
        user("store", skip_high=4),
        replace(user("store", skip_low=4), signals=(Engine.LOAD,)),
    )
    reader = replace(load("feature", 0, 1, low.dram), waits=(Engine.STORE,))
    prove_no_race([low, high, reader], FULL)
    early = [replace(low, signals=(Engine.LOAD,)), replace(high, signals=()), reader]
    with pytest.raises(InternalError, match=r"instruction 2 \(load.feature\) and instruction 1"):
        prove_no_race(early, FULL)


def test_repeated_words_move_as_often_as_they_are_written():
    x = user("store", repeat_rows=1, repeat_cols=2, row_pitch=16, skip_low=7, **split_address(0))
    done = Machine(FULL, np.zeros(1024, np.uint8)).execute(x)
    (written,) = (a for a in footprint(x, FULL) if a.space is Space.DRAM)
    words = sum(end - start for start, end in written.intervals)
    assert done.dram_written == moved_bytes(x, FULL) == words == 4 * 2 * 3 * 8
