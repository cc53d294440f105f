"""Random pauses on the channels of cocotbext-axi's bus models."""

import itertools
from typing import Any

import numpy as np

_PERIOD = 997
"""Cycles after which a pattern begins again."""


def stall(channel: Any, share: float, rng: np.random.Generator) -> None:
    """Pause a channel in a share of all cycles, at random; 1 stops it for good."""
    pattern = (rng.random(_PERIOD) < share).tolist()
    channel.set_pause_generator(itertools.cycle(map(int, pattern)))


def stall_all(model: Any, share: float, rng: np.random.Generator) -> None:
    """Pause every channel of a master or slave of AXI or AXI-Lite, each with its own pattern."""
    for name in ("aw", "w", "b"):
        stall(getattr(model.write_if, f"{name}_channel"), share, rng)
    for name in ("ar", "r"):
        stall(getattr(model.read_if, f"{name}_channel"), share, rng)
