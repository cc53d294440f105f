"""Mean and variance of an operator's result, for normal input.

Activations neither vanish nor explode when random weights are scaled by the spread that their input
is expected to have. These functions compute it without running anything.
"""

from collections.abc import Callable, Sequence
from math import erf, exp, pi, sqrt

import numpy as np

_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_SHARES = _WEIGHTS / _WEIGHTS.sum()

Moments = tuple[float, float]
"""Mean, variance."""


def rectified(mean: float, var: float) -> Moments:
    """First and second moment of max(x, 0) for normal x."""
    s = sqrt(var)
    below = 0.5 * (1.0 + erf(mean / (s * sqrt(2.0))))
    density = exp(-0.5 * (mean / s) ** 2) / sqrt(2.0 * pi)
    return mean * below + s * density, (mean**2 + var) * below + mean * s * density


def relu(mean: float, var: float) -> Moments:
    """Moments of max(x, 0)."""
    first, second = rectified(mean, var)
    return first, second - first**2


def smooth(function: Callable[[np.ndarray], np.ndarray], mean: float, var: float) -> Moments:
    """Moments of a smooth function of x, by Gauss-Hermite quadrature."""
    values = function(mean + sqrt(var) * _POINTS)
    first = float(_SHARES @ values)
    return first, float(_SHARES @ np.square(values)) - first**2


def joined(parts: Sequence[tuple[float, Moments]]) -> Moments:
    """Moments of values drawn from several sources; parts: (number of values, moments) of each."""
    total = sum(count for count, _ in parts)
    mean = sum(count * m for count, (m, _) in parts) / total
    square = sum(count * (v + m**2) for count, (m, v) in parts) / total
    return mean, square - mean**2


def product(a: Moments, b: Moments) -> Moments:
    """Moments of the product of independent values."""
    (ma, va), (mb, vb) = a, b
    return ma * mb, va * vb + va * mb**2 + vb * ma**2


def filters(
    rng: np.random.Generator,
    shape: Sequence[int],
    x: Moments,
    *,
    target: float = 1.0,
    centred: bool = True,
    seen: float = 1.0,
) -> np.ndarray:
    """float32 weights [output channels, ...] with which sums of products over x have deviation
    `target`.

    centred: every filter has mean zero, so that the mean of x does not matter; without, the mean is
    counted as spread (for inputs that are nearly constant). seen: share of the products that count.
    """
    terms = int(np.prod(shape[1:]))
    weights = rng.standard_normal(shape, dtype=np.float32)
    mean, var = x
    spread = var if centred else var + mean**2
    if centred and terms > 1:
        weights -= weights.mean(axis=tuple(range(1, len(shape))), keepdims=True)
    weights *= np.float32(target / sqrt(spread * terms * seen))
    return weights
