"""The machines that a search may propose: a value for every number of a `Design`."""

import math
from typing import Any

from msgspec.structs import replace

from opu_fuse.exploring.design import Design
from opu_fuse.hw.spec.hw_spec import HwSpec

MULTIPLIERS = (2, 32)
"""Of a unit."""
LANES = 8
"""After the array, at least."""

# Powers of two, by their exponents. PARTS: units that add up a word; TURNS: of a word in the chain.
WORD = (3, 6)
MACS = (4, 12)
PARTS = (0, 4)
PIXELS = (0, 2)
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
MODES = (1, 6)
"""Ways to wire the array: every one is another input of the multiplexers around it."""
QUEUE = 256
"""Words of each engine's instruction queue, in every proposal."""


def numbers(spec: HwSpec) -> dict[str, Any]:
    """The parameters with which `propose` comes nearest to this machine."""

    def within(value: float, limits: tuple[int, int]) -> int:
        least, most = limits
        return min(max(math.floor(math.log2(value)), least), most)

    word, array, lanes = spec.word_channels, spec.array, spec.post.lanes
    return {
        "word": within(word, WORD),
        "bus": within(spec.dram.bus_bytes, BUS),
        "turns": within(word / lanes, TURNS),
        "side turns": within(lanes / spec.residual_lanes, TURNS),
        "parts": within(word / array.multipliers, PARTS),
        "macs": within(array.macs, MACS),
        "pixels": within(max(mode.px for mode in array.modes), PIXELS),
        "modes": MODES[1],
        "depthwise": array.depthwise,
        "shifts": spec.numeric.multiplier_bits == 0,
        "side tables": spec.post.residual_tables,
        "width": within(spec.buffers.weight.width, WIDTH),
    } | {name: within(getattr(spec.buffers, name).words, of) for name, of in BUFFERS.items()}


def propose(trial: Any, *, without: tuple[str, ...]) -> Design:
    """The design that an Optuna trial suggests; it may be illegal."""

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
