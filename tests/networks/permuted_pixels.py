"""Windows and patches of an image and back, as exporters write them, between convolutions."""

import numpy as np
import onnx

from tests.networks.attention_blocks import with_constants

_HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
_LAST, _FIRST = "Transpose<perm=[0,2,3,1]>", "Transpose<perm=[0,3,1,2]>"
_WINDOWS = "Transpose<perm=[0,1,3,2,4,5]>"

SPELLINGS = {
    "windows": f"""
  l = {_LAST}(a) r = Reshape(l, s6) t = {_WINDOWS}(r) i = Reshape(t, sm) b = {_FIRST}(i)""",
    "windows, channels first": """
  r = Reshape(a, f6) t = Transpose<perm=[0,1,2,4,3,5]>(r) b = Reshape(t, fm)""",
    "windows of five axes": f"""
  l = {_LAST}(a) r = Reshape(l, s5) t = Transpose<perm=[0,2,1,3,4]>(r)
  i = Reshape(t, sm) b = {_FIRST}(i)""",
    "windows as a batch": f"""
  l = {_LAST}(a) r = Reshape(l, s6) t = {_WINDOWS}(r) n = Reshape(t, s3)
  i = Reshape(n, sm) b = {_FIRST}(i)""",
    "patches": """
  r = Reshape(a, p4) t = Transpose<perm=[0,2,1,3]>(r) q = Reshape(t, pq)
  u = Transpose<perm=[0,3,2,1]>(q) n = Reshape(u, pn) v = Reshape(n, pl)
  b = Transpose<perm=[0,3,1,2]>(v)""",
}
"""From the map a of channels first to b, with windows or patches as rows."""

BACK = {
    "windows": f"""
  m = {_LAST}(d) x6 = Reshape(m, w6) xt = {_WINDOWS}(x6) xi = Reshape(xt, si) e = {_FIRST}(xi)""",
    "patches": """
  m = Transpose<perm=[0,2,3,1]>(d) x4 = Reshape(m, pu) xt = Transpose<perm=[0,3,2,1]>(x4)
  xi = Reshape(xt, pv) xu = Transpose<perm=[0,2,1,3]>(xi) e = Reshape(xu, fi)""",
}
"""From d to e, as a was."""


NORMALISED = """
  d1 = Transpose<perm=[0,2,3,1]>(b) d2 = LayerNormalization(d1, gain)
  d3 = Transpose<perm=[0,3,1,2]>(d2) d4 = Conv(d3, w1) d = Add(d4, b)"""
"""A residual block of tokens, from b to d."""


def roll(source: str, result: str, *axes: int) -> str:
    """A roll by two along axes of a map with channels first: two parts, exchanged."""
    text = ""
    for axis in axes:
        made = result if axis == axes[-1] else f"{result}{axis}"
        text += f"""
  {made}l = Slice({source}, two, end, ax{axis}) {made}f = Slice({source}, zero, two, ax{axis})
  {made} = Concat<axis={axis}>({made}l, {made}f)"""
        source = made
    return text


def network(
    spelling: str,
    channels: int,
    counts: tuple[int, int],
    sides: tuple[int, int],
    *,
    before: str = "a = Conv(x, w0)",
    between: str = "d = Conv(b, w1)",
    after: str = "",
) -> onnx.ModelProto:
    """`before` of x (1, 5, h, w); there and back, with `between`; `after` from e0 to e; and a sum
    with a convolution.

    counts, sides: windows down and across, and their rows and columns.
    """
    (i, j), (h, w), c = counts, sides, channels
    rows, cols, n = i * h, j * w, i * j
    back = BACK["patches" if spelling == "patches" else "windows"]
    back = back.replace(" e =", " e0 =") + after if after else back
    size = f"float[1,5,{rows},{cols}]"
    text = f"""{_HEADER} g ({size} x) => (float[1,{c},{rows},{cols}] y) {{
  {before} {SPELLINGS[spelling]} {between} {back} k = Conv(x, w2) y = Add(e, k) }}"""
    rng = np.random.default_rng(channels)
    return with_constants(
        text,
        {
            "w0": rng.normal(size=(c, 5, 1, 1)),
            "w1": rng.normal(size=(c, c, 1, 1)) / np.sqrt(c),
            "w2": rng.normal(size=(c, 5, 1, 1)),
            "zero": np.array([0]),
            "two": np.array([2]),
            "end": np.array([1 << 40]),
            **{f"ax{axis}": np.array([axis]) for axis in (2, 3)},
            "s6": np.array([1, i, h, j, w, c]),
            "s5": np.array([i, h, j, w, c]),
            "sm": np.array([1, n, h * w, c]),
            "s3": np.array([n, h * w, c]),
            "f6": np.array([1, c, i, h, j, w]),
            "fm": np.array([1, c, n, h * w]),
            "w6": np.array([1, i, j, h, w, c]),
            "si": np.array([1, rows, cols, c]),
            "p4": np.array([c * i, h, j, w]),
            "pq": np.array([1, c, n, h * w]),
            "pn": np.array([h * w, n, c]),
            "pl": np.array([1, h * w, n, c]),
            "pu": np.array([1, h * w, n, c]),
            "pv": np.array([c * i, j, h, w]),
            "fi": np.array([1, c, rows, cols]),
            "gain": rng.normal(size=c),
        },
    )
