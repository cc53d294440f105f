"""Fused heads whose keys and values exceed the weight buffer: keys stay, values are streamed."""

from collections import Counter
from dataclasses import replace

import pytest

from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.schedule.emitted_units import planned_units
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.tile_schedule.scratchpad import Scratchpad
from tests.exact import assert_exact
from tests.hw.norm_machine import narrow_split_norm_machine, split_norm_machine
from tests.networks import attention_blocks as blocks
from tests.schedule.forced_heads import forced_heads

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

MODEL = blocks.cross(44, heads=3)


@pytest.fixture(scope="module")
def machine():
    return narrow_split_norm_machine()


@pytest.fixture(scope="module")
def streamed(machine):
    with forced_heads():
        return compile_model(MODEL, machine)


def heads_of(found, hw):
    (unit,) = [unit for units in planned_units(found.plan, hw) for unit in units if unit.heads]
    return unit


def test_streamed_values_have_the_golden_models_bits_in_every_order(streamed, machine, rng):
    assert any(layer.tile.weight_rows for layer in heads_of(streamed, machine).layers)
    assert_exact(streamed, machine, rng, (None, 1, 2, 3))


def test_keys_are_loaded_once_and_values_for_each_tile(streamed, machine):
    unit = heads_of(streamed, machine)
    loads = Counter(
        group
        for program in streamed.plan.segments
        if isinstance(program, MachineProgram)
        for x, group in zip(program.instructions, program.groups, strict=True)
        if x.engine is Engine.LOAD and x.opcode == "weight"
    )
    for number, (layer, group) in enumerate(zip(unit.layers, unit.groups, strict=True)):
        chunks, tiles = len([*layer.weight_chunks]), len(layer.tiles)
        assert tiles > 1
        assert chunks <= loads[group] <= chunks + number % 2 * chunks * tiles
        assert (loads[group] > chunks) == (number % 2 == 1)


def test_values_that_fit_next_to_the_keys_are_loaded_once_in_large_chunks():
    hw = split_norm_machine()
    with forced_heads():
        found = compile_model(MODEL, hw)
    assert not any(layer.tile.weight_rows for layer in heads_of(found, hw).layers)


def test_an_entry_that_was_touched_outlives_older_ones():
    pad = Scratchpad(8, 2)
    for key in "abcd":
        pad.take(key, 2)
    pad.touch(("a", "b", "unknown"))
    pad.take("e", 2)
    assert pad.take("a", 2)[1]
    assert not pad.take("c", 2)[1]


@pytest.mark.slow
def test_streamed_values_of_1200_keys_save_a_twelfth_behind_a_slow_memory(monkeypatch):
    hw = load_hw("opu-1024a")
    hw = replace(hw, dram=replace(hw.dram, bytes_per_cycle=16.0))
    model = blocks.encoder_layer(1200, 128, 2)
    found = compile_model(model, hw)
    assert any(layer.tile.weight_rows for layer in heads_of(found, hw).layers)
    cycles = run_cycle(found.bundle, hw).counters["cycles"]
    assert sum(group.cycles for group in found.bundle.groups) == pytest.approx(cycles, rel=0.02)
    monkeypatch.setattr(
        "opu_fuse.schedule.fused_head_units._streamed", lambda _, values, __: values
    )
    before = compile_model(model, hw)
    assert cycles < 11 / 12 * run_cycle(before.bundle, hw).counters["cycles"]
