"""What stops a machine is found for whole programs at once, as it is for one instruction."""

import numpy as np
import pytest
from msgspec.structs import replace

from opu_fuse.errors import RunError
from opu_fuse.hw.isa.encoding import decode, encode
from opu_fuse.hw.isa.faults import BASES, Faults
from opu_fuse.hw.isa.footprint import footprint
from opu_fuse.hw.isa.instruction import split_address
from opu_fuse.hw.isa.table import Engine
from opu_fuse.sim.cycle.instruction_costs import steps_of
from opu_fuse.sim.functional.machine import Machine
from opu_fuse.units.base import Space
from tests.bundle.sample import HW, program, sample_bundle
from tests.sim.machines import MACHINES
from tests.sim.random_instructions import instruction

WINDOW = 1024
GOOD = {x.opcode: x for x in program()}
FULL = MACHINES["full"]


def with_params(opcode, **changes):
    x = GOOD[opcode]
    return replace(x, params={**x.params, **changes})


def test_instructions_that_differ_in_addresses_are_told_apart():
    stops = Faults(HW, WINDOW)
    good, bad = GOOD["feature"], with_params("feature", dst=250)
    assert stops.reason(good) is None
    assert "writes word 256 of the feature buffer" in (stops.reason(bad) or "")
    assert stops.reason(good) is None
    crooked = with_params("feature", **split_address(4))
    assert "not a multiple of 8 bytes" in (stops.reason(crooked) or "")
    assert "reads byte 1024" in (stops.reason(with_params("feature", **split_address(1024))) or "")


_ALL = {"in_rows": 65_535, "in_cols": 100}
_ONES = ("blocks", "win_rows", "win_cols", "stride_y", "stride_x", "dilation_y", "dilation_x")
_COUNTS = ("kernel_rows", "kernel_cols", "ic_steps", "oc_steps")
_SLOT = {"slot_log2": GOOD["conv"].params["slot_log2"]}
ENDLESS = {
    "pixels": ("run", _ALL | {"out_rows": 65_535, "out_cols": 100}),
    "gaps": ("run", {"out_rows": 4000, "out_cols": 100, "stride_y": 255, "order": 3}),
    "pre": ("conv", _ALL | _SLOT | {"out_rows": 60, "out_cols": 2, "stride_y": 255,
                                    "stride_x": 90, "kernel_rows": 60, "dilation_y": 250,
                                    "pre": 1}),
}  # fmt: skip


@pytest.mark.parametrize("kind", ENDLESS)
def test_one_word_over_and_over_ends_in_one_line(kind):
    """The machine would go on; numpy would ask for all memory."""
    opcode, sizes = ENDLESS[kind]
    zeros = dict.fromkeys(GOOD[opcode].params, 0)
    ones = {name: 1 for name in (*_ONES, *_COUNTS, "in_rows", "in_cols") if name in zeros}
    x = replace(GOOD[opcode], params=zeros | ones | sizes)
    machine = Machine(FULL, np.zeros(WINDOW, np.uint8))
    assert machine._stops.reason(x) is None
    with pytest.raises(RunError, match=r": reads [0-9,]+ words at once, more than the"):
        machine.execute(x)


@pytest.mark.parametrize("engine", [e for e in Engine if e is not Engine.FETCH])
def test_every_access_has_the_register_that_moves_it(engine):
    """An access that `BASES` forgets would be looked at where it does not lie."""
    for x in GOOD.values():
        if x.engine is not engine:
            continue
        everything = {"order": 0x54321, "keep": 1} if engine is Engine.POST else {}
        full = instruction(engine, x.opcode, {**x.params, **everything})
        moved = {a.space: a for a in footprint(full, FULL)}
        for space, name in BASES[engine].items():
            if space in moved and space is not Space.DRAM:
                shifted = instruction(
                    engine, x.opcode, {**full.params, name: full.params[name] + 3}
                )
                there = {a.space: a for a in footprint(shifted, FULL)}[space]
                assert there.intervals[0][0] == moved[space].intervals[0][0] + 3
        assert {s for s in moved if s is not Space.DRAM} <= set(BASES[engine])


def test_the_cycle_engine_stops_where_the_functional_one_does():
    bundle = sample_bundle()
    program = decode(bundle.words)
    post = next(i for i, x in enumerate(program) if x.engine is Engine.POST)
    program[post] = replace(program[post], params={**program[post].params, "order": 0x7})
    words = encode(program)
    with pytest.raises(RunError, match=r"instruction \d+ \(post.run\): has order 0x7"):
        steps_of(words, HW, bundle.window_bytes)
