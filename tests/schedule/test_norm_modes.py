"""The last channel block before a norm may have an array mode of its own."""

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from tests.exact import assert_exact
from tests.networks import attention_blocks as blocks

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")


def test_blocks_before_a_norm_in_two_modes_have_the_golden_models_bits(rng):
    """80 channels: a word in a mode of 64 lanes, 16 in one of 16."""
    hw = load_hw("opu-1024a")
    found = compile_model(blocks.encoder_layer(20, 80, 2), hw)
    layers = [part for parts in found.plan.layers.values() for part in parts]
    of_norms = [out for x in layers if x.shape.passes for out in x.ranges if out.parts]
    assert of_norms
    for out in of_norms:
        modes = [hw.array.modes[part.mode] for part in out.parts]
        assert [(mode.ic, mode.oc) for mode in modes] == [(16, 64), (64, 16)]
        assert sum(part.blocks for part in out.parts) == out.blocks == 2
    assert_exact(found, hw, rng, (None, 1))
