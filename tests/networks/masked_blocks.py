"""Attention with masks, as exporters write them."""

import numpy as np
import onnx

from tests.networks.attention_blocks import HEADER, SPLITS, constants_of, with_constants

MASKS = {
    "keys": """f = Cast<to=1>(mask)  g = Reshape(f, keys)  h = Sub(one, g)  i = Mul(h, low)
  ms = Add(m, i)""",
    "mask first": """f = Cast<to=1>(mask)  g = Reshape(f, keys)  h = Sub(one, g)  i = Mul(h, low)
  ms = Add(i, m)""",
    "every query": """f = Cast<to=1>(mask)  g = Reshape(f, keys)  e = Expand(g, square)
  h = Sub(one, e)  i = Mul(h, low)  ms = Add(m, i)""",
    "fill": """f = Equal(mask, none)  g = Reshape(f, keys)  e = Expand(g, scores)
  ms = Where(e, low, m)""",
    "select": """f = Cast<to=9>(mask)  g = Reshape(f, keys)  e = Expand(g, scores)
  ms = Where(e, m, minus)""",
    "negated": """f = Cast<to=9>(mask)  g = Reshape(f, keys)  e = Expand(g, scores)  n = Not(e)
  ms = Where(n, minus, m)""",
    "guarded": """f = Cast<to=9>(mask)  g = Reshape(f, keys)  i = Where(g, zero, low)
  ms = Add(m, i)  sm = Softmax<axis=-1>(ms)  nan = IsNaN(sm)  p = Where(nan, zero, sm)""",
    "with a bias": """f = Cast<to=9>(mask)  g = Reshape(f, keys)  i = Where(g, bias, low)
  ms = Add(i, m)""",
    "causal": "ms = Where(before, m, low)",
    "causal sum": "ms = Add(m, later)",
}
"""How exporters mask scores `m` of tokens that do not count, or come later."""


def padded(spelling: str, tokens: int, channels: int, heads: int) -> onnx.ModelProto:
    """Attention of tokens (1, n, channels) of which a mask (1, n) counts some, if it is not causal;
    `MASKS[spelling]`.
    """
    c, n = channels, tokens
    body, given = MASKS[spelling], "" if "causal" in spelling else f", int64[1,{n}] mask"
    if "IsNaN" not in body:
        body += "  p = Softmax<axis=-1>(ms)"
    text = f"""{HEADER} g (float[1,{n},{c}] x{given}) => (float[1,{n},{c}] y) {{
  xs = Mul(x, s)  a = MatMul(xs, wqkv)  b = Add(a, bqkv) {SPLITS["gather"]}
  m = MatMul(q, kt)  {body}
  o = MatMul(p, v)  ot = Transpose<perm=[0,2,1,3]>(o)  oc = Reshape(ot, s3)
  y = MatMul(oc, wp) }}"""
    before = np.tril(np.ones((n, n), bool))
    bias = np.random.default_rng(1).normal(size=(1, heads, n, n))
    lowest = np.finfo(np.float32).min
    return with_constants(
        text,
        {
            **constants_of(np.random.default_rng(0), 1, n, c, heads),
            "one": np.array(1.0),
            "zero": np.array(0.0),
            "bias": bias,
            "low": np.array(lowest),
            "minus": np.array(-np.inf),
            "none": np.array(0),
            "keys": np.array([1, 1, 1, n]),
            "square": np.array([1, 1, n, n]),
            "scores": np.array([1, heads, n, n]),
            "before": before,
            "later": np.where(before, 0.0, lowest),
        },
    )


def lengths(tokens: int, count: int, channels: int) -> dict[str, np.ndarray]:
    """Samples for `padded`: half of the tokens to all of them count."""
    rng = np.random.default_rng(2)
    counted = rng.integers(tokens // 2, tokens + 1, (count, 1))
    x = rng.normal(size=(count, tokens, channels)).astype(np.float32)
    return {"x": x, "mask": (np.arange(tokens) < counted).astype(np.int64)}
