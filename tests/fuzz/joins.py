"""What reads several values: residuals, gates, concatenations."""

import numpy as np

from tests.fuzz.layers import global_pool, pointwise
from tests.fuzz.pointwise import activate
from tests.fuzz.sketch import MOST_ELEMENTS, Sketch, Value


def _alike(s: Sketch, x: Value) -> Value:
    """Another map of x's shape: one that exists, or one made from a map of its size."""
    same = [v for v in s.maps if v.shape == x.shape and v is not x]
    if same and s.chance(0.7):
        return s.pick(same)
    of_size = [v for v in s.maps if v.size == x.size]
    return pointwise(s, s.pick(of_size) if of_size else x, x.channels)


def residual(s: Sketch, x: Value) -> Value:
    """Two maps of one shape, seldom the same one twice."""
    y = x if s.chance(0.05) else _alike(s, x)
    if s.chance(0.4):
        x = activate(s, x)
    if x.shape != y.shape:
        return x
    op = str(s.pick(("Add",) * 6 + ("Sub", "Sub", "Mul", "Max", "Min")))
    return s.same(op, *((x, y) if s.chance(0.5) else (y, x)))


def linear_unit(s: Sketch, x: Value) -> Value:
    """Parts of one convolution meet: one times a function of another (GLU), or the like."""
    count, each = s.number(2, 3), s.channels(40)
    whole = pointwise(s, x, count * each)
    if s.chance(0.3):
        whole = activate(s, whole)
    shape = (1, each, *x.size)
    form = {"num_outputs": count} if s.opset >= 18 else {}
    parts = s.nodes("Split", (whole,), [shape] * count, axis=1, **form)
    gate = s.same(str(s.pick(("Sigmoid", "Sigmoid", "Tanh", "Relu", "Identity"))), parts[1])
    pair = (parts[0], gate) if s.chance(0.6) else (gate, parts[0])
    made = s.same(str(s.pick(("Mul", "Mul", "Add", "Sub"))), *pair)
    return s.same("Add", made, parts[-1]) if count > 2 and s.chance(0.7) else made


def summed(s: Sketch, x: Value) -> Value:
    """Sum and Mean of one to three."""
    others = [_alike(s, x) for _ in range(s.number(0, 2))]
    return s.same("Mean" if s.chance(0.1) else "Sum", x, *others)


def gate(s: Sketch, x: Value) -> Value:
    """Squeeze and excite, with its neighbours: often a residual sum behind."""
    c = x.channels
    y = global_pool(s, x)
    if s.chance(0.8):
        y = pointwise(s, y, max(1, c // s.number(2, 4)))
        y = s.same(str(s.pick(("Relu", "Relu", "LeakyRelu", "Tanh"))), y)
        y = pointwise(s, y, c)
    y = s.same(str(s.pick(("Sigmoid", "Sigmoid", "HardSigmoid", "Tanh"))), y)
    made = s.node("Mul", (x, y) if s.chance(0.7) else (y, x), x.shape)
    if s.chance(0.5):
        other = x if s.chance(0.5) else _alike(s, x)
        made = s.same("Add", *((other, made) if s.chance(0.5) else (made, other)))
    return activate(s, made) if s.chance(0.3) else made


def broadcast(s: Sketch, x: Value) -> Value:
    """A map and a value per channel or per pixel, both computed."""
    op = str(s.pick(("Add", "Mul", "Sub")))
    small = global_pool(s, x) if s.chance(0.7) else pointwise(s, x, 1)
    return s.node(op, (x, small), x.shape)


def concat(s: Sketch, x: Value) -> Value:
    """Along the channels, operands repeated at will; what it gives is often joined again with its
    own operands. Inputs of the network and constants may be among them.
    """
    of_size = [v for v in s.maps if v.size == x.size]
    parts: list[Value | str] = [x]
    for _ in range(s.number(1, 3)):
        if s.chance(0.35):
            parts.append(pointwise(s, s.pick(of_size or [x]), s.channels(48)))
        elif s.chance(0.08):
            parts.append(_constant_map(s, x))
        else:
            parts.append(s.pick(of_size or [x]) if s.chance(0.8) else x)
    made = _joined(s, parts, x.size)
    if s.chance(0.4):
        again: list[Value | str] = [made, *(p for p in parts if s.chance(0.6))]
        s.rng.shuffle(again)
        made = _joined(s, again, x.size) if len(again) > 1 else made
    return activate(s, made) if s.chance(0.2) else made


def _constant_map(s: Sketch, x: Value) -> Value:
    shape = (1, s.number(1, 9), *x.size)
    return Value(s.numbers(shape, -1.0, 1.0), shape)


def _joined(s: Sketch, parts: list, size: tuple[int, int]) -> Value:
    while sum(p.elements for p in parts) > 2 * MOST_ELEMENTS and len(parts) > 1:
        parts.pop()
    channels = sum(p.channels for p in parts)
    order = list(s.rng.permutation(len(parts)))
    axis = 1 if s.chance(0.9) else -3
    return s.node("Concat", [parts[i] for i in order], (1, channels, *size), axis=axis)


def concat_elsewhere(s: Sketch, x: Value) -> Value:
    """Along rows or columns."""
    if x.elements > MOST_ELEMENTS // 2:
        return x
    axis = s.number(2, 3)
    shape = np.array(x.shape)
    shape[axis] *= 2
    return s.node("Concat", (x, _alike(s, x)), shape.tolist(), axis=axis)


def dense_block(s: Sketch, x: Value) -> Value:
    """Every layer reads all before it, as in DenseNet."""
    for _ in range(s.number(2, 4)):
        grown = pointwise(s, x, s.number(1, 12))
        grown = activate(s, grown) if s.chance(0.6) else grown
        parts = [x, grown] if s.chance(0.8) else [grown, x]
        x = s.node("Concat", parts, (1, x.channels + grown.channels, *x.size), axis=1)
        s.maps.append(x)
    return x


def branches(s: Sketch, x: Value) -> Value:
    """Inception: several ways of one map, joined; a pool behind may move into them."""
    parts = []
    for _ in range(s.number(2, 4)):
        y = pointwise(s, x, s.channels(40)) if s.chance(0.8) else x
        parts.append(activate(s, y) if s.chance(0.6) else y)
    made = s.node("Concat", parts, (1, sum(p.channels for p in parts), *x.size), axis=1)
    if min(x.size) >= 2 and s.chance(0.4):
        size = [(n - 2) // 2 + 1 for n in x.size]
        made = s.node(
            "MaxPool", (made,), (1, made.channels, *size), kernel_shape=[2, 2], strides=[2, 2]
        )
    return made
