"""Layers of tokens, as transformers have them: dense layers, norms in all spellings, positions."""

import math

import numpy as np

from tests.fuzz.pointwise import activate
from tests.fuzz.sketch import MOST_MACS, Sketch, Value

_AXES_ARE_OPERANDS = 18


def tokens(s: Sketch, x: Value) -> Value:
    """Some operators on the pixels of a map as tokens (n, c), (1, n, c) or (b, n, c)."""
    c, n = x.channels, math.prod(x.size)
    if c * c * n > MOST_MACS or (n == 1 and s.chance(0.8)):
        return x
    last = s.node("Transpose", (x,), (1, *x.size, c), perm=[0, 2, 3, 1])
    divisors = [d for d in range(1, n + 1) if n % d == 0]
    b = int(s.pick(divisors))
    lead = s.pick(((1, n), (1, n), (n,), (b, n // b), (b, n // b), (1, b, n // b)))
    y = s.node("Reshape", (last, s.ints(*lead, c)), (*lead, c))
    for _ in range(s.number(1, 3)):
        y = s.pick((layer, layer, perceptron, norm, offset, part))(s, y)
    c = y.shape[-1]
    if math.prod(y.shape[:-1]) != n:
        return x
    last = s.node("Reshape", (y, s.ints(1, *x.size, c)), (1, *x.size, c))
    return s.node("Transpose", (last,), (1, c, *x.size), perm=[0, 3, 1, 2])


def layer(s: Sketch, x: Value) -> Value:
    """A dense layer, MatMul or Gemm; with a residual sum now and then."""
    *lead, c = x.shape
    out = c if s.chance(0.4) else s.channels(max(MOST_MACS // (c * math.prod(lead)), 1))
    if len(lead) == 1 and s.chance(0.5):
        bias = [s.numbers((out,), -0.3, 0.3)] if s.chance(0.7) else []
        y = s.node("Gemm", (x, s.weight((out, c), c), *bias), (*lead, out), transB=1)
    else:
        y = s.node("MatMul", (x, s.weight((c, out), c)), (*lead, out))
        if s.chance(0.7):
            bias = s.numbers((out,), -0.3, 0.3)
            y = s.node("Add", (y, bias) if s.chance(0.5) else (bias, y), y.shape)
    if s.chance(0.4):
        y = activate(s, y) if len(y.shape) == 4 else s.same(str(s.pick(("Relu", "Sigmoid"))), y)
    return s.same("Add", y, x) if out == c and s.chance(0.5) else y


def perceptron(s: Sketch, x: Value) -> Value:
    """Norm, two layers and a residual sum."""
    y = layer(s, layer(s, norm(s, x)))
    return s.same("Add", x, y) if y.shape == x.shape else y


def norm(s: Sketch, x: Value) -> Value:
    """LayerNorm: the operator, or spelt out."""
    c = x.shape[-1]
    scale, shift = s.numbers((c,), 0.4, 1.6), s.numbers((c,), -0.5, 0.5)
    if s.opset >= 17 and s.chance(0.4):
        return s.same("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-5)
    centred = s.same("Sub", x, _mean(s, x))
    two = s.constant(np.array(2.0, np.float32))
    square = s.same("Pow", centred, two) if s.chance(0.5) else s.same("Mul", centred, centred)
    epsilon = s.constant(np.array(1e-3, np.float32))
    root = s.same("Sqrt", s.same("Add", _mean(s, square), epsilon))
    if s.chance(0.6):
        y = s.same("Div", centred, root)
    else:
        y = s.same("Mul", centred, s.same("Reciprocal", root))
    if s.chance(0.8):
        y = s.same("Mul", y, scale)
        y = s.same("Add", y, shift) if s.chance(0.8) else y
    return y


def _mean(s: Sketch, x: Value) -> Value:
    shape = (*x.shape[:-1], 1)
    if s.opset >= _AXES_ARE_OPERANDS:
        return s.node("ReduceMean", (x, s.ints(-1)), shape)
    return s.node("ReduceMean", (x,), shape, axes=[-1])


def offset(s: Sketch, x: Value) -> Value:
    """Positions, or a factor: for each token, each channel or each element."""
    shape = s.pick((x.shape, x.shape[-2:], (*x.shape[-2:-1], 1), x.shape[-1:], ()))
    op = str(s.pick(("Add", "Add", "Add", "Sub", "Mul")))
    low, high = (0.4, 2.0) if op == "Mul" else (-1.0, 1.0)
    return s.same(op, x, s.constant(s.rng.uniform(low, high, shape).astype(np.float32)))


def part(s: Sketch, x: Value) -> Value:
    """Halves of the channels, one of them changed, or the tokens in two parts."""
    axis = -1 if s.chance(0.6) else len(x.shape) - 2
    n = x.shape[axis]
    if n < 2:
        return x
    first = s.number(1, n - 1)
    shapes = []
    for size in (first, n - first):
        shape = [*x.shape]
        shape[axis] = size
        shapes.append(tuple(shape))
    a, b = s.nodes("Split", (x, s.ints(first, n - first)), shapes, axis=axis)
    a = s.same("Relu", a)
    return s.node("Concat", (b, a) if s.chance(0.3) else (a, b), x.shape, axis=axis)
