"""Calibration methods that look at a map's values alone: which numbers its int8 form has to hold.

    max         every number that was seen
    percentile  all but COVERED of them, as many cut off at either end
    entropy     the share of the extremes whose rounded values tell most about the values: least
                divergence (Kullback-Leibler) of their histogram from that of the values, those cut
                off counted at the ends

The method `mse` weighs both losses against each other, in `qparam_range.py` and `choose_scales.py`.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from opu_fuse.frontend.choice_names import Method
from opu_fuse.frontend.quantization.activation_ranges import Range

COVERED = 99.99
"""Percent of the values, as in ONNX Runtime's calibrators (99.999 there, of all values)."""
SHARES = np.linspace(1.0, 0.3, 36)
"""Of the extremes, tried by `entropy`."""
_LEVELS = 256
_BINS = 16 * _LEVELS
"""Of the histogram between the extremes: some for each step even of the narrowest span."""


def ends(read: Sequence[Range], method: str) -> tuple[float, float]:
    """(lowest, highest) number to be held for all of these, zero between them; not for `mse`."""
    found = [(0.0, 0.0), *(_ENDS[method](r) for r in read)]
    return min(low for low, _ in found), max(high for _, high in found)


def _extremes(r: Range) -> tuple[float, float]:
    return r.low, r.high


def _percentile(r: Range) -> tuple[float, float]:
    cut = (100.0 - COVERED) / 2.0
    low, high = np.percentile(r.kept, [cut, 100.0 - cut])
    return float(low), float(high)


def _entropy(r: Range) -> tuple[float, float]:
    low, high = min(r.low, 0.0), max(r.high, 0.0)
    values = r.kept[r.kept != 0.0]  # exact in every span
    if not values.size or high <= low:
        return low, high
    counts, edges = np.histogram(values, _BINS, range=(low, high))
    middles = (edges[1:] + edges[:-1]) / 2.0
    best = min(SHARES, key=lambda share: _divergence(counts, middles, share * low, share * high))
    return float(best * low), float(best * high)


def _divergence(counts: np.ndarray, middles: np.ndarray, low: float, high: float) -> float:
    """Of the histogram of values (counts at middles) from that of their rounded form, spread
    evenly over the bins of a step that hold any.
    """
    inside = (middles >= low) & (middles <= high)
    seen = counts[inside].astype(np.float64)
    steps = np.clip((middles[inside] - low) / (high - low) * _LEVELS, 0, _LEVELS - 1).astype(int)
    held, filled = np.bincount(steps, seen), np.bincount(steps, seen > 0.0)
    spread = np.where(seen > 0.0, held[steps] / np.maximum(filled[steps], 1.0), 0.0)
    if not spread.sum():
        return np.inf
    real = seen.copy()
    real[[0, -1]] += counts[middles < low].sum(), counts[middles > high].sum()
    some = real > 0.0
    p, q = real[some] / real.sum(), spread[some] / spread.sum()
    q[q == 0.0] = 1.0 / real.sum()  # at an end, where nothing stands for what was cut off
    return float(np.sum(p * np.log(p / q)))


_ENDS: Mapping[str, Callable[[Range], tuple[float, float]]] = {
    Method.MAX: _extremes,
    Method.PERCENTILE: _percentile,
    Method.ENTROPY: _entropy,
}
