"""Dead tensors compare equal whatever the arithmetic does: they must be seen."""

import numpy as np

from opu_fuse.dfg.liveness import liveness


def test_a_spread_tensor_is_alive():
    assert liveness(np.arange(-100, 100, dtype=np.int8)).alive


def test_few_values_or_many_saturated_ones_are_dead():
    assert not liveness(np.tile(np.arange(31, dtype=np.int8), 10)).alive
    clipped = np.clip(np.arange(-200, 200), -128, 127).astype(np.int8)
    found = liveness(clipped)
    assert found.distinct == 256
    assert found.saturated > 0.3
    assert not found.alive


def test_the_zero_of_a_relu_at_the_end_of_the_range_is_no_saturation():
    relu = np.concatenate([np.full(100, -128), np.arange(-128, 100)]).astype(np.int8)
    assert not liveness(relu).alive
    assert liveness(relu, zero_point=-128).alive
