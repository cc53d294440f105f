"""Which earlier instructions an instruction must wait for, against every pair looked at."""

from typing import Any

import pytest

from opu_fuse.hw.isa.assembly import assemble
from opu_fuse.hw.isa.footprint import footprint
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.schedule.dependencies import NONE, latest_conflicts
from opu_fuse.units.base import Space
from tests.schedule.single_layer import CASE_ORDER, emit_program, make_shape


def touch(one, other, hw):
    """Whether two accesses meet, one of them writing; partial sums meet by bank."""
    if one.space is not other.space or not (one.write or other.write):
        return False
    if one.space is Space.PSUM:
        return bool(banks(one, hw) & banks(other, hw))
    return any(a < d and c < b for a, b in one.intervals for c, d in other.intervals)


def banks(access, hw):
    half = hw.buffers.psum.words // 2
    return {word // half for start, end in access.intervals for word in range(start, end)}


def pair_by_pair(program, hw):
    accesses = [footprint(i, hw) for i in program]
    found = []
    for i, instruction in enumerate(program):
        latest = [NONE] * len(Engine)
        for j in range(i):
            engine = program[j].engine
            if engine is not instruction.engine and any(
                touch(a, b, hw) for a in accesses[i] for b in accesses[j]
            ):
                latest[engine] = j
        found.append(latest)
    return found


@pytest.mark.parametrize("residual", [None, "final"])
def test_the_latest_conflict_of_every_engine_is_found(residual):
    hw = load_hw("opu-tiny")
    sizes: dict[str, Any] = {"channels": 13, "out_channels": 19, "rows": 13, "cols": 11}
    shape = make_shape(hw, pads=(1, 1, 1, 1), residual=residual, **sizes)
    program = emit_program(hw, shape, CASE_ORDER)
    found = latest_conflicts(program, hw)
    assert found == pair_by_pair(program, hw)
    assert any(at != NONE for latest in found for at in latest)


@pytest.mark.parametrize(("word", "waits"), [(0, True), (60, True), (64, False), (100, False)])
def test_compute_waits_for_post_on_its_bank_of_partial_sums(word, waits):
    """Other words of the bank, too: post would be held by every step that reads the bank."""
    hw = load_hw("opu-tiny")
    assert hw.buffers.psum.words == 128
    tile = "in_rows=1 in_cols=2 out_rows=1 out_cols=2 stride_y=1 stride_x=1"
    window = "kernel_rows=1 kernel_cols=1 dilation_y=1 dilation_x=1 slot_log2=3"
    program = assemble(
        f"""
        post.run psum=10 psum_row_pitch=2 win_rows=1 win_cols=1 blocks=1 {tile}
        compute.conv psum={word} ic_steps=1 oc_steps=1 {window} {tile}
        """,
        spec=hw,
    )
    assert (latest_conflicts(program, hw)[1][Engine.POST] == 0) is waits


def test_no_instruction_has_no_conflict():
    assert latest_conflicts([], load_hw("opu-tiny")) == []
