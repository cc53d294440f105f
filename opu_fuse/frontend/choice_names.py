"""Names of the choices of rounding, for whoever offers them without loading what rounds."""

from enum import StrEnum


class Scales(StrEnum):
    """Of the activations of a float model (`choose_scales.py`)."""

    POW2 = "pow2"
    """Powers of two, zero point 0."""
    ASYMMETRIC = "pow2-asymmetric"
    """Powers of two, any zero point."""
    FREE = "free"
    """Any."""


class Method(StrEnum):
    """How the span of an activation's numbers is chosen from calibration data."""

    MSE = "mse"
    """The least squared error."""
    MAX = "max"
    PERCENTILE = "percentile"
    ENTROPY = "entropy"
    """These say which numbers are to be held (`calibration_methods.py`)."""
