"""Networks for machines with long pipelines: convolutions with a tail of what runs behind them."""

from tests.fuzz import joins, layers, moves, pointwise
from tests.fuzz.random_network import STEPS, Steps
from tests.fuzz.sketch import Sketch, Value

_TAIL: Steps = {
    pointwise.relu: 4.0,
    pointwise.leaky: 2.0,
    pointwise.clip: 3.0,
    pointwise.table: 2.0,
    layers.pool: 2.0,
    joins.residual: 2.0,
    joins.gate: 1.0,
    moves.pad: 0.7,
    moves.resize: 0.7,
}


def chain(s: Sketch, x: Value) -> Value:
    """A layer and two to eight operators behind it, each reading the last; now and then without the
    layer.
    """
    y = layers.conv(s, x) if s.chance(0.8) else x
    steps, shares = list(_TAIL), list(_TAIL.values())
    chances = [share / sum(shares) for share in shares]
    for _ in range(s.number(2, 8)):
        y = steps[s.rng.choice(len(steps), p=chances)](s, y)
    return y


CHAINS: Steps = {**STEPS, chain: sum(STEPS.values())}
"""Every other step is a chain."""
