"""Concatenated maps on the RTL: bits and cycles of the other engines."""

from functools import partial

import onnx_ir as ir
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.ports import noise
from tests.frontend.test_resized_branches import head
from tests.networks.test_lanes import Sketch, equal_parts, halves_of_words
from tests.rtl.session import hold_bits_and_cycles

NETWORKS = {
    "two maps of a word and a half": partial(halves_of_words, c=24),
    "four maps of a word and a lane": partial(equal_parts, c=17),
}


@pytest.mark.rtl
@pytest.mark.parametrize("name", NETWORKS)
def test_maps_that_share_words_have_the_bits_and_cycles_of_the_other_engines(name, rtl, rng):
    hw, net = load_hw("opu-micro"), Sketch(rng)
    compiled = compile_model(net.model(*NETWORKS[name](net)), hw, Options(reuse_memory=False))
    layers = [part.layer for parts in compiled.plan.layers.values() for part in parts]
    assert any(layer.shape.first_lane for layer in layers)
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))


@pytest.mark.rtl
@pytest.mark.parametrize("size", [(8, 16), (100, 128)])
def test_heads_of_segmentation_networks_have_them_too(size, rtl):
    hw, model = load_hw("opu-micro"), ir.from_proto(head(*size))
    compiled = compile_model(model, hw, Options(reuse_memory=False))
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))
