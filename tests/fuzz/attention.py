"""Products of two computed maps: attention of transformers and of convolutional networks.

Heads of 1 to 80 channels, odd numbers of tokens, keys of another map or of one head for all,
windows of tokens as a batch, and every place where exporters transpose.
"""

import numpy as np

from tests.fuzz.layers import pointwise
from tests.fuzz.sketch import MOST_ELEMENTS, MOST_MACS, Sketch, Value

HEADS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32, 33, 36, 48, 63, 64, 65, 80)
_MOST_WEIGHTS = 4_000


def attention(s: Sketch, x: Value) -> Value:
    """Both products, with a Softmax or something else between, mostly."""
    source = s.pick(s.maps[-3:]) if s.chance(0.25) else x
    windows = x.size[0] if source is x and s.chance(0.3) else 1
    pixels, keys = (v.size[0] * v.size[1] // windows for v in (x, source))
    widest = max(x.channels, source.channels)
    heads = int(s.pick((1, 1, 2, 2, 3, 4)))
    fits = [d for d in HEADS if heads * d * widest <= _MOST_WEIGHTS]
    sizes = {d: windows * heads * max(d * pixels, d * keys, pixels * keys) for d in fits}
    fits = [d for d in fits if sizes[d] <= MOST_ELEMENTS]
    fits = [d for d in fits if windows * heads * d * pixels * keys <= MOST_MACS]
    if not fits:
        return x
    deep, wide = int(s.pick(fits)), int(s.pick(fits))
    own = 1 if s.chance(0.1) else heads  # heads of keys and values
    form = _channels_last if s.chance(0.5) else _channels_first
    query = form(s, x, (windows, heads, deep), by_rows=True)
    key = form(s, source, (windows, own, deep), by_rows=False)
    scores = s.node("MatMul", (query, key), (windows, heads, pixels, keys))
    if s.chance(0.15) and heads == windows == 1:
        return s.node("Reshape", (scores, s.ints(1, pixels, 1, keys)), (1, pixels, 1, keys))
    scores = _between(s, scores, source if windows == 1 else None)
    if form is _channels_last:
        value = form(s, source, (windows, own, wide), by_rows=True)
        made = s.node("MatMul", (scores, value), (windows, heads, pixels, wide))
        shape = (windows, pixels, heads, wide)
        made = s.node("Transpose", (made,), shape, perm=[0, 2, 1, 3])
        rows = (1, windows * pixels, heads * wide)
        made = s.node("Reshape", (made, s.ints(*rows)), rows)
        made = s.node("Transpose", (made,), (1, rows[2], rows[1]), perm=[0, 2, 1])
    else:
        value = form(s, source, (windows, own, wide), by_rows=False)
        turned = s.node("Transpose", (scores,), (windows, heads, keys, pixels), perm=[0, 1, 3, 2])
        made = s.node("MatMul", (value, turned), (windows, heads, wide, pixels))
        if windows > 1:
            made = s.node("Transpose", (made,), (heads, wide, windows, pixels), perm=[1, 2, 0, 3])
    shape = (1, heads * wide, *x.size)
    made = s.node("Reshape", (made, s.ints(*shape)), shape)
    return pointwise(s, made, s.channels(24)) if s.chance(0.6) else made


def _between(s: Sketch, scores: Value, masking: Value | None) -> Value:
    """What comes between the products. masking: what a mask of the keys is computed of."""
    if s.chance(0.4):
        factor = s.constant(np.array(s.rng.uniform(0.1, 0.9), np.float32))
        scores = s.same(str(s.pick(("Mul", "Div"))), scores, factor)
    if s.chance(0.15):
        scores = s.same("Add", scores, s.numbers(scores.shape[2:], -0.5, 0.5))
    if masking is not None and s.chance(0.25):
        mask = pointwise(s, masking, 1)
        pixels = mask.size[0] * mask.size[1]
        mask = s.node("Reshape", (mask, s.ints(1, 1, 1, pixels)), (1, 1, 1, pixels))
        pair = (scores, mask) if s.chance(0.6) else (mask, scores)
        scores = s.node("Add", pair, scores.shape)
    how = str(s.pick(("Softmax",) * 5 + ("Relu", "Sigmoid", "nothing")))
    if how == "nothing":
        return scores
    return s.same(how, scores, **({"axis": -1} if how == "Softmax" else {}))


def _channels_last(s: Sketch, x: Value, form: tuple[int, int, int], *, by_rows: bool) -> Value:
    """(windows, heads, tokens, deep), or its transpose; of tokens (windows, n, c)."""
    windows, heads, deep = form
    pixels = x.size[0] * x.size[1]
    rows = s.node("Reshape", (x, s.ints(1, x.channels, pixels)), (1, x.channels, pixels))
    rows = s.node("Transpose", (rows,), (1, pixels, x.channels), perm=[0, 2, 1])
    shape = (windows, pixels // windows, x.channels)
    if windows > 1:
        rows = s.node("Reshape", (rows, s.ints(*shape)), shape)
    weight = s.weight((x.channels, heads * deep), x.channels)
    rows = s.node("MatMul", (rows, weight), (*shape[:2], heads * deep))
    if s.chance(0.5):
        rows = s.same("Add", rows, s.numbers((heads * deep,), -0.3, 0.3))
    tokens = shape[1]
    shape = (windows, tokens, heads, deep)
    split = s.node("Reshape", (rows, s.ints(*shape)), shape)
    if by_rows:
        return s.node("Transpose", (split,), (windows, heads, tokens, deep), perm=[0, 2, 1, 3])
    if s.chance(0.5):
        return s.node("Transpose", (split,), (windows, heads, deep, tokens), perm=[0, 2, 3, 1])
    split = s.node("Transpose", (split,), (windows, heads, tokens, deep), perm=[0, 2, 1, 3])
    return s.node("Transpose", (split,), (windows, heads, deep, tokens), perm=[0, 1, 3, 2])


def _channels_first(s: Sketch, x: Value, form: tuple[int, int, int], *, by_rows: bool) -> Value:
    """(windows, heads, deep, pixels), or its transpose; of a map (1, c, h, w)."""
    windows, heads, deep = form
    tokens = x.size[0] * x.size[1] // windows
    made = pointwise(s, x, heads * deep)
    if s.chance(0.2):
        made = s.same(str(s.pick(("Relu", "Sigmoid", "Tanh"))), made)
    shape = (windows, heads, deep, tokens)
    if windows > 1:
        rows = (heads, deep, windows, tokens)
        made = s.node("Reshape", (made, s.ints(*rows)), rows)
        made = s.node("Transpose", (made,), shape, perm=[2, 0, 1, 3])
    else:
        made = s.node("Reshape", (made, s.ints(*shape)), shape)
    if not by_rows:
        return made
    return s.node("Transpose", (made,), (windows, heads, tokens, deep), perm=[0, 1, 3, 2])
