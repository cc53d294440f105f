"""Attention whose queries and keys exporters rotate, normalise or turn before their product."""

import numpy as np
import onnx

from tests.networks.attention_blocks import HEADER, constants_of, with_constants

ROTATED = {
    "halves": """{x}a = Slice({x}, n0, half, n3)  {x}b = Slice({x}, half, last, n3)
  {x}n = Neg({x}b)  {x}r = Concat<axis=-1>({x}n, {x}a)""",
    "pairs": """{x}b = Slice({x}, n1, last, n3, n2)  {x}n = Neg({x}b)
  {x}a = Slice({x}, n0, last, n3, n2)  {x}u = Unsqueeze({x}n, end)  {x}v = Unsqueeze({x}a, end)
  {x}w = Concat<axis=-1>({x}u, {x}v)  {x}r = Reshape({x}w, whole)""",
}
"""Heads `x` with the channels of each exchanged, half of them negative."""
_SUM = "  {x}c = Mul({x}, cos)  {x}s = Mul({x}r, sin)  {y} = Add({x}c, {x}s)"


_BACK = """z = Add(pr, x)  zl = Reshape(z, sl)  y = Transpose<perm=[0,3,1,2]>(zl) }"""


def _map(count: int, tokens: int, channels: int) -> str:
    """The beginning of a network whose tokens x (count, tokens, channels) are those of a map."""
    size = f"float[1,{channels},{count},{tokens}]"
    return f"""g ({size} image) => ({size} y) {{
  xl = Transpose<perm=[0,2,3,1]>(image)  x = Reshape(xl, s3)"""


def rotary(
    tokens: int,
    channels: int,
    heads: int,
    *,
    spelling: str = "halves",
    keys: int | None = None,
    class_token: bool = False,
) -> onnx.ModelProto:
    """Attention with rotary embeddings of so many tokens (1, tokens, channels). keys: heads of keys
    and values, each for several queries; class_token: the first one is not rotated.
    """
    n, c, deep, groups = tokens, channels, channels // heads, keys or heads
    whole = [1, heads, n - class_token, deep]
    parts = []
    for name, out, count in (("q", "rq", heads), ("k", "rk", groups)):
        x = f"{name}x" if class_token else name
        body = ROTATED[spelling].replace("whole", f"whole{count}") + _SUM
        y = f"{name}y" if class_token else out
        first = ""
        if class_token:
            first = f"{name}1 = Slice({name}, n0, n1, n2)  {x} = Slice({name}, n1, last, n2)\n  "
            body += f"  {out} = Concat<axis=2>({name}1, {y})"
        parts.append(first + body.format(x=x, y=y))
    repeated = ("ke = Identity(rk)", "ve = Identity(v)")
    if groups != heads:
        repeated = tuple(
            f"{x}5 = Unsqueeze({source}, n2)  {x}6 = Expand({x}5, many)  {x}e = Reshape({x}6, sh)"
            for x, source in (("k", "rk"), ("v", "v"))
        )
    text = f"""{HEADER} {_map(1, n, c)}
  fq = MatMul(x, wq)  gq = Add(fq, bq)  fk = MatMul(x, wk)  fv = MatMul(x, wv)
  hq = Reshape(gq, sq)  q = Transpose<perm=[0,2,1,3]>(hq)
  hk = Reshape(fk, sk)  k = Transpose<perm=[0,2,1,3]>(hk)
  hv = Reshape(fv, sk)  v = Transpose<perm=[0,2,1,3]>(hv)
  {parts[0]}
  {parts[1]}
  {repeated[0]}  {repeated[1]}  kt = Transpose<perm=[0,1,3,2]>(ke)
  qf = Mul(rq, root)  kf = Mul(kt, root)  m = MatMul(qf, kf)  p = Softmax<axis=-1>(m)
  o = MatMul(p, ve)  ot = Transpose<perm=[0,2,1,3]>(o)  oc = Reshape(ot, s3)  pr = MatMul(oc, wp)
  {_BACK}"""
    rng = np.random.default_rng(0)
    angles = np.arange(whole[2])[:, None] * 1.5 ** -np.arange(deep // 2)
    turned = np.tile(angles, 2) if spelling == "halves" else np.repeat(angles, 2, axis=1)
    inner = groups * deep
    numbers = {f"n{i}": np.array([i]) for i in range(4)}
    return with_constants(
        text,
        {
            **constants_of(rng, 1, n, c, heads),
            **numbers,
            "wq": rng.normal(size=(c, c)) / np.sqrt(c),
            "bq": rng.normal(size=c) * 0.3,
            "wk": rng.normal(size=(c, inner)) / np.sqrt(c),
            "wv": rng.normal(size=(c, inner)) / np.sqrt(c),
            "root": np.array(deep**-0.25),
            "sl": np.array([1, 1, n, c]),
            "cos": np.cos(turned),
            "sin": np.sin(turned),
            "half": np.array([deep // 2]),
            "last": np.array([2**31 - 1]),
            "end": np.array([-1]),
            "sq": np.array([1, n, heads, deep]),
            "sk": np.array([1, n, groups, deep]),
            "sh": np.array([1, heads, n, deep]),
            "many": np.array([1, groups, heads // groups, n, deep]),
            f"whole{heads}": np.array(whole),
            f"whole{groups}": np.array([1, groups, *whole[2:]]),
        },
    )


_UNIT = "{x}2 = ReduceL2<axes=[-1]>({x})  {x}3 = Clip({x}2, least)  {x}4 = Expand({x}3, {s})"


def cosine(
    count: int, tokens: int, channels: int, heads: int, *, of_channels: bool = False
) -> onnx.ModelProto:
    """Attention of `count` windows whose queries and keys have length 1, with a factor for each
    head: of tokens to tokens (Swin v2), or of_channels, which have length 1 over all tokens, to
    channels (XCiT).
    """
    b, n, c, deep = count, tokens, channels, channels // heads
    perm, size = ([0, 2, 3, 1], "sc") if of_channels else ([0, 2, 1, 3], "sh")
    units = "\n  ".join(f"{_UNIT.format(x=x, s=size)}  {x}5 = Div({x}, {x}4)" for x in ("q", "k"))
    bias = "ms = Identity(mf)" if of_channels else "ms = Add(mf, bias)"
    back = [0, 3, 1, 2] if of_channels else [0, 2, 1, 3]
    text = f"""{HEADER} {_map(b, n, c)}
  qm = MatMul(x, wq)  qb = Add(qm, bq)  km = MatMul(x, wk)  vm = MatMul(x, wv)
  qr = Reshape(qb, s4)  q = Transpose<perm={perm}>(qr)
  kr = Reshape(km, s4)  k = Transpose<perm={perm}>(kr)
  vr = Reshape(vm, s4)  v = Transpose<perm={perm}>(vr)
  {units}
  kt = Transpose<perm=[0,1,3,2]>(k5)  m = MatMul(q5, kt)  mf = Mul(m, factors)  {bias}
  p = Softmax<axis=-1>(ms)  o = MatMul(p, v)  ot = Transpose<perm={back}>(o)
  oc = Reshape(ot, s3)  pr = MatMul(oc, wp)  {_BACK}"""
    rng = np.random.default_rng(0)
    return with_constants(
        text,
        {
            **constants_of(rng, b, n, c, heads),
            **{name: rng.normal(size=(c, c)) / np.sqrt(c) for name in ("wq", "wk", "wv")},
            "bq": rng.normal(size=c) * 0.3,
            "least": np.array(1e-12),
            "factors": np.linspace(2.0, 8.0, heads).reshape(heads, 1, 1),
            "bias": rng.normal(size=(1, heads, n, n)) * 0.5,
            "sl": np.array([1, b, n, c]),
            "sh": np.array([b, heads, n, deep]),
            "sc": np.array([b, heads, deep, n]),
        },
    )
