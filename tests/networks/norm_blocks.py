"""Softmax, LayerNorm, RMSNorm and GroupNorm as exporters write them, after what machines run before
them.
"""

import numpy as np
import onnx

from tests.networks.attention_blocks import with_constants

_HEADER = '<ir_version: 11, opset_import: ["" : 23]>'
_LAST, _FIRST = "perm=[0,2,3,1]", "perm=[0,3,1,2]"

NORMS = {
    "softmax": "n = Softmax<axis=1>(b)",
    "layer_norm": f"t = Transpose<{_LAST}>(b) m = LayerNormalization<axis=-1,epsilon=1e-6>(t, g, o)"
    f" n = Transpose<{_FIRST}>(m)",
    "rms_norm": f"t = Transpose<{_LAST}>(b) m = RMSNormalization<axis=-1,epsilon=1e-6>(t, g)"
    f" n = Transpose<{_FIRST}>(m)",
    "group_norm": "n = GroupNormalization<num_groups=1,epsilon=1e-6>(b, g, o)",
}
"""On the map b."""

BEFORE = {
    "conv": "b = Conv(x, w)",
    "input": "b = Identity(x)",
    "relu": "a = Conv(x, w) b = Relu(a)",
    "pool": "a = Conv(x, w) b = MaxPool<kernel_shape=[2,2]>(a)",
    "depthwise": "a = Conv(x, w) b = Conv<group={c},pads=[1,1,1,1]>(a, d)",
    "residual": "a = Conv(x, w) f = Relu(a) e = Conv(f, v) b = Add(e, f)",
    "bias map": "a = Conv(x, w) b = Add(a, k)",
    "transposed": "b = ConvTranspose<strides=[2,2]>(x, u)",
}
"""Computes b from x."""

AFTER = {
    "conv": "y = Conv(n, v)",
    "output": "y = Identity(n)",
    "relu": "y = Relu(n)",
    "table": "y = Sigmoid(n)",
    "several": "p = Conv(n, v) q = Relu(n) y = Add(p, q)",
    "upsample": 'y = Resize<mode="nearest",coordinate_transformation_mode="asymmetric",'
    'nearest_mode="floor">(n, , scales)',
}
"""Computes y from n."""


def network(
    norm: str, channels: int, *, before: str = "conv", after: str = "conv", side: int = 5
) -> onnx.ModelProto:
    """x (1, 6, side, side), the input (1, channels, side, side) where it is normalised itself."""
    c, wide = channels, channels if before == "input" else 6
    text = f"""{_HEADER} g (float[1,{wide},{side},{side}] x) => (float[1,c,h,w] y) {{
  {BEFORE[before].format(c=c)} {NORMS[norm]} {AFTER[after]} }}"""
    rng = np.random.default_rng(channels)
    return with_constants(
        text,
        {
            "w": rng.normal(size=(c, 6, 1, 1)) * 0.8,
            "v": rng.normal(size=(c, c, 1, 1)) / np.sqrt(c),
            "d": rng.normal(size=(c, 1, 3, 3)) / 2,
            "u": rng.normal(size=(6, c, 2, 2)),
            "k": rng.normal(size=(1, c, side, side)),
            "g": rng.normal(1, 0.4, c),
            "o": rng.normal(0, 0.5, c),
            "scales": np.array([1, 1, 2, 2], np.float32),
        },
    )


_SPELT = {
    "layer_norm": """
  {p}m = ReduceMean<keepdims=1>({x}, last) {p}d = Sub({x}, {p}m) {p}s = Pow({p}d, two)
  {p}v = ReduceMean<keepdims=1>({p}s, last) {p}e = Add({p}v, eps) {p}r = Sqrt({p}e)
  {p}q = Div({p}d, {p}r) {p}f = Mul({p}q, {p}gain) {p}n = Add({p}f, {p}offset)""",
    "operator": "{p}n = LayerNormalization<axis=-1>({x}, {p}gain, {p}offset)",
}


def transformer_block(
    tokens: int, channels: int, heads: int, *, spelling: str = "operator"
) -> onnx.ModelProto:
    """A block of a ViT behind its patch embedding and positions: two norms, attention, GELU."""
    side = int(np.sqrt(tokens))
    n, c, deep = side * side, channels, channels // heads
    first, second = (_SPELT[spelling].format(p=p, x=x) for p, x in (("i", "r"), ("j", "u")))
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
g (float[1,3,{4 * side},{4 * side}] image) => (float[1,{n},{c}] y) {{
  a = Conv<strides=[4,4]>(image, patches, pb) s = Reshape(a, flat) t = Transpose<perm=[0,2,1]>(s)
  r = Add(t, positions) {first}
  b = MatMul(in, wqkv) bb = Add(b, bqkv) z = Reshape(bb, s5)
  zt = Transpose<perm=[2,0,3,1,4]>(z)
  q = Gather<axis=0>(zt, i0) k = Gather<axis=0>(zt, i1) v = Gather<axis=0>(zt, i2)
  kt = Transpose<perm=[0,1,3,2]>(k) ms = MatMul(q, kt) m = Mul(ms, scale) p = Softmax<axis=-1>(m)
  o = MatMul(p, v) ot = Transpose<perm=[0,2,1,3]>(o) oc = Reshape(ot, s3)
  pr = MatMul(oc, wp) u = Add(pr, r) {second}
  h = MatMul(jn, w1) hb = Add(h, b1) hg = Gelu(hb) l = MatMul(hg, w2) y = Add(l, u) }}"""
    rng = np.random.default_rng(channels)
    gains = {p + "gain": rng.normal(1, 0.3, c) for p in "ij"}
    offsets = {p + "offset": rng.normal(0, 0.3, c) for p in "ij"}
    return with_constants(
        text,
        {
            "patches": rng.normal(size=(c, 3, 4, 4)) / 7,
            "pb": rng.normal(size=c) * 0.1,
            "flat": np.array([1, c, n]),
            "positions": rng.normal(size=(1, n, c)) * 0.3,
            "wqkv": rng.normal(size=(c, 3 * c)) / np.sqrt(c),
            "bqkv": rng.normal(size=3 * c) * 0.3,
            "s5": np.array([1, n, 3, heads, deep]),
            "s3": np.array([1, n, c]),
            "scale": np.array(deep**-0.5),
            "wp": rng.normal(size=(c, c)) / np.sqrt(c),
            "w1": rng.normal(size=(c, 2 * c)) / np.sqrt(c),
            "b1": rng.normal(size=2 * c) * 0.2,
            "w2": rng.normal(size=(2 * c, c)) / np.sqrt(2 * c),
            "last": np.array([-1]),
            "two": np.array(2.0),
            "eps": np.array(1e-5),
            **{f"i{i}": np.array(i) for i in range(3)},
            **gains,
            **offsets,
        },
    )
