"""What stops the machine: every illegal instruction and every access outside a memory is named."""

import numpy as np
import pytest

from opu_fuse.errors import RunError
from opu_fuse.hw.instruction import split_address
from opu_fuse.hw.isa import Engine, Stage, pack_order
from opu_fuse.sim.functional import Machine
from opu_fuse.sim.legal import COUNTS
from tests.bundle.sample import HW, program, sample_bundle
from tests.sim.random_instructions import instruction

WINDOW = 1024
GOOD = {x.opcode: x for x in program()}
GOOD["copy"] = instruction(Engine.COMPUTE, "copy", dict(GOOD["conv"].params))
GOOD["residual"] = instruction(Engine.LOAD, "residual", dict(GOOD["feature"].params))


def with_params(opcode, **changes):
    x = GOOD[opcode]
    return instruction(x.engine, opcode, {**x.params, **changes}, waits=x.waits, signals=x.signals)


def refuse(x, message):
    machine = Machine(HW, np.zeros(WINDOW, np.uint8))
    before = machine.memories.output.copy()
    with pytest.raises(RunError, match=message) as error:
        machine.execute(x, 5)
    assert f"instruction 5 ({x.engine.name.lower()}.{x.opcode})" in str(error.value)
    assert np.array_equal(machine.memories.output, before), "a refused instruction did something"


def test_the_good_ones_are_good():
    machine = Machine(HW, np.zeros(WINDOW, np.uint8))
    for x in GOOD.values():
        machine.execute(x)


@pytest.mark.parametrize(
    ("key", "register"),
    [(key, name) for key, names in COUNTS.items() for name in names],
    ids=lambda v: v if isinstance(v, str) else v[1],
)
def test_zero_counts_are_illegal(key, register):
    refuse(with_params(key[1], **{register: 0}), f"has {register} = 0, at least 1 is needed")


OUTSIDE = {
    "load past the window": (
        "feature",
        split_address(WINDOW - 64),
        "reads byte 1024 .* 1024 bytes",
    ),
    "store past the window": ("store", split_address(WINDOW - 8), "writes byte 1024 of the memory"),
    "far outside": (
        "feature",
        split_address(1 << 30),
        f"reads byte {1 << 30} of the memory window",
    ),
    "feature": ("feature", {"dst": 250}, "writes word 256 of the feature buffer.*256 words"),
    "weight": ("weight", {"dst": 200}, "writes word 256 of the weight buffer"),
    "param": ("param", {"dst": 57}, "writes word 64 of the param buffer"),
    "residual": ("residual", {"dst": 128}, "writes word 128 of the residual buffer"),
    "output": ("store", {"src": 127}, "reads word 128 of the output buffer"),
    "conv features": ("conv", {"feature": 241}, "reads word 256 of the feature buffer"),
    "conv weights": ("conv", {"weight": 185}, "reads word 256 of the weight buffer"),
    "conv sums": ("conv", {"psum": 113}, "writes word 128 of the psum buffer"),
    "copy sums": ("copy", {"psum": 113}, "writes word 128 of the psum buffer"),
    "post sums": ("run", {"psum": 113}, "reads word 128 of the psum buffer"),
    "post parameters": ("run", {"param": 57}, "reads word 64 of the param buffer"),
    "post output": ("run", {"out": 125}, "writes word 128 of the output buffer"),
    "post residual": (
        "run",
        {"order": pack_order((Stage.POOL, Stage.RESIDUAL)), "res": 127, "res_row_pitch": 2},
        "reads word 128 of the residual buffer",
    ),
}


@pytest.mark.parametrize("kind", OUTSIDE)
def test_an_access_outside_a_memory_is_named(kind):
    opcode, changes, message = OUTSIDE[kind]
    refuse(with_params(opcode, **changes), message)


ILLEGAL = {
    "address between words": ("feature", split_address(4), "0x4, not a multiple of 8 bytes"),
    "mode": ("conv", {"mode": 2}, "has mode 2, the array has 2"),
    "slot": ("conv", {"slot_log2": 4}, "slot_log2 = 4, a word has 8 bytes"),
    "blocks overlap": (
        "conv",
        {"oc_steps": 4, "psum_block_pitch": 15},
        "psum_block_pitch = 15, but 16 pixels",
    ),
    "unknown stage": ("run", {"order": 0x9}, "order 0x9: unknown, repeated or interrupted"),
    "stage twice": ("run", {"order": 0x22}, "order 0x22: unknown, repeated or interrupted"),
    "gap in the chain": ("run", {"order": 0x201}, "order 0x201: unknown, repeated or interrupted"),
    "late requant": ("run", {"order": 0x12}, "has REQUANT behind another stage"),
    "window without pool": ("run", {"order": 0x1}, "has a window, but no POOL"),
    "outside without pool": (
        "run",
        {"order": 0x1, "win_rows": 1, "win_cols": 1, "in_rows": 2},
        "reads y 0..2 of a tile of 2 without POOL",
    ),
}


@pytest.mark.parametrize("kind", ILLEGAL)
def test_an_illegal_instruction_is_named(kind):
    opcode, changes, message = ILLEGAL[kind]
    refuse(with_params(opcode, **changes), message)


def test_waiting_on_itself_is_illegal():
    refuse(
        instruction(Engine.LOAD, "feature", {}, waits=(Engine.LOAD,)), "waits on or signals load"
    )


def test_fetch_takes_no_part_in_counters():
    refuse(instruction(Engine.FETCH, "end", {}, signals=(Engine.LOAD,)), "fetch has no counters")


def test_a_program_of_another_machine_stops_at_its_first_instruction():
    refuse(
        instruction(Engine.FETCH, "check", {"hash_lo": 1}),
        "was made for spec 00000000001, opu-tiny",
    )


def test_a_program_begins_with_check_and_ends_with_end():
    machine = Machine(HW, np.zeros(sample_bundle().window_bytes, np.uint8))
    with pytest.raises(RunError, match="does not begin with `check`"):
        machine.run(program()[1:])
    with pytest.raises(RunError, match="has no `end`"):
        machine.run(program()[:-1])
