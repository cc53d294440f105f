"""Networks for machines with long pipelines: convolutions with a tail of what runs behind them."""

from tests.fuzz import joins, layers, moves, norms, pointwise
from tests.fuzz.random_network import STEPS, Steps
from tests.fuzz.sketch import Sketch, Value

_TAIL: Steps = {
    pointwise.relu: 4.0,
    pointwise.leaky: 3.0,
    pointwise.clip: 4.0,
    pointwise.prelu: 1.5,
    pointwise.table: 2.0,
    norms.norm: 1.5,
    layers.pool: 2.0,
    joins.residual: 2.0,
    joins.gate: 0.5,
    moves.pad: 0.5,
    moves.resize: 0.5,
}


def chain(s: Sketch, x: Value) -> Value:
    """A layer and two to seven operators behind it, each reading the last; now and then without the
    layer.
    """
    y = layers.conv(s, x) if s.chance(0.8) else x
    steps, shares = list(_TAIL), list(_TAIL.values())
    chances = [share / sum(shares) for share in shares]
    for _ in range(s.number(2, 7)):
        y = steps[s.rng.choice(len(steps), p=chances)](s, y)
    return y


CHAINS: Steps = {**STEPS, chain: sum(STEPS.values())}
"""Every other step is a chain."""
