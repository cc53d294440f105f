"""Layers that came quantised, with zero points: the golden model's bits, or the host and why."""

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Program, compile_model
from tests.networks.quantised_elsewhere import quantised_elsewhere
from tests.networks.random_layers import draw, kinds_of
from tests.networks.test_families import Executed, hold_against_golden

HW = load_hw("opu-light")
HOST = {
    "add": "int8 in the model",  # differences, of which the quantiser rounds no result
    "table": "int8 in the model",
    "prelu": "int8 in the model",  # functions that the quantiser leaves alone
}
"""Kinds of layers of which a part may stay on the host, and why."""


@pytest.mark.parametrize("seed", range(len(kinds_of(HW))))
def test_a_layer_that_came_quantised_has_the_golden_models_bits(seed):
    layer = draw(HW, seed)
    inputs = {name: array[:1] for name, array in layer.inputs.items()}
    compiled = compile_model(quantised_elsewhere(layer.model, inputs), HW)
    host = compiled.partition.host
    assert not host or layer.kind in HOST
    assert all(HOST[layer.kind] in op.reason for op in host)
    result = Program(bundle=compiled.bundle, hw=HW).run(inputs, capture=True)
    hold_against_golden(Executed(hw=HW, compiled=compiled, inputs=inputs, result=result))
