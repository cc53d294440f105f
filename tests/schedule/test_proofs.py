"""A program whose tokens are tampered with is refused; a sound one passes both proofs."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from opu_fuse.errors import InternalError
from opu_fuse.hw.isa.encoding import decode_with_positions, encode
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.schedule.dependencies import synchronise
from opu_fuse.schedule.proofs import prove_no_deadlock, prove_no_race, prove_same
from tests.schedule.mutants import without_tokens
from tests.schedule.single_layer import CASE_ORDER, emit_program, make_shape

HW = load_hw("opu-tiny")


# The second machine has one bank each of partial sums, residuals and outputs.
SIZES: dict[str, dict[str, Any]] = {
    "opu-tiny": {"channels": 13, "out_channels": 19, "rows": 21, "cols": 18},
    "opu-classic": {"channels": 100, "out_channels": 150, "rows": 48, "cols": 40},
}


def layer_of_many_tiles(machine):
    """With a residual, tokens included."""
    hw = load_hw(machine)
    shape = make_shape(hw, pads=(1, 1, 1, 1), residual="final", **SIZES[machine])
    return emit_program(hw, shape, CASE_ORDER)


@pytest.fixture(scope="module")
def program():
    return layer_of_many_tiles("opu-tiny")


def positions_of(program):
    return decode_with_positions(encode(program))[1]


def test_sound_program_passes_both_proofs(program):
    prove_no_deadlock(program, positions_of(program), HW)
    prove_no_race(program, HW)
    prove_same(decode_with_positions(encode(program))[0], program)


def test_an_instruction_that_became_another_is_caught(program):
    changed = replace(program[7], params={**program[7].params, "run": 99})
    for mutant in ([*program[:7], changed, *program[8:]], program[:7]):
        with pytest.raises(InternalError, match="encoding proof: instruction 7 is not what"):
            prove_same(mutant, program)


@pytest.mark.parametrize("machine", SIZES)
def test_every_removed_token_is_caught(machine):
    """Take one wait and its signal away, for every token of the program: the race proof names
    two instructions.
    """
    hw, program = load_hw(machine), layer_of_many_tiles(machine)
    mutants = 0
    for mutant in without_tokens(program):
        with pytest.raises(InternalError, match=r"touch the same words, .* in no fixed order"):
            prove_no_race(mutant, hw)
        mutants += 1
    assert mutants >= 50


def test_a_wait_without_signal_is_a_deadlock(program):
    at = next(i for i, p in enumerate(program) if Engine.COMPUTE in p.signals)
    mutant = list(program)
    mutant[at] = replace(
        program[at], signals=tuple(s for s in program[at].signals if s is not Engine.COMPUTE)
    )
    with pytest.raises(InternalError, match=r"deadlock.*compute at instruction \d+ .waits on load"):
        prove_no_deadlock(mutant, positions_of(mutant), HW)


def test_counters_never_overflow(program):
    """With counters of one bit tokens are merged, and the program still passes."""
    narrow = dataclasses.replace(HW, counter_bits=1)
    bare = [replace(i, waits=(), signals=()) for i in program]
    synchronised = synchronise(bare, narrow)
    prove_no_deadlock(synchronised, positions_of(synchronised), narrow)
    prove_no_race(synchronised, narrow)
    assert sum(len(i.waits) for i in synchronised) < sum(len(i.waits) for i in program)


def test_a_program_in_the_wrong_order_deadlocks_on_its_queues(program):
    """Compute first and its loads last: the load queue never gets its words."""
    order = np.argsort([0 if p.engine is Engine.COMPUTE else 1 for p in program], kind="stable")
    mutant = [program[i] for i in order]
    with pytest.raises(InternalError, match="deadlock proof"):
        prove_no_deadlock(mutant, positions_of(mutant), HW)


LOAD, COMPUTE, POST = Engine.LOAD, Engine.COMPUTE, Engine.POST


def started(engine, *, waits=(), signals=()):
    return Instruction(engine=engine, opcode="run", params={}, waits=waits, signals=signals)


def ends(program, words=1):
    """Whether the proof finds no deadlock, where every instruction has so many words."""
    positions = np.arange(1, len(program) + 1) * words - 1
    try:
        prove_no_deadlock(program, positions, HW)
    except InternalError:
        return False
    return True


@pytest.mark.parametrize(("more", "expected"), [(0, True), (1, False)])
def test_a_counter_holds_its_largest_number_and_no_more(more, expected):
    """Nobody takes a token before all are there and load has gone on to its last instruction."""
    tokens = (1 << HW.counter_bits) - 1 + more
    first = started(COMPUTE, waits=(LOAD, POST))
    program = [
        *[started(LOAD, signals=(COMPUTE,))] * tokens,
        started(LOAD, signals=(POST,)),
        started(POST, waits=(LOAD,), signals=(COMPUTE,)),
        first,
        *[started(COMPUTE, waits=(LOAD,))] * (tokens - 1),
    ]
    assert ends(program) is expected


def test_an_engine_that_is_held_in_the_end_has_not_finished():
    most = (1 << HW.counter_bits) - 1
    assert ends([started(LOAD, signals=(COMPUTE,))] * most)
    assert not ends([started(LOAD, signals=(COMPUTE,))] * (most + 1))


def test_an_engine_that_a_full_counter_held_goes_on():
    """One token is taken when the counter is full, and all else waits for what load does next."""
    most, store = (1 << HW.counter_bits) - 1, Engine.STORE
    program = [
        *[started(LOAD, signals=(COMPUTE,))] * (most - 1),
        started(LOAD, signals=(COMPUTE, store)),
        started(LOAD, signals=(COMPUTE,)),  # held
        started(LOAD, signals=(POST,)),
        started(store, waits=(LOAD,), signals=(COMPUTE,)),
        started(COMPUTE, waits=(LOAD, store)),
        started(COMPUTE, waits=(LOAD, POST)),
        started(POST, waits=(LOAD,), signals=(COMPUTE,)),
    ]
    assert ends(program)


@pytest.mark.parametrize(("more", "expected"), [(0, True), (1, False)])
def test_a_queue_takes_what_it_has_room_for_and_no_more(more, expected):
    """What all loads wait for is fetched behind them; then the same once more."""
    words = 3
    fits, rest = divmod(HW.queues.load - 1, words)  # a word of room is asked for beside one
    assert not rest, "the last one fills the queue"
    waiting = [started(LOAD, waits=(COMPUTE,))] * (fits + more)
    tokens = [started(COMPUTE, signals=(LOAD,))] * len(waiting)
    assert ends([*waiting, *tokens] * 2, words) is expected


def test_a_token_that_comes_after_its_wait_orders_nothing():
    program = [started(COMPUTE, waits=(LOAD,)), started(LOAD, signals=(COMPUTE,))]
    nothing = [[-1] * len(Engine)] * 2
    with pytest.raises(InternalError, match="waits for a token of load that comes later"):
        prove_no_race(program, HW, nothing)
