"""Tiles whose instructions use all banks of a buffer, on the RTL and in the cycle engine."""

from dataclasses import replace

import numpy as np
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.tiling import candidates
from opu_fuse.zoo.builder import Net
from tests.rtl.session import hold_bits_and_cycles


@pytest.mark.rtl
@pytest.mark.parametrize(
    ("machine", "group"), [("opu-tiny", 1), ("opu-tiny", 16), ("opu-micro", 1), ("opu-light", 16)]
)
def test_the_rtl_has_the_bits_of_the_functional_engine(machine, group, rtl, monkeypatch):
    """Between layers that keep maps on chip; a small layer stands for one of many loads."""
    monkeypatch.setattr(candidates, "MOST_LOADS", 0)
    net = Net("large window", seed=4)
    x = net.input("x", (1, 16, 20, 23))
    x = net.conv(x, "before", out=16, kernel=1)
    x = net.conv(x, "large", out=16, kernel=13, pads=6, groups=group)
    x = net.conv(x, "behind", out=8, kernel=3)
    hw = load_hw(machine)
    if machine == "opu-light":  # its banks hold such a window at once
        feature = replace(hw.buffers.feature, words=2 * 64)
        hw = replace(hw, buffers=replace(hw.buffers, feature=feature))
    options = Options(reuse_memory=False, cascades="never")
    compiled = compile_model(net.finish(x), hw, options)
    tiles = [part.tile for parts in compiled.plan.layers.values() for part in parts]
    assert [tile.undivided for tile in tiles] == [False, True, False]
    inputs = {"x": np.random.default_rng(5).normal(size=(1, 16, 20, 23)).astype(np.float32)}
    hold_bits_and_cycles(rtl(hw), compiled.bundle, inputs)
