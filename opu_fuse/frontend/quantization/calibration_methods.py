"""Calibration methods that select the range of a map that its int8 form covers.

    max         the extremes of all observed values
    percentile  the range of COVERED percent of them, clipping equally many at either end
    entropy     the fraction of the extremes with the least Kullback-Leibler divergence between the
                histograms of the values and of their quantised form; clipped values count at the
                ends

The method `mse` trades rounding for clipping error, in `qparam_range.py` and `choose_scales.py`.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from opu_fuse.frontend.choice_names import Method
from opu_fuse.frontend.quantization.activation_ranges import Range

COVERED = 99.99
"""Percent of the values, as in ONNX Runtime's calibrators (which use 99.999, of all values)."""
SHARES = np.linspace(1.0, 0.3, 36)
"""Fractions of the extremes that `entropy` tries."""
_LEVELS = 256
_BINS = 16 * _LEVELS
"""Histogram bins between the extremes: several per step even of the narrowest range."""


def ends(read: Sequence[Range], method: str) -> tuple[float, float]:
    """(lowest, highest) number to cover for all of `read`, zero included. Not for `mse`."""
    ranges = [(0.0, 0.0), *(_ENDS[method](r) for r in read)]
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _extremes(r: Range) -> tuple[float, float]:
    return r.low, r.high


def _percentile(r: Range) -> tuple[float, float]:
    cut = (100.0 - COVERED) / 2.0
    low, high = np.percentile(r.samples, [cut, 100.0 - cut])
    return float(low), float(high)


def _entropy(r: Range) -> tuple[float, float]:
    low, high = min(r.low, 0.0), max(r.high, 0.0)
    values = r.samples[r.samples != 0.0]  # exact in every span
    if not values.size or high <= low:
        return low, high
    counts, edges = np.histogram(values, _BINS, range=(low, high))
    middles = (edges[1:] + edges[:-1]) / 2.0
    best = min(SHARES, key=lambda share: _divergence(counts, middles, share * low, share * high))
    return float(best * low), float(best * high)


def _divergence(counts: np.ndarray, middles: np.ndarray, low: float, high: float) -> float:
    """Kullback-Leibler divergence of a histogram (counts at middles) from its quantised form.

    The count of a quantisation step is distributed evenly over its nonempty bins.
    """
    in_range = (middles >= low) & (middles <= high)
    seen = counts[in_range].astype(np.float64)
    steps = np.clip((middles[in_range] - low) / (high - low) * _LEVELS, 0, _LEVELS - 1).astype(int)
    held, filled = np.bincount(steps, seen), np.bincount(steps, seen > 0.0)
    spread = np.where(seen > 0.0, held[steps] / np.maximum(filled[steps], 1.0), 0.0)
    if not spread.sum():
        return np.inf
    real = seen.copy()
    real[[0, -1]] += counts[middles < low].sum(), counts[middles > high].sum()
    nonzero = real > 0.0
    p, q = real[nonzero] / real.sum(), spread[nonzero] / spread.sum()
    q[q == 0.0] = 1.0 / real.sum()  # at an end, where no bin represents the clipped values
    return float(np.sum(p * np.log(p / q)))


_ENDS: Mapping[str, Callable[[Range], tuple[float, float]]] = {
    Method.MAX: _extremes,
    Method.PERCENTILE: _percentile,
    Method.ENTROPY: _entropy,
}
