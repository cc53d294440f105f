"""Cycles of groups: all cycles of a run, shared out where groups overlap."""

import pytest

from opu_fuse import zoo
from opu_fuse.bundle.result import Retire
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile as compile_program
from opu_fuse.report.group_rows import group_rows
from opu_fuse.sim.group_counters import apportion_cycles


def retired(*found):
    """(engine, group, start, end) each."""
    return [
        Retire(segment=0, group=g, instruction=i, engine=e, start=start, end=end)
        for i, (e, g, start, end) in enumerate(found)
    ]


def test_a_cycle_of_the_array_is_its_groups_alone():
    trace = retired(("load", 0, 0, 10), ("compute", 0, 10, 30), ("load", 1, 10, 30))
    assert apportion_cycles(trace, 30) == {0: 30, 1: 0}


def test_while_the_array_waits_the_other_engines_share():
    trace = retired(("store", 0, 0, 11), ("load", 1, 0, 11), ("compute", 1, 11, 20))
    assert apportion_cycles(trace, 20) == {0: 6, 1: 5 + 9}


def test_cycles_without_work_are_the_next_groups_and_the_last_ones_at_the_end():
    trace = retired(("compute", 0, 0, 10), ("compute", 1, 15, 20))
    assert apportion_cycles(trace, 23) == {0: 10, 1: 5 + 5 + 3}


def test_an_instruction_begins_when_the_one_before_it_has_retired():
    trace = retired(("compute", 0, 0, 10), ("compute", 1, 5, 20))
    assert apportion_cycles(trace, 20) == {0: 10, 1: 10}


def test_prologue_and_end_are_no_group():
    assert apportion_cycles(retired(("fetch", -1, 0, 5)), 5) == {}


@pytest.mark.parametrize(
    ("network", "machine"), [("tiny_residual", "opu-tiny"), ("resnet20", "opu-1024")]
)
def test_no_group_uses_more_than_all_mac_units(network, machine):
    program = compile_program(zoo.build(network), load_hw(machine))
    run = program.run(engine="cycle")
    rows = group_rows(program.bundle, run)
    assert max(row.mac_efficiency for row in rows) <= 1
    assert sum(row.cycles for row in rows) == run.counters["cycles"]
