"""Attention as exporters write it: blocks of a transformer and of a convolutional network."""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.attention_builder import Builder
from benchmarks.attention_networks import rolled as roll

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'

SPLITS = {
    "gather": """
  r = Reshape(b, s5)  t = Transpose<perm=[2,0,3,1,4]>(r)
  q = Gather<axis=0>(t, i0)  k = Gather<axis=0>(t, i1)  v = Gather<axis=0>(t, i2)
  kt = Transpose<perm=[0,1,3,2]>(k)""",
    "split": """
  f, g, h = Split<axis=2>(b, s333)
  fr = Reshape(f, s4)  gr = Reshape(g, s4)  hr = Reshape(h, s4)
  q = Transpose<perm=[0,2,1,3]>(fr)  kt = Transpose<perm=[0,2,3,1]>(gr)
  v = Transpose<perm=[0,2,1,3]>(hr)""",
}


def transformer(
    tokens: int, channels: int, heads: int, *, spelling: str = "gather", between: str = "Softmax"
) -> onnx.ModelProto:
    """Attention of a ViT with its residual sum, on (1, tokens, channels)."""
    middle = "p = Softmax<axis=-1>(ms)" if between == "Softmax" else f"p = {between}(ms)"
    text = f"""{HEADER} g (float[1,{tokens},{channels}] x) => (float[1,{tokens},{channels}] y) {{
  a = MatMul(x, wqkv)  b = Add(a, bqkv) {SPLITS[spelling]}
  m = MatMul(q, kt)  ms = Mul(m, s)  {middle}
  o = MatMul(p, v)  ot = Transpose<perm=[0,2,1,3]>(o)  oc = Reshape(ot, s3)
  pr = MatMul(oc, wp)  y = Add(pr, x) }}"""
    return with_constants(text, constants_of(np.random.default_rng(0), 1, tokens, channels, heads))


def constants_of(
    rng: np.random.Generator, count: int, tokens: int, channels: int, heads: int
) -> dict[str, np.ndarray]:
    """Weights, scale, sizes and indices of `SPLITS` for a batch of `count` sequences."""
    c, deep = channels, channels // heads
    return {
        "wqkv": rng.normal(size=(c, 3 * c)) / np.sqrt(c),
        "bqkv": rng.normal(size=3 * c) * 0.3,
        "wp": rng.normal(size=(c, c)) / np.sqrt(c),
        "s": np.array(deep**-0.5),
        "s5": np.array([count, tokens, 3, heads, deep]),
        "s4": np.array([count, tokens, heads, deep]),
        "s3": np.array([count, tokens, c]),
        "s333": np.array([c, c, c]),
        **{f"i{n}": np.array(n) for n in range(3)},
    }


def windows(
    count: int,
    tokens: int,
    channels: int,
    heads: int,
    *,
    spelling: str = "gather",
    masked: bool = False,
) -> onnx.ModelProto:
    """Attention of Swin with its residual sum, on a map (1, channels, count, tokens) of windows.

    The scores get a bias of positions, and, if masked, a mask of each window.
    """
    c, b, n = channels, count, tokens
    mask = "u = Reshape(mb, sw)  w = Add(u, mask)  ms = Reshape(w, sh)"
    text = f"""{HEADER} g (float[1,{c},{b},{n}] x) => (float[1,{c},{b},{n}] y) {{
  xl = Transpose<perm=[0,2,3,1]>(x)  xt = Reshape(xl, s3)
  a = MatMul(xt, wqkv)  b = Add(a, bqkv) {SPLITS[spelling]}
  qs = Mul(q, s)  m = MatMul(qs, kt)  mb = Add(m, bias)
  {mask if masked else "ms = Identity(mb)"}  p = Softmax<axis=-1>(ms)
  o = MatMul(p, v)  ot = Transpose<perm=[0,2,1,3]>(o)  oc = Reshape(ot, s3)
  pr = MatMul(oc, wp)  z = Add(pr, xt)
  zl = Reshape(z, sl)  y = Transpose<perm=[0,3,1,2]>(zl) }}"""
    rng = np.random.default_rng(0)
    return with_constants(
        text,
        {
            **constants_of(rng, b, n, c, heads),
            "bias": rng.normal(size=(1, heads, n, n)) * 0.5,
            "mask": np.where(rng.random((1, b, 1, n, n)) < 0.3, -8.0, 0.0),
            "sw": np.array([1, b, heads, n, n]),
            "sh": np.array([b, heads, n, n]),
            "sl": np.array([1, b, n, c]),
        },
    )


def cross(
    keys: int, *, queries: int | None = None, heads: int = 1, deep: int = 8, masked: bool = False
) -> onnx.ModelProto:
    """Attention of the first tokens (1, keys, channels) to all. masked: a mask of the scores."""
    b = Builder()
    x = b.input(1, keys, heads * deep)
    first = x if queries is None else b.slice(x, 1, 0, queries)
    return b.model(b.attention(first, heads, keys=x, bias=masked))


def convolutional(channels: int, side: int, heads: int) -> onnx.ModelProto:
    """The attention of YOLO11 (PSA) with its positional encoding, on (1, channels, side, side)."""
    wide = channels // heads
    deep = wide // 2
    made = heads * (2 * deep + wide)
    size = f"float[1,{channels},{side},{side}]"
    text = f"""{HEADER} g ({size} x) => ({size} y) {{
  a = Conv(x, wqkv, bqkv)  r = Reshape(a, s4)  q, k, v = Split<axis=2>(r, sp)
  qt = Transpose<perm=[0,1,3,2]>(q)  m = MatMul(qt, k)  ms = Mul(m, s)  p = Softmax<axis=-1>(ms)
  pt = Transpose<perm=[0,1,3,2]>(p)  o = MatMul(v, pt)
  oc = Reshape(o, sx)  vc = Reshape(v, sx)  pe = Conv<group={channels},pads=[1,1,1,1]>(vc, wpe)
  z = Add(oc, pe)  pr = Conv(z, wp)  y = Add(pr, x) }}"""
    rng, c = np.random.default_rng(0), channels
    return with_constants(
        text,
        {
            "wqkv": rng.normal(size=(made, c, 1, 1)) / np.sqrt(c),
            "bqkv": rng.normal(size=made) * 0.3,
            "wpe": rng.normal(size=(c, 1, 3, 3)) / 3,
            "wp": rng.normal(size=(c, c, 1, 1)) / np.sqrt(c),
            "s": np.array(deep**-0.5),
            "s4": np.array([1, heads, 2 * deep + wide, side * side]),
            "sx": np.array([1, c, side, side]),
            "sp": np.array([deep, deep, wide]),
        },
    )


def one_key_for_all(channels: int, side: int, heads: int, deep: int) -> onnx.ModelProto:
    """Multi-query attention (MobileNetV4): heads share keys and values."""
    n = side * side
    size = f"float[1,{channels},{side},{side}]"
    text = f"""{HEADER} g ({size} x) => ({size} y) {{
  a = Conv(x, wq)  q = Reshape(a, sq)  qt = Transpose<perm=[0,1,3,2]>(q)
  b = Conv(x, wk)  k = Reshape(b, sk)  c = Conv(x, wv)  v = Reshape(c, sk)
  m = MatMul(qt, k)  p = Softmax<axis=-1>(m)
  vt = Transpose<perm=[0,1,3,2]>(v)  o = MatMul(p, vt)
  ot = Transpose<perm=[0,1,3,2]>(o)  oc = Reshape(ot, so)  y = Conv(oc, wo) }}"""
    rng, c = np.random.default_rng(0), channels
    weights = {"wq": heads * deep, "wk": deep, "wv": deep}
    return with_constants(
        text,
        {
            **{w: rng.normal(size=(out, c, 1, 1)) / np.sqrt(c) for w, out in weights.items()},
            "wo": rng.normal(size=(c, heads * deep, 1, 1)) / np.sqrt(heads * deep),
            "sq": np.array([1, heads, deep, n]),
            "sk": np.array([1, 1, deep, n]),
            "so": np.array([1, heads * deep, side, side]),
        },
    )


def linear(channels: int, side: int, heads: int) -> onnx.ModelProto:
    """Linear attention (EfficientViT) without its division: keys times values come first."""
    deep = channels // heads
    size = f"float[1,{channels},{side},{side}]"
    text = f"""{HEADER} g ({size} x) => ({size} y) {{
  a = Conv(x, wqkv)  r = Reshape(a, s4)  q, k, v = Split<axis=2>(r, sp)
  ql = Relu(q)  kl = Relu(k)  kt = Transpose<perm=[0,1,3,2]>(kl)
  vk = MatMul(v, kt)  o = MatMul(vk, ql)  oc = Reshape(o, sx)  y = Conv(oc, wp) }}"""
    rng, c = np.random.default_rng(0), channels
    return with_constants(
        text,
        {
            "wqkv": rng.normal(size=(3 * c, c, 1, 1)) / np.sqrt(c),
            "wp": rng.normal(size=(c, c, 1, 1)) / np.sqrt(c),
            "s4": np.array([1, heads, 3 * deep, side * side]),
            "sp": np.array([deep, deep, deep]),
            "sx": np.array([1, c, side, side]),
        },
    )


def divided(
    channels: int, size: tuple[int, int], heads: int, deep: int, *, transposed: bool = False
) -> onnx.ModelProto:
    """Linear attention of EfficientViT with its division: a column of ones sums the keys.

    transposed: all matrices are, as newer exports have them.
    """
    n, made = size[0] * size[1], 3 * heads * deep
    image = f"{size[0]},{size[1]}"
    turn = "Transpose<perm=[0,1,3,2]>"
    rows = f"""
  q = {turn}(qr)  v = {turn}(vs)  vo = Pad(v, column, one)
  kv = MatMul(kr, vo)  o = MatMul(q, kv)
  num = Slice(o, zero, last, three)  den = Slice(o, last, end, three)
  eden = Add(den, epsilon)  z = Div(num, eden)  zt = {turn}(z)"""
    columns = f"""
  vo = Pad(vs, row, one)  k = {turn}(kr)
  vk = MatMul(vo, k)  o = MatMul(vk, qr)
  num = Slice(o, zero, last, two)  den = Slice(o, last, end, two)
  eden = Add(den, epsilon)  zt = Div(num, eden)"""
    text = f"""{HEADER} g (float[1,{channels},{image}] x) => (float[1,{channels},{image}] y) {{
  a = Conv(x, wqkv, bqkv)  r = Reshape(a, s4)  qs, ks, vs = Split<axis=2>(r, sp)
  qr = Relu(qs)  kr = Relu(ks) {columns if transposed else rows}
  oc = Reshape(zt, sx)  pr = Conv(oc, wp)  y = Add(pr, x) }}"""
    rng, c = np.random.default_rng(0), channels
    return with_constants(
        text,
        {
            "wqkv": rng.normal(size=(made, c, 1, 1)) / np.sqrt(c),
            "bqkv": rng.normal(size=made) * 0.3,
            "wp": rng.normal(size=(c, heads * deep, 1, 1)) / np.sqrt(heads * deep),
            "s4": np.array([1, heads, 3 * deep, n]),
            "sx": np.array([1, heads * deep, *size]),
            "sp": np.array([deep] * 3),
            "column": np.array([0] * 7 + [1]),
            "row": np.array([0] * 6 + [1, 0]),
            "one": np.array(1.0),
            "epsilon": np.array(1e-15),
            **{name: np.array([i]) for name, i in _ENDS.items()},
        },
    )


def separable(channels: int, size: tuple[int, int], *, patch: int = 2) -> onnx.ModelProto:
    """Separable attention of MobileViTv2: scores of a row weight its keys, whose sum multiplies the
    values. patch: rows and columns of a patch; each of its pixels has a row of its own.
    """
    c, (high, wide) = channels, size
    rows, cols = patch * patch, high * wide // patch**2
    text = f"""{HEADER} g (float[1,{c},{high},{wide}] x) => (float[1,{c},{rows},{cols}] y) {{
  e = Conv(x, we)  s6 = Reshape(e, six)  st = Transpose<perm=[0,1,3,5,2,4]>(s6)
  p = Reshape(st, four)  qkv = Conv(p, wqkv, bqkv)  q, k, v = Split<axis=1>(qkv, parts)
  a = Softmax<axis=-1>(q)  w = Mul(k, a)  s = ReduceSum<keepdims=1>(w, last)
  r = Relu(v)  sw = Expand(s, four)  m = Mul(r, sw)  o = Conv(m, wo, bo)  y = Add(p, o) }}"""
    rng = np.random.default_rng(channels)
    return with_constants(
        text,
        {
            "we": rng.normal(size=(c, c, 1, 1)) / np.sqrt(c),
            "wqkv": rng.normal(size=(2 * c + 1, c, 1, 1)) / np.sqrt(c),
            "bqkv": rng.normal(size=2 * c + 1) * 0.3,
            "wo": rng.normal(size=(c, c, 1, 1)) / np.sqrt(c),
            "bo": rng.normal(size=c) * 0.3,
            "six": np.array([1, c, high // patch, patch, wide // patch, patch]),
            "four": np.array([1, c, rows, cols]),
            "parts": np.array([1, c, c]),
            "last": np.array([-1]),
        },
    )


def classified(tokens: int, channels: int = 16) -> onnx.ModelProto:
    """A Softmax of channels and its sums, which are an output; next to them two other layers."""
    c, size = channels, f"float[1,{channels},1,{tokens}]"
    text = f"""{HEADER} g ({size} x) => (float[1,4,1,{tokens}] y, {size} z) {{
  s = Conv(x, ws)  p = Softmax<axis=1>(s)  y = Conv(p, wy)
  a = Conv<pads=[0,2,0,2]>(x, wa)  r = Relu(a)  z = Conv<pads=[0,2,0,2]>(r, wz) }}"""
    rng = np.random.default_rng(0)
    sizes = {"ws": (c, c, 1, 1), "wy": (4, c, 1, 1), "wa": (c, c, 1, 5), "wz": (c, c, 1, 5)}
    return with_constants(text, {k: rng.normal(size=n) / np.sqrt(c) for k, n in sizes.items()})


_ENDS = {"zero": 0, "last": -1, "end": np.iinfo(np.int64).max, "two": 2, "three": 3}


def talking(channels: int, side: int, heads: int, deep: int) -> onnx.ModelProto:
    """Talking heads (EfficientFormerV2): convolutions mix the scores and softmaxes of heads."""
    n = side * side
    size = f"float[1,{channels},{side},{side}]"
    turn = "Transpose<perm=[0,1,3,2]>"
    text = f"""{HEADER} g ({size} x) => ({size} y) {{
  a = Conv(x, wq)  qr = Reshape(a, sq)  q = {turn}(qr)
  b = Conv(x, wk)  k = Reshape(b, sq)  c = Conv(x, wv)  vr = Reshape(c, sq)  v = {turn}(vr)
  m = MatMul(q, k)  ms = Mul(m, s)  mb = Add(ms, bias)  t = Conv(mb, w1, b1)
  p = Softmax<axis=-1>(t)  u = Conv(p, w2, b2)  o = MatMul(u, v)
  ot = {turn}(o)  oc = Reshape(ot, so)  y = Conv(oc, wo) }}"""
    rng, c = np.random.default_rng(0), channels
    mixing = {f"w{i}": rng.normal(size=(heads, heads, 1, 1)) / np.sqrt(heads) for i in (1, 2)}
    return with_constants(
        text,
        {
            **{
                w: rng.normal(size=(heads * deep, c, 1, 1)) / np.sqrt(c) for w in ("wq", "wk", "wv")
            },
            **mixing,
            **{f"b{i}": rng.normal(size=heads) * 0.2 for i in (1, 2)},
            "wo": rng.normal(size=(c, heads * deep, 1, 1)) / np.sqrt(heads * deep),
            "s": np.array(deep**-0.5),
            "bias": rng.normal(size=(heads, n, n)) * 0.5,
            "sq": np.array([1, heads, deep, n]),
            "so": np.array([1, heads * deep, side, side]),
        },
    )


def encoder_layer(tokens: int, channels: int, heads: int) -> onnx.ModelProto:
    """A layer of a ViT on (1, tokens, channels): norms, attention, MLP, two residual sums."""
    b = Builder()
    return b.model(b.encoder_layer(b.input(1, tokens, channels), heads))


def rolled(side: int, channels: int, shift: int) -> onnx.ModelProto:
    """A normalised map, rolled along rows and columns as Swin shifts windows, on an image."""
    b = Builder()
    x = b.conv(b.input(1, 3, side, side + 1), channels, 3, 1, 1)
    x = roll(b, b.layer_norm(b.transpose(x, 0, 2, 3, 1)), shift)
    return b.model(b.conv(b.transpose(x, 0, 3, 1, 2), channels, 3, 1, 1))


def with_constants(text: str, constants: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model of a text, with those of the constants that it reads."""
    model = onnx.parser.parse_model(text)
    read = {name for node in model.graph.node for name in node.input}
    for name, data in constants.items():
        if name in read:
            kept = data.astype(np.float32) if data.dtype.kind == "f" else data
            model.graph.initializer.append(numpy_helper.from_array(kept, name))
    return model


_BOXES = {
    "alone": ("f0 = Reshape(b0, s0)  f1 = Reshape(b1, s1)  f = Concat<axis=2>(f0, f1)", ""),
    "slices": (
        """c0 = Concat<axis=1>(b0, k0)  c1 = Concat<axis=1>(b1, k1)
  f0 = Reshape(c0, s0)  f1 = Reshape(c1, s1)  a = Concat<axis=2>(f0, f1)
  f = Slice(a, zero, deep, one)  k = Slice(a, deep, end, one)""",
        "z",
    ),
    "split": (
        """c0 = Concat<axis=1>(b0, k0)  c1 = Concat<axis=1>(b1, k1)
  f0 = Reshape(c0, s0)  f1 = Reshape(c1, s1)  a = Concat<axis=2>(f0, f1)
  f, k = Split<axis=1>(a, parts)""",
        "z",
    ),
}
BOXES = tuple(_BOXES)


def distances(
    spelling: str, *, channels: int = 8, sides: int = 4, bins: int = 4, classes: int = 3
) -> onnx.ModelProto:
    """The head of a detector (YOLO): distances of two maps as expected bins, and classes."""
    c, deep, pixels = channels, sides * bins, 6 * 4 + 3 * 2
    joined, scores = _BOXES[spelling]
    width = deep + classes if scores else deep
    z = f", float[1,{classes},{pixels}] z" if scores else ""
    text = f"""{HEADER} g (float[1,{c},6,4] x) => (float[1,{sides},{pixels}] y{z}) {{
  b0 = Conv(x, w0, v0)  k0 = Conv(x, q0)
  d = Conv<kernel_shape=[2,2], strides=[2,2]>(x, wd)
  b1 = Conv(d, w1, v1)  k1 = Conv(d, q1)  {joined}
  r = Reshape(f, s4)  t = Transpose<perm=[0,2,1,3]>(r)  p = Softmax<axis=1>(t)
  e = Conv(p, we)  y = Reshape(e, s3)  {"z = Sigmoid(k)" if scores else ""} }}"""
    rng = np.random.default_rng(deep)
    return with_constants(
        text,
        {
            **{f"w{i}": rng.normal(size=(deep, c, 1, 1)) / np.sqrt(c) for i in (0, 1)},
            **{f"v{i}": rng.normal(size=deep) for i in (0, 1)},
            **{f"q{i}": rng.normal(size=(classes, c, 1, 1)) / np.sqrt(c) for i in (0, 1)},
            "wd": rng.normal(size=(c, c, 2, 2)) / np.sqrt(4 * c),
            "we": np.arange(bins, dtype=float).reshape(1, bins, 1, 1),
            "s0": np.array([1, width, 24]),
            "s1": np.array([1, width, 6]),
            "s4": np.array([1, sides, bins, pixels]),
            "s3": np.array([1, sides, pixels]),
            "parts": np.array([deep, classes]),
            "zero": np.array([0]),
            "deep": np.array([deep]),
            "end": np.array([np.iinfo(np.int64).max]),
            "one": np.array([1]),
        },
    )
