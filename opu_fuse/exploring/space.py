"""The machines that a search may propose: ranges of the parameters of a `Design`.

The sampler draws parameters in the order of their names, so another name gives another search.
"""

import math
from typing import Any

from msgspec.structs import replace

from opu_fuse.exploring.design import Design
from opu_fuse.hw.spec.hw_spec import HwSpec

MULTIPLIERS = (2, 32)
"""Fewest and most multipliers of a unit."""
LANES = 8
"""Fewest lanes of the post chain."""

# Powers of two, as their least and largest exponents.
WORD = (3, 6)
"""Channels of a word."""
MACS = (4, 12)
"""Multiplications of the array per cycle."""
PARTS = (0, 4)
"""Units whose sums together cover a word."""
PIXELS = (0, 2)
"""Pixels per cycle in the widest array mode."""
TURNS = (0, 3)
"""Cycles that a word takes in the post chain, and the lanes of one cycle in a unit with a second
operand ("side").
"""
BUS = (2, 6)
"""Bytes of the data bus."""
WIDTH = (2, 6)
"""Bytes of a weight word."""
BUFFERS = {
    "feature": (7, 13),
    "weight": (7, 12),
    "param": (7, 10),
    "residual": (5, 12),
    "psum": (5, 12),
    "output": (5, 12),
}
"""Words of a buffer, all banks."""

MODES = (1, 6)
"""Fewest and most array modes: each is one more input of the multiplexers around the array."""
QUEUE = 256
"""Words of each engine's instruction queue, in every proposal."""


def parameters_of(spec: HwSpec) -> dict[str, Any]:
    """The parameters, by name, with which `propose` comes nearest to a machine."""

    def exponent(value: float, limits: tuple[int, int]) -> int:
        least, most = limits
        return min(max(math.floor(math.log2(value)), least), most)

    word, array, lanes = spec.word_channels, spec.array, spec.post.lanes
    return {
        "word": exponent(word, WORD),
        "bus": exponent(spec.dram.bus_bytes, BUS),
        "turns": exponent(word / lanes, TURNS),
        "side turns": exponent(lanes / spec.residual_lanes, TURNS),
        "parts": exponent(word / array.multipliers, PARTS),
        "macs": exponent(array.macs, MACS),
        "pixels": exponent(max(mode.px for mode in array.modes), PIXELS),
        "modes": MODES[1],
        "depthwise": array.depthwise,
        "shifts": spec.numeric.multiplier_bits == 0,
        "side tables": spec.post.residual_tables,
        "width": exponent(spec.buffers.weight.width, WIDTH),
    } | {name: exponent(getattr(spec.buffers, name).words, of) for name, of in BUFFERS.items()}


def propose(trial: Any, *, without: tuple[str, ...]) -> Design:
    """The design that an Optuna trial suggests; it may be illegal.

    without: optional features that it leaves out (`design.OPTIONS`).
    """

    def power(name: str, limits: tuple[int, int]) -> int:
        return 1 << trial.suggest_int(name, *limits)

    word = power("word", WORD)
    bus = min(power("bus", BUS), word)
    lanes = max(LANES, word >> trial.suggest_int("turns", *TURNS))
    side_lanes = max(LANES, lanes >> trial.suggest_int("side turns", *TURNS))
    fewest, most = MULTIPLIERS
    multipliers = min(max(word >> trial.suggest_int("parts", *PARTS), fewest), most)
    shifts = trial.suggest_categorical("shifts", (False, True))
    side_tables = trial.suggest_categorical("side tables", (False, True))
    design = Design(
        word=word,
        lanes=lanes,
        side_lanes=side_lanes if side_lanes < lanes == word else 0,
        side_tables=side_tables and not shifts and "gates" in without,
        units=max(power("macs", MACS) // multipliers, 1),
        multipliers=multipliers,
        pixels=power("pixels", PIXELS),
        depthwise=trial.suggest_categorical("depthwise", (False, True)),
        shifts=shifts,
        bus=bus,
        width=max(bus, power("width", WIDTH)),
        queue=QUEUE,
        without=without,
        **{name: power(name, limits) for name, limits in BUFFERS.items()},
    )
    modes = trial.suggest_int("modes", *MODES)
    return replace(design, modes=min(modes, len(tuple(design.all_modes()))))
