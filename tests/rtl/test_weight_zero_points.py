"""Weights with zero points on the RTL, and in the cycles of the cycle engine."""

import numpy as np
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from tests.networks.zero_points import LAYERS, ZEROS, between_pairs
from tests.rtl.session import hold_bits_and_cycles

CASES = [
    ("conv", "uint8 for each channel"),
    ("pixel", "int8 3"),
    ("depthwise", "int8 for each channel"),
    ("large depthwise", "uint8 0"),
    ("transposed", "int8 -128"),
    ("gemm", "uint8 for each channel"),
]


@pytest.mark.rtl
@pytest.mark.parametrize(("layer", "zeros"), CASES)
@pytest.mark.parametrize("machine", ["opu-tiny", "opu-light"])
def test_the_rtl_has_the_bits_of_the_functional_engine(machine, layer, zeros, rtl):
    hw, form = load_hw(machine), LAYERS[layer]
    compiled = compile_model(between_pairs(form, *ZEROS[zeros]), hw, Options(reuse_memory=False))
    (planned, *_), *_ = compiled.plan.layers.values()
    assert planned.layer.shape.further, "int8 holds all weights"
    inputs = {"x": np.random.default_rng(5).normal(0, 2, form.x).astype(np.float32)}
    hold_bits_and_cycles(rtl(hw), compiled.bundle, inputs)
