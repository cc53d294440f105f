"""Loads that set lanes of weights to zero: bytes and faults of the engines."""

from dataclasses import replace

import numpy as np
import pytest

from opu_fuse.errors import RunError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.functional.machine import Machine
from opu_fuse.units.base import Space
from tests.hw.norm_machine import norm_machine
from tests.sim.naive import NaiveMachine
from tests.sim.native_cases import both, check_and_end, differences
from tests.sim.random_instructions import WINDOW_BYTES, instruction, transfer, until_fits

SPECS = {"norms": norm_machine(), "opu-1024a": load_hw("opu-1024a")}


def loads(rng, spec, opcode):
    """Legal loads of one kind."""

    def one(rng, spec):
        found = transfer(rng, spec)
        return found if found.opcode == opcode else None

    while True:
        yield until_fits(one, rng, spec)


@pytest.mark.parametrize("name", SPECS)
def test_the_engines_leave_the_bytes_of_the_page(name, rng):
    spec = SPECS[name]
    python, native = both(spec, rng)
    slow = NaiveMachine(spec, python.memories)
    made, zeros = loads(rng, spec, "weight"), 0
    for _ in range(40):
        x = next(made)
        zeros += x.load["zero_low"] > 0 and x.load["zero_high"] > 0
        slow.execute(x)
        assert differences(python, native, check_and_end(spec, x)) == []
        np.testing.assert_array_equal(python.memories.weight, slow.words[Space.WEIGHT])
    assert zeros > 10, "most loads leave a part of each word"


def test_other_loads_copy_every_byte(rng):
    spec = SPECS["norms"]
    x = next(loads(rng, spec, "feature"))
    results = []
    for zeros in ({}, {"zero_low": 3, "zero_high": 2}):
        machine = Machine(spec, np.arange(WINDOW_BYTES).astype(np.uint8))
        machine.execute(instruction(x.engine, x.opcode, {**x.params, **zeros}))
        results.append(machine.memories.feature.copy())
    np.testing.assert_array_equal(*results)


NARROW = replace(SPECS["norms"], word_channels=16)
WRONG = {
    "every lane": (SPECS["norms"], (5, 3), "loads 8 bytes of words of 8 as zeros"),
    "no norms": (load_hw("opu-1024"), (1, 0), "sets lanes of weights to zero, which opu-1024 can"),
    "half a word": (NARROW, (0, 1), "sets lanes of weights to zero, which norms cannot"),
}


@pytest.mark.parametrize("case", WRONG)
def test_engines_refuse_the_same_loads(case, rng):
    spec, (low, high), message = WRONG[case]
    legal = next(loads(rng, spec, "weight"))
    own = {**legal.params, "zero_low": low, "zero_high": high}
    wrong = instruction(legal.engine, legal.opcode, own)
    with pytest.raises(RunError, match=message):
        Machine(spec, np.zeros(WINDOW_BYTES, np.uint8)).execute(wrong)
    assert differences(*both(spec, rng), check_and_end(spec, wrong)) == []
