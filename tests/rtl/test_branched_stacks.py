"""Fused stacks with branches and tables that layers share, on the RTL."""

import pytest

from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.ports import noise
from tests.hw.norm_machine import four_pixel_machine
from tests.networks.narrow_branches import block
from tests.rtl.session import hold_bits_and_cycles
from tests.schedule.planned import stacks

pytestmark = [pytest.mark.rtl, pytest.mark.filterwarnings("ignore:no calibration data")]


@pytest.mark.parametrize(
    ("width", "inner", "reuse"), [(4, 4, True), (8, 4, True), (8, 4, False), (16, 16, False)]
)
def test_layers_of_a_stack_write_and_read_parts_of_line_buffers(width, inner, reuse, rtl):
    """reuse: of memory; without it, all tensors are stored and compared."""
    hw = four_pixel_machine()
    options = Options(cascades="always", reuse_memory=reuse)
    compiled = compile_model(block(width, inner, (14, 9)), hw, options)
    assert max(len(each.groups) for each in stacks(compiled.plan)) >= 3
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))
