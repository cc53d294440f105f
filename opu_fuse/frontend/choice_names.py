"""Names of the quantisation options, importable without the quantiser."""

from enum import StrEnum
from typing import Literal


class Scales(StrEnum):
    """Constraints on the activation scales of a float model (`choose_scales.py`)."""

    POW2 = "pow2"
    """Powers of two, zero point 0."""
    ASYMMETRIC = "pow2-asymmetric"
    """Powers of two, any zero point."""
    FREE = "free"
    """Any scale and zero point."""


ScalesLike = Scales | Literal["pow2", "pow2-asymmetric", "free"]
"""As an argument; the names are those above (`tests/api/test_public_api.py`), as below."""


class Method(StrEnum):
    """Calibration method: how the range of an activation is chosen from observed values."""

    MSE = "mse"
    """Range with the least mean squared error."""
    MAX = "max"
    PERCENTILE = "percentile"
    ENTROPY = "entropy"
    """MAX, PERCENTILE and ENTROPY: see `calibration_methods.py`."""


MethodLike = Method | Literal["mse", "max", "percentile", "entropy"]
