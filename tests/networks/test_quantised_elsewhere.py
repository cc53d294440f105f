"""Layers that came quantised, with zero points: the golden model's bits, or the host and why."""

import pytest

from opu_fuse.hw.load import load_hw
from opu_fuse.pipeline import Program, compile_model
from tests.networks.quantised_elsewhere import quantised_elsewhere
from tests.networks.random_layers import draw, kinds_of
from tests.networks.test_families import Executed, hold_against_golden

HW = load_hw("opu-light")
JOINS = {"concat", "split"}
"""Kinds of layers whose concatenation gets operands of different scales."""


@pytest.mark.parametrize("seed", range(len(kinds_of(HW))))
def test_a_layer_that_came_quantised_has_the_golden_models_bits(seed):
    layer = draw(HW, seed)
    inputs = {name: array[:1] for name, array in layer.inputs.items()}
    compiled = compile_model(quantised_elsewhere(layer.model, inputs), HW)
    host = [(compiled.dfg[op.node].op, op.reason) for op in compiled.partition.host]
    assert [op for op, _ in host] == (["concat"] if layer.kind in JOINS else [])
    assert all("only moves values, but those are rounded to different scales" in r for _, r in host)
    result = Program(bundle=compiled.bundle, hw=HW).run(inputs, capture=True)
    hold_against_golden(Executed(hw=HW, compiled=compiled, inputs=inputs, result=result))
