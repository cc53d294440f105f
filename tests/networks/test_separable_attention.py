"""Separable attention of MobileViTv2: softmaxes over pixels and weighted sums on the machine."""

import pytest

from tests.networks import attention_blocks as blocks
from tests.networks.test_attention import on_host, operators, run

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

BLOCKS = {
    "patches": blocks.separable(16, (8, 8)),
    "odd channels": blocks.separable(7, (4, 6)),
    "channels beyond a word": blocks.separable(72, (6, 4)),
    "one row": blocks.separable(9, (5, 7), patch=1),
}


@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("case", BLOCKS)
def test_a_machine_with_norms_weights_pixels_as_onnxruntime(case: str, scales: str):
    program, _, checked = run(BLOCKS[case], "opu-1024a", scales=scales)
    assert on_host(program) == []
    assert {"softmax", "matmul", "transpose"} <= {*operators(program)}
    assert checked.passed
