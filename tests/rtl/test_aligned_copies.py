"""Maps copied to other lanes, and turned between layers, on the RTL: bits and cycles of the other
engines.
"""

import pytest

from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.ports import noise
from tests.hw.norm_machine import four_pixel_machine
from tests.networks import joined_narrowly, token_mixers
from tests.rtl.session import hold_bits_and_cycles

pytestmark = [pytest.mark.rtl, pytest.mark.filterwarnings("ignore:no calibration data")]

NETWORKS = {
    "a copy before a norm": joined_narrowly.normalised((7, 20, 5)),
    "a copy before a split": joined_narrowly.split_after(7),
    "a copy before sums": joined_narrowly.grown(19, 23),
    "mixed tokens": token_mixers.mixer(24, 3, 16),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_moved_channels_have_the_bits_and_cycles_of_the_other_engines(name, rtl):
    hw = four_pixel_machine()
    compiled = compile_model(NETWORKS[name], hw, Options(reuse_memory=False))
    assert not compiled.bundle.hosts
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))
