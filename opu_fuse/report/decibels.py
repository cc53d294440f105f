"""What a signal-to-noise ratio means, for whoever has no feeling for decibels."""

import math

_SCALE = (
    (40.0, "very good"),
    (30.0, "good"),
    (20.0, "fair: check the task's own metric"),
    (10.0, "poor"),
    (-math.inf, "unusable"),
)
"""From so many decibels on. Each band is a factor of about three in the error."""


def snr_meaning(ratio: float | None) -> str:
    """A word for a ratio in decibels; None: there is no noise."""
    if ratio is None:
        return "exact"
    return next(word for least, word in _SCALE if ratio >= least or least == -math.inf)


def relative_error(ratio: float) -> float:
    """Root mean square of the error as a share of the signal's."""
    return 10.0 ** (-ratio / 20.0)


def scale_lines() -> list[str]:
    """The scale of the words, from the best to the worst."""
    bands = ", ".join(
        f"{least:g} dB and more {word.partition(':')[0]}"
        for least, word in _SCALE
        if math.isfinite(least)
    )
    meaning = (
        "SNR: power of the signal over power of the error; 20 dB: an error of 10 %, 40 dB: 1 %, "
        "+6 dB: half the error"
    )
    return [meaning, f"rule of thumb: {bands}, below unusable"]
