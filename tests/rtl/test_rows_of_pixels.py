"""Views of pixels on the RTL: bits of the functional engine, cycles of the cycle engine."""

import pytest

import opu_fuse
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.ports import noise
from tests.networks.test_rows_of_pixels import tokens_and_maps
from tests.rtl.session import hold_bits_and_cycles

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")


@pytest.mark.rtl
def test_views_of_pixels_on_the_rtl(rtl):
    hw = opu_fuse.load_hw("opu-tiny")
    compiled = compile_model(tokens_and_maps(9, 4, 6), hw, Options(reuse_memory=False))
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))
