"""Is a tensor alive? Comparisons of dead (constant or saturated) tensors prove nothing."""

import numpy as np
from msgspec import Struct

from opu_fuse.fixedpoint import INT8_MAX, INT8_MIN

MIN_DISTINCT = 32
MAX_SATURATED = 0.05


class Liveness(Struct, frozen=True, kw_only=True):
    """distinct: number of different values; saturated: fraction of elements at -128 or 127 (0..1);
    size: elements.
    """

    distinct: int
    saturated: float
    size: int

    @property
    def alive(self) -> bool:
        """At least MIN_DISTINCT different values and under MAX_SATURATED of them saturated."""
        return self.distinct >= MIN_DISTINCT and self.saturated < MAX_SATURATED


def liveness(array: np.ndarray, zero_point: int = 0) -> Liveness:
    """Distinct values and saturation of an int8 tensor of any shape.

    zero_point: of the tensor; where it is an end of the range, that end is the real 0.0 (of a relu)
    and does not saturate.
    """
    flat = np.asarray(array).reshape(-1)
    ends = sum(np.count_nonzero(flat == end) for end in (INT8_MIN, INT8_MAX) if end != zero_point)
    return Liveness(
        distinct=len(np.unique(flat)), saturated=float(ends) / max(flat.size, 1), size=flat.size
    )
