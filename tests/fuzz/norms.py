"""Softmax, LayerNorm and RMSNorm over the channels of a map, GroupNorm over the map, in the
spellings of exporters; distances of a detector.
"""

import math
from collections.abc import Callable

import numpy as np

from tests.fuzz.sketch import Sketch, Value

_LAST, _FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def norm(s: Sketch, x: Value) -> Value:
    """One of them: channels first, or between Transposes."""
    kinds = [_softmax, _softmax, _spelt, _instance_norm, _distances]
    if s.opset >= 17:
        kinds += [_layer_norm, _layer_norm]
    if s.opset >= 21:
        kinds.append(_group_norm)
    if s.opset >= 23:
        kinds.append(_rms_norm)
    return kinds[s.number(0, len(kinds) - 1)](s, x)


def _softmax(s: Sketch, x: Value) -> Value:
    if s.chance(0.7):
        return s.same("Softmax", x, axis=int(s.pick((1, -3))))
    return _between(s, x, lambda t: s.same("Softmax", t, axis=-1))


def _distances(s: Sketch, x: Value) -> Value:
    """A side of a box is the expected bin of a Softmax (YOLO), of all pixels of two maps."""
    sides, bins = int(s.pick((4, 4, 4, 2))), int(s.pick((2, 4, 8, 16)))
    deep, c = sides * bins, x.channels
    maps, flat = [x, s.node("GlobalAveragePool", (x,), (1, c, 1, 1))], []
    for m in maps:
        logits = s.node("Conv", (m, s.weight((deep, c, 1, 1), c)), (1, deep, *m.size))
        shape = 1, deep, math.prod(m.size)
        flat.append(s.node("Reshape", (logits, s.ints(*shape)), shape))
    pixels = sum(f.shape[2] for f in flat)
    joined = s.node("Concat", flat, (1, deep, pixels), axis=2)
    parts = s.node("Reshape", (joined, s.ints(1, sides, bins, pixels)), (1, sides, bins, pixels))
    turned = s.node("Transpose", (parts,), (1, bins, sides, pixels), perm=[0, 2, 1, 3])
    shares = s.same("Softmax", turned, axis=1)
    numbers = s.constant(np.arange(bins, dtype=np.float32).reshape(1, bins, 1, 1))
    return s.node("Conv", (shares, numbers), (1, 1, sides, pixels))


def _layer_norm(s: Sketch, x: Value) -> Value:
    epsilon = float(s.pick((1e-5, 1e-6, 1e-12)))
    constants = [s.numbers((x.channels,), 0.4, 1.6)]
    if s.chance(0.7):
        constants.append(s.numbers((x.channels,), -0.5, 0.5))
    form = {"axis": -1, "epsilon": epsilon}
    return _between(s, x, lambda t: s.same("LayerNormalization", t, *constants, **form))


def _rms_norm(s: Sketch, x: Value) -> Value:
    scale = s.numbers((x.channels,), 0.4, 1.6)
    return _between(s, x, lambda t: s.same("RMSNormalization", t, scale, axis=-1, epsilon=1e-5))


def _group_norm(s: Sketch, x: Value) -> Value:
    constants = s.numbers((x.channels,), 0.4, 1.6), s.numbers((x.channels,), -0.5, 0.5)
    return s.same("GroupNormalization", x, *constants, num_groups=1, epsilon=1e-5)


def _instance_norm(s: Sketch, x: Value) -> Value:
    """A GroupNorm of one group as PyTorch exports it, with or without constants of channels."""
    flat = 1, 1, x.channels * math.prod(x.size)
    one, zero = (s.constant(np.array([number], np.float32)) for number in (1, 0))
    row = s.node("Reshape", (x, s.ints(*flat)), flat)
    y = s.node("InstanceNormalization", (row, one, zero), flat, epsilon=1e-5)
    y = s.node("Reshape", (y, s.ints(*x.shape)), x.shape)
    if s.chance(0.3):
        return y
    y = s.same("Mul", y, s.numbers((x.channels, 1, 1), 0.4, 1.6))
    return s.same("Add", y, s.numbers((x.channels, 1, 1), -0.5, 0.5))


def _spelt(s: Sketch, x: Value) -> Value:
    """A LayerNorm of axis 1, as channels-first networks compute it."""
    axes = s.ints(1) if s.opset >= 18 else None
    shape = (1, 1, *x.size)

    def mean(value: Value) -> Value:
        if axes is None:
            return s.node("ReduceMean", (value,), shape, axes=[1], keepdims=1)
        return s.node("ReduceMean", (value, axes), shape, keepdims=1)

    centred = s.same("Sub", x, mean(x))
    square = s.same("Mul", centred, centred)
    small = s.constant(np.array(1e-3, np.float32))
    root = s.node("Sqrt", (s.node("Add", (mean(square), small), shape),), shape)
    y = s.same("Div", centred, root)
    y = s.same("Mul", y, s.numbers((x.channels, 1, 1), 0.4, 1.6))
    return s.same("Add", y, s.numbers((x.channels, 1, 1), -0.5, 0.5))


def _between(s: Sketch, x: Value, norm: Callable[[Value], Value]) -> Value:
    last = s.node("Transpose", (x,), (1, *x.size, x.channels), perm=_LAST)
    return s.node("Transpose", (norm(last),), x.shape, perm=_FIRST)
