"""Layers of networks with attention, of their real sizes, on the RTL of opu-1024a."""

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.ports import noise
from tests.networks import attention_blocks as blocks
from tests.rtl.session import hold_bits_and_cycles

LAYERS = {
    "ViT-tiny": blocks.encoder_layer(197, 192, 3),
    "YOLO11 (PSA)": blocks.convolutional(128, 10, 2),
}


@pytest.mark.rtl
@pytest.mark.nightly
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_real_size_has_the_bits_and_cycles_of_the_other_engines(name, rtl):
    hw = load_hw("opu-1024a")
    compiled = compile_model(LAYERS[name], hw, Options(reuse_memory=False))
    assert "softmax" in [op.op for group in compiled.bundle.groups for op in group.ops]
    left = {compiled.dfg[op.node].op for op in compiled.partition.host}
    assert left <= {"host:Transpose", "reshape"}, "the host computes"
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))
