"""Views of pixels on the RTL: bits of the functional engine, cycles of the cycle engine."""

import numpy as np
import pytest

import opu_fuse
from opu_fuse.pipeline import Options, Program, compile_model
from opu_fuse.sim.cycle.run import run_cycle
from tests.networks.test_rows_of_pixels import tokens_and_maps
from tests.rtl.session import hold_bits

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")


@pytest.mark.rtl
def test_views_of_pixels_on_the_rtl(rtl):
    hw = opu_fuse.load_hw("opu-tiny")
    compiled = compile_model(tokens_and_maps(9, 4, 6), hw, Options(reuse_memory=False))
    (port,) = compiled.bundle.inputs
    inputs = {port.name: np.random.default_rng(5).normal(size=port.shape).astype(np.float32)}
    functional = Program(bundle=compiled.bundle, hw=hw).run(inputs, capture=True)
    simulated = rtl(hw).run(compiled.bundle, inputs)
    hold_bits(compiled.bundle, functional, simulated)
    assert simulated.counters["cycles"] == run_cycle(compiled.bundle, hw).counters["cycles"]
