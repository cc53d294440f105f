"""BLAS in float32 is exact here, also where float32 alone would not be."""

import numpy as np
import pytest

from opu_fuse.sim.functional.matmul import int8_product


@pytest.mark.parametrize(
    ("rows", "terms", "columns"),
    [
        (1, 1, 1),
        (3, 1023, 5),
        (2, 1024, 3),
        (9, 2047, 64),
        (200, 4608, 64),
        (7, 64, 4096),
        (1, 25088, 16),
    ],
)
def test_products_are_those_of_integers(rows, terms, columns, rng):
    a = rng.integers(-128, 128, (rows, terms)).astype(np.int8)
    b = rng.integers(-128, 128, (terms, columns)).astype(np.int8)
    expected = a.astype(np.int64) @ b.astype(np.int64)
    assert np.array_equal(int8_product(a, b), expected)


@pytest.mark.parametrize("terms", [1023, 1024, 25088])
def test_the_largest_sums_are_exact(terms):
    """All -128: float32 cannot hold the sum of 1025 products plus one smaller one."""
    a = np.full((3, terms), -128, np.int8)
    b = np.full((terms, 2), -128, np.int8)
    a[0, 0], b[0, 1] = 1, 1
    expected = a.astype(np.int64) @ b.astype(np.int64)
    assert np.array_equal(int8_product(a, b), expected)


def test_sums_wrap_at_32_bits():
    terms = 1 << 17
    found = int8_product(np.full((1, terms), -128, np.int8), np.full((terms, 1), -128, np.int8))
    assert found[0, 0] == -(1 << 31)
