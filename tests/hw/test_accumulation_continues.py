"""A convolution goes on with the sums of the one before only if nothing of them differs."""

from typing import Any

import pytest

from opu_fuse.hw.compute_channels import continues_accumulation
from opu_fuse.hw.isa.table import Engine
from tests.sim.random_instructions import instruction

SUMS = {"psum": 3, "psum_block_pitch": 40, "mode": 1, "pre": 1, "gate": 0}
CONV = instruction(Engine.COMPUTE, "conv", SUMS | {"weight": 5, "accumulate": 0})


def another(opcode="conv", **changes: Any):
    return instruction(Engine.COMPUTE, opcode, SUMS | {"weight": 9, "accumulate": 1} | changes)


def test_other_weights_of_the_same_sums_go_on():
    assert continues_accumulation(CONV, another(kernel_rows=2, ic_first=4, feature=7))


@pytest.mark.parametrize("register", SUMS)
def test_sums_elsewhere_or_another_way_through_the_array_wait(register):
    assert not continues_accumulation(CONV, another("conv", **{register: SUMS[register] + 1}))


@pytest.mark.parametrize("opcode", ["copy", "depthwise"])
def test_copies_and_windows_neither_go_on_nor_are_gone_on_with(opcode):
    assert not continues_accumulation(CONV, another(opcode))
    assert not continues_accumulation(another(opcode), another())


def test_the_first_one_has_nothing_to_go_on_with():
    assert not continues_accumulation(None, CONV)
