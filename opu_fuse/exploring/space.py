"""The machines that a search may propose: a value for every number of a `Design`."""

from typing import Any

from opu_fuse.exploring.design import Design

WORDS = (8, 16, 32, 64)
UNITS = (4, 8, 16, 32, 64, 128)
MULTIPLIERS = (2, 4, 8, 16, 32)
PIXELS = (1, 2, 4)
TABLES = (0, 8)
"""Sixteenths of a unit's products in tables."""
LANES = 8
"""Behind the array, at least."""

# Powers of two, by their exponents.
TURNS = (0, 3)
BUS = (2, 6)
WIDTH = (2, 6)
BUFFERS = {
    "feature": (7, 13),
    "weight": (7, 12),
    "param": (7, 10),
    "residual": (5, 12),
    "psum": (5, 12),
    "output": (5, 12),
}
QUEUE = 256


def propose(trial: Any, *, without: tuple[str, ...]) -> Design:
    """What an Optuna trial suggests; it need not be a machine."""

    def power(name: str, limits: tuple[int, int]) -> int:
        return 1 << trial.suggest_int(name, *limits)

    word = trial.suggest_categorical("word", WORDS)
    bus = min(power("bus", BUS), 1 << (word - 1).bit_length())
    lanes = max(LANES, word >> trial.suggest_int("turns", *TURNS))
    side_lanes = max(LANES, lanes >> trial.suggest_int("side turns", *TURNS))
    multipliers = trial.suggest_categorical("multipliers", MULTIPLIERS)
    return Design(
        word=word,
        lanes=lanes,
        side_lanes=side_lanes if side_lanes < lanes == word else 0,
        side_tables=trial.suggest_categorical("side tables", (False, True)),
        units=trial.suggest_categorical("units", UNITS),
        multipliers=multipliers,
        tables=multipliers * trial.suggest_int("tables", *TABLES) // 32 * 2,
        pixels=trial.suggest_categorical("pixels", PIXELS),
        depthwise=trial.suggest_categorical("depthwise", (False, True)),
        shifts=trial.suggest_categorical("shifts", (False, True)),
        bus=bus,
        width=max(bus, power("width", WIDTH)),
        queue=QUEUE,
        without=without,
        **{name: power(name, limits) for name, limits in BUFFERS.items()},
    )
