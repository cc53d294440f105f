"""Integer matrix products through BLAS, in pieces small enough for one thread.

OpenBLAS starts its threads for larger products and lets them spin while they wait for each other:
on a busy machine that is ten times slower than one thread, and for tiles of this size never faster.
"""

import numpy as np

_ONE_THREAD = 1 << 18
"""Largest m * k * n that OpenBLAS computes in the calling thread."""

_EXACT_TERMS = 1023
"""int8 products whose sum float32 holds exactly: 1023 * 128 * 128 < 2**24."""

_ROWS = 8


def int8_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """int8 (rows, terms) @ int8 (terms, columns) -> int32, wrapped at 32 bits as in the machine."""
    rows, terms = a.shape
    columns = b.shape[1]
    step = max(1, min(_EXACT_TERMS, _ONE_THREAD // (_ROWS * columns)))
    left, right = a.astype(np.float32), b.astype(np.float32)
    total = np.zeros((rows, columns), np.int32)
    for start in range(0, terms, step):
        total += _piecewise(left[:, start : start + step], right[start : start + step])
    return total


def _piecewise(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """float32 product as int32, a few rows at a time; at most 1023 terms."""
    rows, (terms, columns) = len(left), right.shape
    height = max(1, _ONE_THREAD // (terms * columns))
    whole = rows // height
    result = np.empty((rows, columns), np.int32)
    if whole:
        blocks = left[: whole * height].reshape(whole, height, terms)
        result[: whole * height] = (blocks @ right).reshape(-1, columns)
    if whole * height < rows:
        result[whole * height :] = left[whole * height :] @ right
    return result
