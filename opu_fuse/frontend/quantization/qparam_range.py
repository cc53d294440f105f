"""The range of real numbers that int8 covers, with arbitrary scale and zero point.

A wide range rounds coarsely, a narrow one clips values. Both errors are estimated for many pairs of
ends at once: rounding noise is a twelfth of the squared step, and clipping errors are summed. This
is the method `mse`; the others do not weigh the two errors (`calibration_methods.py`).
"""

from collections.abc import Sequence

import numpy as np

from opu_fuse.frontend.quantization.activation_ranges import Range
from opu_fuse.quant import LEAST, QuantParams, covering

SHARES = np.linspace(1.0, 0.3, 36)
"""Fractions of each extreme that are tried as that end of the range."""


def free_quant(read: Sequence[Range]) -> QuantParams:
    """The scale and zero point with the least error on tensors that share them; zero is exact."""
    low = min(0.0, *(r.low for r in read))
    high = max(0.0, *(r.high for r in read))
    if high - low < LEAST:
        return QuantParams(scale=(1.0,))
    parts = [r.samples.astype(np.float64) for r in read]
    lows, highs = np.unique(low * SHARES), np.unique(high * SHARES)
    losses = sum(_losses(part, lows, highs) for part in parts)
    i, j = np.unravel_index(np.argmin(losses), (len(lows), len(highs)))
    tried = covering(low, high), covering(lows[i], highs[j])
    return min(
        tried, key=lambda q: sum(relative_error(p, q.per_tensor, q.zero_point) for p in parts)
    )


def relative_error(values: np.ndarray, scale: float, zero_point: int = 0) -> float:
    """Noise-to-signal power ratio of values quantised to int8."""
    values = values.astype(np.float64)
    power = float(np.mean(np.square(values)))
    if power == 0.0:
        return 0.0
    steps = np.clip(np.rint(values / scale), -128 - zero_point, 127 - zero_point)
    return float(np.mean(np.square(values - steps * scale))) / power


def _losses(values: np.ndarray, lows: np.ndarray, highs: np.ndarray) -> np.ndarray:
    """[lows, highs]: estimated noise-to-signal power ratio of a range with these ends."""
    power = float(np.sum(np.square(values)))
    if power == 0.0:
        return np.zeros((len(lows), len(highs)))
    clipped_above, count_above = _beyond(np.sort(values), highs)
    clipped_below, count_below = _beyond(np.sort(-values), -lows)
    unclipped = np.count_nonzero(values) - count_below[:, None] - count_above  # zeros are exact
    steps = (highs - lows[:, None]) / 255.0
    return (unclipped * np.square(steps) / 12.0 + clipped_below[:, None] + clipped_above) / power


def _beyond(ordered: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per end: sum of squared distances of the values beyond it, and their number."""
    largest = ordered[::-1]
    sums, squares = (np.append(0.0, np.cumsum(v)) for v in (largest, np.square(largest)))
    count = len(ordered) - np.searchsorted(ordered, ends, side="right")
    return squares[count] - 2.0 * ends * sums[count] + np.square(ends) * count, count
