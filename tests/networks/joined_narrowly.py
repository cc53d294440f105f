"""Networks whose joined or cut maps have channels in lanes that a norm or a sum cannot read."""

import numpy as np
import onnx

from tests.networks.attention_blocks import HEADER, with_constants


def normalised(parts: tuple[int, ...], *, added: bool = True) -> onnx.ModelProto:
    """A norm of the channels of a Concat, which is added to it, before a layer."""
    c = sum(parts)
    layers = "".join(f"a{n} = Conv(x, w{n})  " for n in range(len(parts)))
    joined = ", ".join(f"a{n}" for n in range(len(parts)))
    return _model(
        c,
        (5, 6),
        f"""{layers} j = Concat<axis=1>({joined})  t = Transpose<perm=[0,2,3,1]>(j)
  n = LayerNormalization<axis=-1>(t, gain, offset)  u = Transpose<perm=[0,3,1,2]>(n)
  {"y = Add(j, u)" if added else "y = Identity(u)"}""",
        **{f"w{n}": _weights(count, 6) for n, count in enumerate(parts)},
        gain=1 + 0.1 * _values(c),
        offset=_values(c),
    )


def split_after(part: int, size: tuple[int, int] = (5, 6)) -> onnx.ModelProto:
    """A norm of the channels of a sum, which a Split cuts into three parts: a function of the first
    is added to the second (EdgeNeXt).
    """
    c = 3 * part
    return _model(
        c,
        size,
        """a = Conv(x, w)  t = Transpose<perm=[0,2,3,1]>(a)
  n = LayerNormalization<axis=-1>(t, gain, offset)  u = Transpose<perm=[0,3,1,2]>(n)
  l = Conv(u, v)  b = Add(a, l)  p, q, r = Split<axis=1>(b, sizes)
  d = Sigmoid(p)  e = Add(d, q)  y = Concat<axis=1>(d, e, r)""",
        w=_weights(c, 6),
        v=_weights(c, c),
        sizes=np.array([part] * 3),
        gain=1 + 0.1 * _values(c),
        offset=_values(c),
    )


def gated(kept: int, mixed: int, size: tuple[int, int] = (5, 6)) -> onnx.ModelProto:
    """A function of a part times a Concat of another part and a layer of the rest (MambaOut)."""
    c = kept + mixed
    return _model(
        c,
        size,
        """a = Conv(x, w)  g, i, m = Split<axis=1>(a, sizes)  s = Sigmoid(g)
  l = Conv(m, v)  j = Concat<axis=1>(i, l)  y = Mul(s, j)""",
        w=_weights(2 * c, 6),
        v=_weights(mixed, mixed),
        sizes=np.array([c, kept, mixed]),
    )


def grown(before: int, after: int, size: tuple[int, int] = (5, 6)) -> onnx.ModelProto:
    """Sums of the first channels with all channels of the layer before, twice (ReXNet)."""
    last = after + after - before
    return _model(
        last,
        size,
        """a = Conv(x, w)  b = Conv(a, v)  p, q = Split<axis=1>(b, sizes)
  d = Add(p, a)  e = Concat<axis=1>(d, q)
  f = Conv(e, u)  h, i = Split<axis=1>(f, more)  k = Add(h, e)  y = Concat<axis=1>(k, i)""",
        w=_weights(before, 6),
        v=_weights(after, before),
        u=_weights(last, after),
        sizes=np.array([before, after - before]),
        more=np.array([after, last - after]),
    )


def _model(
    channels: int, size: tuple[int, int], body: str, **constants: np.ndarray
) -> onnx.ModelProto:
    """The layer after a map y of so many channels, on (1, 6, *size)."""
    shape = f"1,6,{size[0]},{size[1]}"
    text = f"""{HEADER} g (float[{shape}] x) => (float[1,4,{size[0]},{size[1]}] z) {{
  {body}  z = Conv(y, last) }}"""
    return with_constants(text, {**constants, "last": _weights(4, channels)})


def _weights(out: int, into: int) -> np.ndarray:
    return _values(out, into, 1, 1) / np.sqrt(into)


def _values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape)
