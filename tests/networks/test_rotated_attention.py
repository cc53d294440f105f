"""Rotary embeddings, cosine attention and attention of channels run on the machine as a whole."""

import numpy as np
import pytest

from tests.networks import rotated_blocks as blocks
from tests.networks.test_attention import on_host, operators, run

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

ROTARY = {
    "halves": blocks.rotary(9, 24, 3),
    "pairs": blocks.rotary(9, 128, 2, spelling="pairs"),
    "heads that share words": blocks.rotary(33, 96, 3),
    "a class token": blocks.rotary(10, 64, 1, spelling="pairs", class_token=True),
    "several queries for a key": blocks.rotary(17, 128, 2, keys=1),
}
UNIT = {
    "one window": blocks.cosine(1, 13, 64, 1),
    "heads that share words": blocks.cosine(1, 20, 96, 3),
    "windows": blocks.cosine(6, 9, 64, 2),
    "of channels": blocks.cosine(1, 20, 96, 3, of_channels=True),
}


@pytest.mark.parametrize("case", ROTARY)
def test_rotated_heads_are_computed_on_the_machine(case):
    program, _, checked = run(ROTARY[case], "opu-1024a")
    assert checked.passed
    assert on_host(program) == []
    assert operators(program).count("multiply") == 4  # the factor is in the constants


@pytest.mark.parametrize("case", UNIT)
def test_heads_of_length_1_are_normalised_on_the_machine(case):
    program, _, checked = run(UNIT[case], "opu-1024a")
    assert checked.passed
    assert on_host(program) == []
    assert {"rms_norm", "softmax"} <= {*operators(program)}
    assert {"multiply", "batch_norm"}.isdisjoint(operators(program))  # factors are in the norms


@pytest.mark.parametrize("case", ["halves", "heads that share words"])
def test_images_of_a_batch_are_rotated_alike(case):
    program, together, checked = run(ROTARY[case], "opu-1024a", batch=2)
    assert checked.passed
    (port,) = program.bundle.inputs
    x = np.random.default_rng(3).normal(size=(2, *port.shape[1:])).astype(np.float32)
    single = run(ROTARY[case], "opu-1024a")[0].run({port.name: x})
    for name, array in single.outputs.items():
        np.testing.assert_array_equal(array, together.outputs[name])
