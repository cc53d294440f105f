"""Weights of a quantised model that are written as floats: their integers are found again."""

import time

import numpy as np
import pytest

from opu_fuse.bundle.program import HostSegment
from opu_fuse.frontend.quantization.recover_int_weights import integer_weight
from tests.frontend.test_foreign_qdq_pairs import (
    IMAGE,
    IMAGES,
    MAP,
    PLAIN,
    REAL,
    RNG,
    SHARED,
    VECTORS,
    right,
    written,
)

SCALES = np.array([0.0037, 0.0124, 2**-8, 0.9, 1e-5, 0.0311], np.float32)


def baked(integers: np.ndarray, scales: np.ndarray, axis: int = 0) -> np.ndarray:
    shape = [1] * integers.ndim
    shape[axis] = -1
    return integers.astype(np.float32) * scales.reshape(shape)


def hosted(nodes: str, weight: np.ndarray, **constants: np.ndarray) -> bool:
    """Whether something is left to the host, all results being ONNX Runtime's."""
    x, ports = (IMAGE, IMAGES) if "Conv" in nodes else (IMAGE[:, :, 0, 0], VECTORS)
    bundle = right(written(ports, nodes, SHARED | {"w_r": weight} | constants), x)
    return any(isinstance(s, HostSegment) for s in bundle.segments)


CHANNELS = np.array([1, 0.5, 2, 1, 1, 4], np.float32) / 256
KERNELS = RNG.integers(-128, 128, (6, 4, 3, 3))
UNSIGNED = np.random.default_rng(7).integers(0, 256, KERNELS.shape)
ZEROS = np.reshape([0, 255, 128, 100, 60, 170], (6, 1, 1, 1))
BEHIND_A_RELU = (
    f"{PLAIN} k = Conv<pads=[1,1,1,1]>(x_r, w_r)  c = Relu(k)  c_q = QuantizeLinear(c, s, z) {REAL}"
)
CASES = {
    "a scale for each channel": (PLAIN + MAP + REAL, baked(KERNELS, CHANNELS)),
    "a channel of zeros": (
        PLAIN + MAP + REAL,
        baked(KERNELS * (np.arange(6) != 3)[:, None, None, None], CHANNELS),
    ),
    "less a zero point of uint8": (PLAIN + MAP + REAL, baked(UNSIGNED - ZEROS, CHANNELS)),
    "a dense layer": (
        f"{PLAIN} c = MatMul(x_r, w_r)  c_q = QuantizeLinear(c, s, z) {REAL}",
        baked(KERNELS[:, :, 0, 0].T, CHANNELS, 1),
    ),
    "a rounding behind a Relu": (BEHIND_A_RELU, baked(KERNELS, CHANNELS)),
}


@pytest.mark.parametrize(("nodes", "weight"), CASES.values(), ids=CASES)
def test_the_machine_computes_with_the_integers(nodes: str, weight: np.ndarray):
    assert not hosted(nodes, weight)


def test_a_weight_that_is_no_product_stays_in_floats():
    weight = baked(KERNELS, CHANNELS)
    weight[4, 2, 1, 1] = np.nextafter(weight[4, 2, 1, 1], np.float32(9))
    assert hosted(PLAIN + MAP + REAL, weight)


def test_what_is_not_rounded_is_left_as_it_is():
    assert hosted(f"{PLAIN} y = Conv<pads=[1,1,1,1]>(x_r, w_r)", baked(KERNELS, CHANNELS))


def test_who_else_reads_the_weight_reads_floats():
    nodes = (
        f"{PLAIN} k = Conv<pads=[1,1,1,1]>(x_r, w_r)  f = ReduceSum<keepdims=0>(w_r)"
        f" c = Mul(k, f)  c_q = QuantizeLinear(c, s, z) {REAL}"
    )
    hosted(nodes, baked(KERNELS, CHANNELS))  # gives what ONNX Runtime gives


@pytest.mark.parametrize("top", [128, 127, 113, 64, 5, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_all_numbers_are_products_to_the_bit(top: int, axis: int):
    shape = (6, 40) if axis == 0 else (40, 6)
    integers = RNG.integers(-top, min(top, 127) + 1, shape).astype(np.int8)
    weight = baked(integers, SCALES, axis)
    found = integer_weight(weight, axis)
    assert found is not None
    assert found[0].dtype == np.int8
    assert np.array_equal(found[1].dequantize(found[0]), weight)
    assert np.abs(found[0].astype(int)).max() > 63, "the finest scale"


def test_a_depthwise_weight_with_few_numbers():
    integers = RNG.integers(-127, 128, (500, 1, 3, 3))
    weight = baked(integers, RNG.uniform(1e-4, 1e-1, 500).astype(np.float32))
    found = integer_weight(weight, 0)
    assert found is not None
    assert np.array_equal(found[1].dequantize(found[0]), weight)


@pytest.mark.parametrize(
    "weight",
    [
        np.zeros((4, 9), np.float32),
        RNG.standard_normal((4, 9)).astype(np.float32),
        np.array([[300, 1, 0]], np.float32),
        np.array([[1e-44, 2e-44, 0]], np.float32),
    ],
    ids=["zeros", "noise", "more than 9 bits", "no scale"],
)
def test_no_integers(weight: np.ndarray):
    assert integer_weight(weight, 0) is None


def test_large_weights_take_no_time():
    noise = RNG.standard_normal((1024, 4096)).astype(np.float32)
    product = baked(RNG.integers(-127, 128, noise.shape), np.full(1024, 0.013, np.float32))
    begun = time.process_time()
    assert integer_weight(noise, 0) is None
    assert integer_weight(product, 0) is not None
    assert time.process_time() - begun < 5
