"""Products of two computed maps on the RTL: bits of the functional engine, cycles of the cycle
engine.
"""

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.ports import noise
from tests.networks import attention_blocks as blocks
from tests.rtl.session import hold_bits_and_cycles

CASES = {
    "transformer": (blocks.transformer(5, 12, 2), "opu-tiny"),
    "convolutional": (blocks.convolutional(16, 3, 2), "opu-tiny"),
    "linear": (blocks.linear(20, 3, 2), "opu-micro"),
}


@pytest.mark.rtl
@pytest.mark.parametrize("case", CASES)
def test_the_rtl_has_the_bits_and_cycles_of_the_other_engines(case, rtl):
    model, machine = CASES[case]
    hw = load_hw(machine)
    compiled = compile_model(model, hw, Options(reuse_memory=False))
    operators = [op.op for group in compiled.bundle.groups for op in group.ops]
    assert {"matmul", "transpose"} <= {*operators}
    hold_bits_and_cycles(rtl(hw), compiled.bundle, noise(compiled.bundle, seed=5))
