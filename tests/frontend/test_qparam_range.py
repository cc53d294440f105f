"""The span of real numbers that int8 covers with free scales: what is seen, or better a part."""

import numpy as np
import pytest

from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.quantization.activation_ranges import Range
from opu_fuse.frontend.quantization.qparam_range import free_quant, relative_error
from opu_fuse.quant import META_KEY, QuantParams


def of(*parts):
    ranges = [
        Range(low=float(p.min()), high=float(p.max()), samples=np.asarray(p, np.float32))
        for p in parts
    ]
    return free_quant(ranges)


def ends(quant):
    return [(q - quant.zero_point) * quant.per_tensor for q in (-128, 127)]


def test_even_values_are_covered_from_end_to_end():
    low, high = ends(of(np.linspace(-1.0, 3.0, 10_001)))
    assert low == pytest.approx(-1.0, abs=0.02)
    assert high == pytest.approx(3.0, abs=0.02)


def test_what_is_never_negative_has_all_256_steps():
    quant = of(np.linspace(0.0, 4.0, 10_001))
    assert quant.zero_point == -128
    assert quant.per_tensor == pytest.approx(4.0 / 255.0)


def test_what_is_far_from_zero_is_covered_from_zero():
    """Padding must be exact."""
    low, high = ends(of(np.linspace(3.0, 4.0, 10_001)))
    assert low == 0.0
    assert high == pytest.approx(4.0, abs=0.02)


@pytest.mark.parametrize("tail", [4.0, 20.0])
def test_the_end_of_a_tail_is_cut_off_where_that_loses_least(tail, rng):
    values = np.abs(rng.laplace(size=100_000))
    values[:3] = tail
    quant = of(values)
    tried = [relative_error(values, s * tail / 255.0, -128) for s in np.linspace(0.3, 1.0, 200)]
    assert relative_error(values, quant.per_tensor, quant.zero_point) <= 1.01 * min(tried)


def test_few_levels_keep_the_scale_that_hits_them():
    """An image of 8 bits: the estimate thinks that its numbers lie anywhere."""
    values = np.repeat(np.arange(256) / 255.0, np.arange(256, 0, -1) ** 2)
    quant = of(values)
    assert relative_error(values, quant.per_tensor, quant.zero_point) < 1e-12


@pytest.mark.parametrize("value", [0.0, 1e-35])
def test_zeros_take_any_scale(value):
    assert of(np.full(100, value)) == QuantParams(scale=(1.0,))


JOINED = """g (float[1, 2, 4, 4] x) => (float[1, 2, 32] y) {
    large = Conv (x, w) small = Conv (x, v)
    a = Reshape (large, shape) b = Reshape (small, shape) y = Concat <axis = 2> (a, b)
}"""


@pytest.mark.parametrize("scales", ["pow2", "free"])
def test_what_the_host_joins_needs_no_common_scale(onnx_text, scales):
    """The Concat is no machine's. All had the scale that is best for the last tensor alone."""
    eye = np.eye(2, dtype=np.float32).reshape(2, 2, 1, 1)
    model = onnx_text(JOINED, w=100.0 * eye, v=0.01 * eye, shape=np.array([1, 2, 16]))
    data = {"x": np.random.default_rng(0).uniform(-1, 1, (4, 1, 2, 4, 4)).astype(np.float32)}
    found = prepare(model, calibration=data, scales=scales).canonical
    quants = {v.name: v.meta[META_KEY] for n in found.graph for v in n.outputs if v.meta}
    assert ends(quants["large"])[1] > 60.0
    assert ends(quants["small"])[1] < 0.05
