"""Layers that mix tokens, as exporters of PyTorch write MLP-Mixer, gMLP and ResMLP."""

import numpy as np
import onnx

from tests.networks.attention_blocks import HEADER, with_constants


def mixer(channels: int, side: int, hidden: int) -> onnx.ModelProto:
    """Stem, two layers over tokens, and the residual sum, on (1, 3, 2·side, 2·side)."""
    c, n = channels, side * side
    return _model(
        channels,
        side,
        """
  h = LayerNormalization<axis=-1>(t, gain, offset)  ht = Transpose<perm=[0,2,1]>(h)
  a = MatMul(ht, w1)  b = Add(a, b1)  r = Relu(b)  d = MatMul(r, w2)  e = Add(d, b2)
  et = Transpose<perm=[0,2,1]>(e)  z = Add(t, et)""",
        w1=_normal(n, hidden),
        b1=_normal(hidden),
        w2=_normal(hidden, n),
        b2=_normal(n),
        gain=1 + 0.1 * _normal(c),
        offset=_normal(c),
    )


def scaled(channels: int, side: int) -> onnx.ModelProto:
    """A layer over tokens, with a scale of each channel after it (ResMLP)."""
    c, n = channels, side * side
    return _model(
        channels,
        side,
        """
  ht = Transpose<perm=[0,2,1]>(t)  a = MatMul(ht, w1)  b = Add(a, b1)
  bt = Transpose<perm=[0,2,1]>(b)  m = Mul(scale, bt)  z = Add(t, m)""",
        w1=_normal(n, n),
        b1=_normal(n),
        scale=_normal(c),
    )


def gated(channels: int, side: int) -> onnx.ModelProto:
    """One half of the channels times a layer over the tokens of the other (gMLP)."""
    c, n = channels, side * side
    return _model(
        channels,
        side,
        """
  p = MatMul(t, w0)  u, v = Split<axis=-1>(p, halves)
  h = LayerNormalization<axis=-1>(v, gain, offset)  ht = Transpose<perm=[0,2,1]>(h)
  a = MatMul(ht, w1)  b = Add(a, b1)  bt = Transpose<perm=[0,2,1]>(b)
  m = Mul(u, bt)  q = MatMul(m, w2)  z = Add(t, q)""",
        w0=_normal(c, 2 * c),
        halves=np.array([c, c]),
        gain=1 + 0.1 * _normal(c),
        offset=_normal(c),
        w1=_normal(n, n),
        b1=_normal(n),
        w2=_normal(c, c),
    )


def _model(channels: int, side: int, body: str, **constants: np.ndarray) -> onnx.ModelProto:
    """Tokens t of a stem, and z of them, by a last layer: (1, tokens, channels) are output."""
    c, n, size = channels, side * side, 2 * side
    text = f"""{HEADER} g (float[1,3,{size},{size}] x) => (float[1,{c},1,1] y) {{
  s = Conv<strides=[2,2]>(x, stem)  l = Reshape(s, line)  t = Transpose<perm=[0,2,1]>(l) {body}
  k = MatMul(z, last)  kt = Transpose<perm=[0,2,1]>(k)  ki = Reshape(kt, image)
  y = GlobalAveragePool(ki) }}"""
    return with_constants(
        text,
        {
            "stem": _normal(c, 3, 2, 2),
            "line": np.array([1, c, n]),
            "image": np.array([1, c, side, side]),
            "last": _normal(c, c),
            **constants,
        },
    )


def _normal(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return rng.normal(size=shape) / np.sqrt(shape[0] if len(shape) == 2 else 4)
