"""Which earlier instructions an instruction must wait for, against every pair looked at."""

import pytest

from opu_fuse.hw.footprint import footprint
from opu_fuse.hw.isa import Engine
from opu_fuse.hw.load import load_hw
from opu_fuse.schedule.dependencies import NONE, latest_conflicts
from tests.schedule.single_layer import CASE_ORDER, emit_program, make_shape


def touch(one, other):
    """Whether two accesses meet, one of them writing."""
    return (
        one.space is other.space
        and (one.write or other.write)
        and any(a < d and c < b for a, b in one.intervals for c, d in other.intervals)
    )


def pair_by_pair(program, hw):
    accesses = [footprint(i, hw) for i in program]
    found = []
    for i, instruction in enumerate(program):
        latest = [NONE] * len(Engine)
        for j in range(i):
            engine = program[j].engine
            if engine is not instruction.engine and any(
                touch(a, b) for a in accesses[i] for b in accesses[j]
            ):
                latest[engine] = j
        found.append(latest)
    return found


@pytest.mark.parametrize("residual", [None, "final"])
def test_the_latest_conflict_of_every_engine_is_found(residual):
    hw = load_hw("opu-tiny")
    sizes = {"channels": 13, "out_channels": 19, "rows": 13, "cols": 11}
    shape = make_shape(hw, pads=(1, 1, 1, 1), residual=residual, **sizes)
    program = emit_program(hw, shape, CASE_ORDER)
    found = latest_conflicts(program, hw)
    assert found == pair_by_pair(program, hw)
    assert any(at != NONE for latest in found for at in latest)


def test_no_instruction_has_no_conflict():
    assert latest_conflicts([], load_hw("opu-tiny")) == []
