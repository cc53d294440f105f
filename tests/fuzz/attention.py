"""Products of two computed maps: attention of transformers and of convolutional networks.

Heads of 1 to 80 channels, odd numbers of tokens, keys of another map or of one head for all, and
every place where exporters transpose.
"""

import numpy as np

from tests.fuzz.layers import pointwise
from tests.fuzz.sketch import MOST_ELEMENTS, MOST_MACS, Sketch, Value

HEADS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32, 33, 36, 48, 63, 64, 65, 80)
_MOST_WEIGHTS = 4_000


def attention(s: Sketch, x: Value) -> Value:
    """Both products, with a Softmax or something else between, mostly."""
    pixels = x.size[0] * x.size[1]
    source = s.pick(s.maps[-3:]) if s.chance(0.25) else x
    keys = source.size[0] * source.size[1]
    widest = max(x.channels, source.channels)
    heads = int(s.pick((1, 1, 2, 2, 3, 4)))
    fits = [d for d in HEADS if heads * d * widest <= _MOST_WEIGHTS]
    fits = [d for d in fits if heads * max(d * pixels, d * keys, pixels * keys) <= MOST_ELEMENTS]
    fits = [d for d in fits if heads * d * pixels * keys <= MOST_MACS]
    if not fits:
        return x
    deep, wide = int(s.pick(fits)), int(s.pick(fits))
    own = 1 if s.chance(0.1) else heads  # heads of keys and values
    form = _channels_last if s.chance(0.5) else _channels_first
    query = form(s, x, heads, deep, by_rows=True)
    key = form(s, source, own, deep, by_rows=False)
    scores = s.node("MatMul", (query, key), (1, heads, pixels, keys))
    if s.chance(0.15) and heads == 1:
        return s.node("Reshape", (scores, s.ints(1, pixels, 1, keys)), (1, pixels, 1, keys))
    scores = _between(s, scores)
    if form is _channels_last:
        value = form(s, source, own, wide, by_rows=True)
        made = s.node("MatMul", (scores, value), (1, heads, pixels, wide))
        shape = (1, pixels, heads, wide)
        made = s.node("Transpose", (made,), shape, perm=[0, 2, 1, 3])
        rows = (1, pixels, heads * wide)
        made = s.node("Reshape", (made, s.ints(*rows)), rows)
        made = s.node("Transpose", (made,), (1, heads * wide, pixels), perm=[0, 2, 1])
    else:
        value = form(s, source, own, wide, by_rows=False)
        turned = s.node("Transpose", (scores,), (1, heads, keys, pixels), perm=[0, 1, 3, 2])
        made = s.node("MatMul", (value, turned), (1, heads, wide, pixels))
    shape = (1, heads * wide, *x.size)
    made = s.node("Reshape", (made, s.ints(*shape)), shape)
    return pointwise(s, made, s.channels(24)) if s.chance(0.6) else made


def _between(s: Sketch, scores: Value) -> Value:
    if s.chance(0.4):
        factor = s.constant(np.array(s.rng.uniform(0.1, 0.9), np.float32))
        scores = s.same(str(s.pick(("Mul", "Div"))), scores, factor)
    if s.chance(0.15):
        scores = s.same("Add", scores, s.numbers(scores.shape[2:], -0.5, 0.5))
    how = str(s.pick(("Softmax",) * 5 + ("Relu", "Sigmoid", "nothing")))
    if how == "nothing":
        return scores
    return s.same(how, scores, **({"axis": -1} if how == "Softmax" else {}))


def _channels_last(s: Sketch, x: Value, heads: int, deep: int, *, by_rows: bool) -> Value:
    """(1, heads, tokens, deep), or its transpose; of tokens (1, n, c)."""
    tokens = x.size[0] * x.size[1]
    rows = s.node("Reshape", (x, s.ints(1, x.channels, tokens)), (1, x.channels, tokens))
    rows = s.node("Transpose", (rows,), (1, tokens, x.channels), perm=[0, 2, 1])
    weight = s.weight((x.channels, heads * deep), x.channels)
    rows = s.node("MatMul", (rows, weight), (1, tokens, heads * deep))
    if s.chance(0.5):
        rows = s.same("Add", rows, s.numbers((heads * deep,), -0.3, 0.3))
    shape = (1, tokens, heads, deep)
    split = s.node("Reshape", (rows, s.ints(*shape)), shape)
    if by_rows:
        return s.node("Transpose", (split,), (1, heads, tokens, deep), perm=[0, 2, 1, 3])
    if s.chance(0.5):
        return s.node("Transpose", (split,), (1, heads, deep, tokens), perm=[0, 2, 3, 1])
    split = s.node("Transpose", (split,), (1, heads, tokens, deep), perm=[0, 2, 1, 3])
    return s.node("Transpose", (split,), (1, heads, deep, tokens), perm=[0, 1, 3, 2])


def _channels_first(s: Sketch, x: Value, heads: int, deep: int, *, by_rows: bool) -> Value:
    """(1, heads, deep, pixels), or its transpose; of a map (1, c, h, w)."""
    tokens = x.size[0] * x.size[1]
    made = pointwise(s, x, heads * deep)
    if s.chance(0.2):
        made = s.same(str(s.pick(("Relu", "Sigmoid", "Tanh"))), made)
    shape = (1, heads, deep, tokens)
    made = s.node("Reshape", (made, s.ints(*shape)), shape)
    if not by_rows:
        return made
    return s.node("Transpose", (made,), (1, heads, tokens, deep), perm=[0, 1, 3, 2])
