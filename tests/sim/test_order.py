"""Dependency counters: what may start when, and what is said when nothing may."""

import itertools

import pytest

from opu_fuse.errors import RunError
from opu_fuse.hw.isa.table import Engine
from opu_fuse.sim.functional.issue_order import in_order, shuffled
from tests.sim.random_instructions import instruction

LOAD, COMPUTE, POST, STORE = Engine.LOAD, Engine.COMPUTE, Engine.POST, Engine.STORE
OPCODE = {LOAD: "feature", COMPUTE: "conv", POST: "run", STORE: "store"}


def ignore(number, executed):
    pass


def step(engine, waits=(), signals=()):
    return instruction(engine, OPCODE[engine], {}, waits=waits, signals=signals)


def order_of(program, seed, limit=63):
    done = []
    shuffled(program, lambda number, _: done.append(number), seed=seed, counter_limit=limit)
    return done


def test_program_order_is_kept():
    program = [step(LOAD, signals=(COMPUTE,)), step(COMPUTE, waits=(LOAD,)), step(LOAD)]
    done = []
    in_order(program, lambda number, _: done.append(number))
    assert done == [0, 1, 2]


def test_a_wait_without_a_signal_before_it_is_an_error():
    program = [step(COMPUTE, waits=(LOAD,)), step(LOAD, signals=(COMPUTE,))]
    message = r"instruction 0 \(compute.conv\).*waits for load, which has not signalled"
    with pytest.raises(RunError, match=message):
        in_order(program, ignore)


def test_a_token_is_used_up():
    waits = [step(COMPUTE, waits=(LOAD,)), step(COMPUTE, waits=(LOAD,))]
    with pytest.raises(RunError, match="instruction 2"):
        in_order([step(LOAD, signals=(COMPUTE,)), *waits], ignore)


def test_shuffling_reaches_every_order_the_counters_allow_and_no_other():
    program = [
        step(LOAD, signals=(COMPUTE,)),
        step(COMPUTE, waits=(LOAD,)),
        step(LOAD, signals=(COMPUTE,)),
        step(COMPUTE, waits=(LOAD,)),
        step(STORE),
    ]
    allowed = {
        p
        for p in itertools.permutations(range(5))
        if p.index(0) < p.index(2) and p.index(1) < p.index(3)  # each engine in its own order
        if p.index(0) < p.index(1) and p.index(2) < p.index(3)  # tokens
    }
    assert {tuple(order_of(program, seed)) for seed in range(400)} == allowed


def test_a_seed_gives_the_same_order_again():
    program = [step(e) for e in (LOAD, COMPUTE, POST, STORE) * 5]
    assert order_of(program, 7) == order_of(program, 7)
    assert order_of(program, 7) != order_of(program, 8)


def test_a_full_counter_holds_the_retirement():
    """With room for one token, the third load cannot run before the first token is taken."""
    program = [step(LOAD, signals=(COMPUTE,)) for _ in range(3)]
    program += [step(COMPUTE, waits=(LOAD,)) for _ in range(3)]
    for seed in range(50):
        done = order_of(program, seed, limit=1)
        assert done.index(3) < done.index(2)


def test_a_deadlock_names_who_waits_for_whom():
    program = [
        step(LOAD, waits=(COMPUTE,), signals=(COMPUTE,)),
        step(COMPUTE, waits=(LOAD,), signals=(LOAD,)),
    ]
    message = (
        r"deadlock: load at instruction 0 \(token of compute\); "
        r"compute at instruction 1 \(token of load\)"
    )
    with pytest.raises(RunError, match=message):
        order_of(program, 0)


def test_a_deadlock_on_a_full_counter_says_so():
    program = [step(LOAD, signals=(COMPUTE,)), step(LOAD, signals=(COMPUTE,)), step(LOAD)]
    with pytest.raises(RunError, match=r"load at instruction 1 \(signal to compute\)"):
        order_of(program, 0, limit=1)
