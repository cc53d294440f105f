"""Tokens of programs whose accesses are drawn at random, beside pairs and counters looked at one by
one.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import SYNC_ENGINES, Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.schedule import dependencies
from opu_fuse.schedule.dependencies import NONE, latest_conflicts, synchronise
from opu_fuse.units.base import Space

LOAD, COMPUTE, POST, STORE = SYNC_ENGINES


def drawn(rng, length, words):
    """Accesses of every instruction, of one or two memories, in up to two intervals each."""

    def access(space):
        ends = np.sort(rng.choice(words, 2 * rng.integers(1, 3), replace=False)).tolist()
        pairs = tuple(zip(ends[::2], ends[1::2], strict=True))
        return SimpleNamespace(space=space, write=bool(rng.integers(2)), intervals=pairs)

    spaces = (Space.FEATURE, Space.DRAM)
    return [[access(s) for s in spaces if rng.integers(3)] for _ in range(length)]


def meet(one, other):
    """Whether two accesses must keep their order; the feature buffer has one write port."""
    if one.space != other.space or not (one.write or other.write):
        return False
    port = one.space == Space.FEATURE and one.write and other.write
    return port or any(a < d and c < b for a, b in one.intervals for c, d in other.intervals)


@pytest.mark.parametrize("words", [5, 40])
def test_the_latest_conflict_is_found_in_any_program(words, rng, monkeypatch):
    for length in (1, 2, 3, 4, *range(5, 60, 5)):
        accesses = drawn(rng, length, words)
        engines = [Engine(e) for e in rng.choice(SYNC_ENGINES, length)]
        program = [
            Instruction(engine=e, opcode="", params={"at": at}) for at, e in enumerate(engines)
        ]
        monkeypatch.setattr(dependencies, "footprint", lambda i, _, a=accesses: a[i.params["at"]])
        expected = [[NONE] * len(Engine) for _ in program]
        for at, engine in enumerate(engines):
            for before, other in enumerate(engines[:at]):
                pairs = ((a, b) for a in accesses[at] for b in accesses[before])
                if engine is not other and any(meet(a, b) for a, b in pairs):
                    expected[at][other] = before
        assert latest_conflicts(program, load_hw("opu-tiny")) == expected


def program_of(*engines):
    return [Instruction(engine=e, opcode="", params={}) for e in engines]


def clocks(program, needs):
    """needs: instruction -> those that it waits for."""
    found = [[NONE] * len(Engine) for _ in program]
    for i, earlier in needs.items():
        for j in earlier:
            found[i][program[j].engine] = j
    return found


def most_tokens(program):
    """Tokens of the fullest counter when producers run as far ahead as they can; every wait finds
    the signal that it is paired with.
    """
    most = 0
    for a in SYNC_ENGINES:
        for b in SYNC_ENGINES:
            given = [i for i, x in enumerate(program) if x.engine is a and b in x.signals]
            taken = [i for i, x in enumerate(program) if x.engine is b and a in x.waits]
            assert len(given) == len(taken)
            assert all(i < j for i, j in zip(given, taken, strict=True))
            for n, at in enumerate(given):
                most = max(most, n + 1 - sum(j < at for j in taken))
    return most


def test_a_wait_that_another_one_implies_is_left_out():
    program = program_of(LOAD, COMPUTE, POST)
    made = synchronise(program, load_hw("opu-tiny"), clocks(program, {1: [0], 2: [0, 1]}))
    assert [i.waits for i in made] == [(), (LOAD,), (COMPUTE,)]
    assert [i.signals for i in made] == [(COMPUTE,), (POST,), ()]


def test_a_later_instruction_knows_what_its_engine_has_waited_for():
    program = program_of(LOAD, COMPUTE, COMPUTE, LOAD, COMPUTE)
    made = synchronise(program, load_hw("opu-tiny"), clocks(program, {1: [0], 2: [0], 4: [3]}))
    assert [i.waits for i in made] == [(), (LOAD,), (), (), (LOAD,)]


@pytest.mark.parametrize("bits", [1, 2])
def test_no_counter_ever_holds_more_tokens_than_it_can(bits):
    hw = replace(load_hw("opu-tiny"), counter_bits=bits)
    capacity = 2**bits - 1
    loads = 3 * capacity
    program = program_of(*[LOAD] * loads, *[COMPUTE] * loads)
    needs = clocks(program, {loads + i: [i] for i in range(loads)})
    made = synchronise(program, hw, needs)
    assert most_tokens(made) == capacity
    assert made[loads - 1].signals == (COMPUTE,), "the last load is waited for all the same"


def test_tokens_that_are_taken_in_time_are_not_merged():
    hw = replace(load_hw("opu-tiny"), counter_bits=1)
    program = program_of(*[LOAD, COMPUTE] * 3)
    needs = {i: [i - 1] for i in range(1, 6)}
    made = synchronise(program, hw, clocks(program, needs))
    assert [i.waits for i in made] == [(), (LOAD,), (COMPUTE,), (LOAD,), (COMPUTE,), (LOAD,)]
    assert most_tokens(made) == 1
