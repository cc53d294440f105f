"""Biases that several windows have in common are loaded once."""

import numpy as np
import pytest
from msgspec.structs import replace

from opu_fuse.dfg.graph import Kind
from opu_fuse.hw.isa.table import Engine
from opu_fuse.layout.alike_rows import alike_rows
from opu_fuse.pipeline import compile_model
from opu_fuse.schedule import tile_choice
from opu_fuse.schedule.plan import MachineProgram
from tests.exact import assert_exact
from tests.hw.norm_machine import split_norm_machine
from tests.networks import attention_blocks as blocks

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

WINDOWS = {
    "biases": blocks.windows(8, 9, 16, 2),
    "biases, then masks": blocks.windows(8, 9, 16, 2, masked=True),
}


def operand_loads(found):
    return [
        x
        for program in found.plan.segments
        if isinstance(program, MachineProgram)
        for x in program.instructions
        if x.engine is Engine.LOAD and x.opcode == "residual"
    ]


def with_biases(found):
    """Layers whose second operand is a constant of the windows."""
    layers = [layer for parts in found.plan.layers.values() for layer in parts]
    return [
        layer
        for layer in layers
        if layer.shape.images > 1
        and layer.residuals
        and found.dfg[layer.residuals[0]].kind is Kind.CONST
    ]


@pytest.mark.parametrize("name", WINDOWS)
def test_tiles_of_equal_windows_share_a_load(name, rng, monkeypatch):
    hw = split_norm_machine()
    found = compile_model(WINDOWS[name], hw)
    layers = with_biases(found)
    assert layers
    assert all(set(layer.alike) == {0} for layer in layers)
    assert_exact(found, hw, rng, (None, 1, 2, 3))
    monkeypatch.setattr(tile_choice, "alike_rows", lambda *_: ())
    before = compile_model(WINDOWS[name], hw)
    assert len(operand_loads(found)) < len(operand_loads(before))


def test_rows_are_alike_where_all_their_values_are():
    found = compile_model(WINDOWS["biases"], split_norm_machine())
    (layer, *_) = with_biases(found)
    operand = found.dfg[layer.residuals[0]]
    assert operand.const is not None
    assert alike_rows([operand], layer.shape) == (0,) * 8
    other = operand.const.copy()
    other[0, -1, 5:7] += 1
    two = replace(operand, const=other)
    assert alike_rows([two], layer.shape) == (0, 0, 0, 0, 0, 5, 5, 0)
    every = other + np.arange(8, dtype=other.dtype)[:, None]
    assert alike_rows([replace(operand, const=every)], layer.shape) == ()
    assert alike_rows([operand, two], layer.shape) == ()
    assert alike_rows([replace(operand, const=None)], layer.shape) == ()
