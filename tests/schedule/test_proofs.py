"""A program whose tokens are tampered with is refused; a sound one passes both proofs."""

from dataclasses import replace

import numpy as np
import pytest

from opu_fuse.errors import InternalError
from opu_fuse.hw.encoding import decode_with_positions, encode
from opu_fuse.hw.isa import Engine
from opu_fuse.hw.load import load_hw
from opu_fuse.schedule.dependencies import synchronise
from opu_fuse.schedule.proofs import prove_no_deadlock, prove_no_race, prove_same
from tests.schedule.mutants import without_tokens
from tests.schedule.single_layer import CASE_ORDER, emit_program, make_shape

HW = load_hw("opu-tiny")


# The second machine has one bank each of partial sums, residuals and outputs.
SIZES = {
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
    with pytest.raises(InternalError, match=r"deadlock proof.*compute at instruction"):
        prove_no_deadlock(mutant, positions_of(mutant), HW)


def test_counters_never_overflow(program):
    """With counters of one bit tokens are merged, and the program still passes."""
    narrow = replace(HW, counter_bits=1)
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
