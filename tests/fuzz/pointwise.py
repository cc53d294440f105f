"""What works element by element: activations, also those spelt in several nodes, and constants."""

import math
from collections.abc import Callable

import numpy as np

from tests.fuzz.sketch import Sketch, Value


def relu(s: Sketch, x: Value) -> Value:
    return s.same("Relu", x)


def leaky(s: Sketch, x: Value) -> Value:
    return s.same("LeakyRelu", x, alpha=float(s.pick((0.01, 0.1, 0.125, 0.25, 0.5, 0.3))))


def prelu(s: Sketch, x: Value) -> Value:
    shape = s.pick(((1,), (x.channels, 1, 1), (1, x.channels, 1, 1)))
    return s.same("PRelu", x, s.numbers(shape, 0.05, 0.5))


def clip(s: Sketch, x: Value) -> Value:
    low, high = s.pick(((0.0, 6.0), (0.0, 6.0), (-1.0, 1.0), (0.0, 1.0), (-0.5, 2.0)))
    ends = [s.constant(np.array(low, np.float32)), s.constant(np.array(high, np.float32))]
    if s.chance(0.1):
        ends[0] = ""
    elif s.chance(0.1):
        ends.pop()
    return s.same("Clip", x, *ends)


def table(s: Sketch, x: Value) -> Value:
    """A function of one value."""
    op = str(s.pick([f for f in _FUNCTIONS if s.opset >= _SINCE.get(f, 0)]))
    form = {"alpha": 0.7} if op in {"Elu", "Celu"} and s.chance(0.5) else {}
    if op == "HardSigmoid" and s.chance(0.5):
        form = {"alpha": 1 / 6, "beta": 0.5}
    return s.same(op, x, **form)


_FUNCTIONS = (
    *("Sigmoid", "HardSigmoid", "Tanh", "HardSwish", "Elu", "Selu", "Softplus", "Softsign"),
    *("Celu", "Abs", "Neg", "Erf", "Sin", "ThresholdedRelu", "Mish", "Gelu"),
)
_SINCE = {"HardSwish": 14, "Mish": 18, "Gelu": 20}


def gated_by_itself(s: Sketch, x: Value) -> Value:
    """x · f(x): Swish, x · tanh(x), Mish and Gelu as exporters spell them."""
    how = s.number(0, 4)
    if how < 3:
        inner = s.same(str(s.pick(("Sigmoid", "Sigmoid", "Tanh", "HardSigmoid"))), x)
    elif how == 3:
        inner = s.same("Tanh", s.same("Softplus", x))
    else:
        half = s.same("Div", x, s.constant(np.array(math.sqrt(2.0), np.float32)))
        one = s.same("Add", s.same("Erf", half), s.constant(np.array(1.0, np.float32)))
        return s.same("Mul", s.same("Mul", x, one), s.constant(np.array(0.5, np.float32)))
    return s.same("Mul", *((x, inner) if s.chance(0.5) else (inner, x)))


def extreme(s: Sketch, x: Value) -> Value:
    """Max and Min with a constant."""
    bound = 0.0 if s.chance(0.5) else float(s.rng.uniform(-1.0, 1.0))
    op = "Max" if bound == 0.0 or s.chance(0.5) else "Min"
    return s.same(op, x, s.constant(np.array(bound, np.float32)))


def arithmetic(s: Sketch, x: Value) -> Value:
    """A constant added, subtracted, multiplied or divided by: per tensor, channel or element."""
    c = x.channels
    op = str(s.pick(("Add", "Add", "Mul", "Mul", "Sub", "Div")))
    shapes = [(), (1,), (c, 1, 1), (c, 1, 1), (1, c, 1, 1), (1, c, 1, 1)]
    shape = s.pick(shapes) if s.chance(0.9) else s.pick((x.shape, x.shape[1:], (x.shape[3],)))
    low, high = (0.4, 2.0) if op in {"Mul", "Div"} else (-1.0, 1.0)
    data = s.rng.uniform(low, high, shape).astype(np.float32)
    if op == "Mul" and s.chance(0.2):
        data = data * s.rng.choice([-1.0, 1.0], shape)
    operand = s.constant(np.asarray(data, np.float32))
    if op != "Div" and s.chance(0.2):
        return s.node(op, (operand, x), x.shape)
    return s.same(op, x, operand)


def nothing(s: Sketch, x: Value) -> Value:
    op = str(s.pick(("Identity", "Dropout", "Cast")))
    return s.same(op, x, **({"to": 1} if op == "Cast" else {}))


def several(s: Sketch, x: Value) -> Value:
    """Activations one behind the other."""
    for _ in range(s.number(2, 3)):
        x = s.pick((relu, relu, leaky, clip, table, arithmetic))(s, x)
    return x


ACTIVATIONS: dict[Callable[[Sketch, Value], Value], float] = {
    relu: 5.0,
    leaky: 2.0,
    prelu: 1.0,
    clip: 2.0,
    table: 3.0,
    gated_by_itself: 2.0,
    extreme: 0.5,
    arithmetic: 3.0,
    nothing: 0.5,
    several: 1.0,
}


def activate(s: Sketch, x: Value) -> Value:
    """Any of them."""
    weights = np.array(list(ACTIVATIONS.values()))
    return list(ACTIVATIONS)[s.rng.choice(len(weights), p=weights / weights.sum())](s, x)
