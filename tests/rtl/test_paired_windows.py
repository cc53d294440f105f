"""Depthwise windows of two cycles: the RTL has the bits of the functional engine and the cycles of
the cycle engine, and other machines' programs run on it.
"""

from dataclasses import replace

import numpy as np
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule.segment_order import HostWork
from opu_fuse.zoo.builder import Net
from tests.rtl.machines import write_machine
from tests.rtl.session import hold_bits_and_cycles
from tests.written import written

pytestmark = pytest.mark.rtl

LAYERS = {
    "one window": {"kernel": 3, "pads": 1},
    "as large as the array holds": {"kernel": 4, "pads": 1},
    "strided": {"kernel": 3, "pads": 1, "stride": 2},
    "single columns": {"kernel": 2, "stride": 3},
    "four windows": {"kernel": 7, "pads": 3},
}


def network(**window):
    """A depthwise layer of two blocks and a half between others, averaged in the end."""
    net = Net("windows", seed=3)
    x = net.relu(net.conv(net.input("x", (1, 3, 17, 14)), "before", out=40, kernel=3, pads=1), "r")
    x = net.conv(x, "windows", out=40, groups=40, **window)
    x = net.conv(net.relu(x, "relu"), "after", out=24, kernel=1)
    return net.finish(net.global_average_pool(x, "mean"))


INTERPOLATED = """<ir_version: 10, opset_import: ["" : 17]> g
    (float[1,20,5,6] x) => (float[1,20,20,24] y)
    <float[0] roi = {}, float[4] by = {1, 1, 4, 4}> { y = Resize<mode="linear">(x, roi, by) }"""


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_has_the_functional_engines_bits_and_the_cycle_engines_cycles(
    layer, tmp_path, rtl, rng
):
    hw = load_hw(write_machine("paired-windows", tmp_path))
    compiled = compile_model(network(**LAYERS[layer]), hw, Options(reuse_memory=False))
    work = [s for s in compiled.plan.segments if not isinstance(s, HostWork)]
    assert "depthwise" in {x.opcode for s in work for x in s.instructions}
    inputs = {"x": rng.normal(size=(1, 3, 17, 14)).astype(np.float32)}
    hold_bits_and_cycles(rtl(hw), compiled.bundle, inputs)


def test_means_of_an_interpolation_have_the_bits_and_the_cycles(tmp_path, rtl, rng):
    """Two of its three means are depthwise sums, the one with padding is a pool's."""
    hw = load_hw(write_machine("paired-windows", tmp_path))
    compiled = compile_model(written(INTERPOLATED, seed=1), hw, Options(reuse_memory=False))
    work = [s for s in compiled.plan.segments if not isinstance(s, HostWork)]
    assert {"depthwise", "copy"} <= {x.opcode for s in work for x in s.instructions}
    inputs = {"x": rng.normal(size=(1, 20, 5, 6)).astype(np.float32)}
    hold_bits_and_cycles(rtl(hw), compiled.bundle, inputs)


def test_a_program_runs_whether_windows_take_one_cycle_or_two(tmp_path, rtl, rng):
    hw = load_hw(write_machine("paired-windows", tmp_path))
    single = replace(hw, array=replace(hw.array, window_cycles=1))
    assert single.spec_hash == hw.spec_hash
    compiled = compile_model(network(kernel=3, pads=1), single, Options(reuse_memory=False))
    inputs = {"x": rng.normal(size=(1, 3, 17, 14)).astype(np.float32)}
    hold_bits_and_cycles(rtl(hw), compiled.bundle, inputs)
