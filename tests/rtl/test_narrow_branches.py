"""Narrow branches on the RTL: bits and cycles of the other engines."""

from itertools import count

import pytest

from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule import packed_copies, two_results
from opu_fuse.sim.ports import noise
from tests.hw.norm_machine import four_pixel_machine
from tests.networks.narrow_branches import block, sums, upsampled
from tests.rtl.session import hold_bits_and_cycles

pytestmark = [pytest.mark.rtl, pytest.mark.filterwarnings("ignore:no calibration data")]

NETWORKS = {
    "sum of four pixels, packed copy": block(4, 4, (9, 15)),
    "sum of two pixels in the second slot": block(8, 4, (6, 13)),
    "sum of two pixels in half of a slot": block(4, 8, (5, 8)),
    "upsampled second result": upsampled(20, (9, 7)),
    "sums of four pixels, joined copy": sums(4, (6, 13)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_narrow_branches_have_the_bits_and_cycles_of_the_other_engines(name, rtl, monkeypatch):
    faster = count(0, -1)
    monkeypatch.setattr(packed_copies, "_cycles", lambda *_: next(faster))
    monkeypatch.setattr(two_results, "fastest", lambda now, others, *_: next(others, now))
    hw = four_pixel_machine()
    compiled = compile_model(NETWORKS[name], hw, Options(reuse_memory=False))
    shapes = [part.shape for parts in compiled.plan.layers.values() for part in parts]
    assert compiled.plan.two_results or any(
        shape.sides and (shape.spread or shape.px == 4) for shape in shapes
    )
    assert any(shape.repacks for shape in shapes) or not name.endswith("copy")
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))
