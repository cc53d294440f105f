"""Maps with a norm and other readers, such as the residual stream of a transformer."""

import numpy as np
import onnx

from tests.networks.attention_blocks import with_constants

_HEADER = '<ir_version: 11, opset_import: ["" : 23]>'
_LAST, _FIRST = "perm=[0,2,3,1]", "perm=[0,3,1,2]"
_NORMS = {
    "layer_norm": f"{{y}}t = Transpose<{_LAST}>({{x}}) "
    "{y}m = LayerNormalization<axis=-1,epsilon=1e-6>({y}t, g{y}, o{y}) "
    f"{{y}} = Transpose<{_FIRST}>({{y}}m)",
    "rms_norm": f"{{y}}t = Transpose<{_LAST}>({{x}}) "
    "{y}m = RMSNormalization<axis=-1,epsilon=1e-6>({y}t, g{y}) "
    f"{{y}} = Transpose<{_FIRST}>({{y}}m)",
    "softmax": "{y} = Softmax<axis=1>({x})",
}
_SUM = "a = Conv(x, w) f = Relu(a) e = Conv(f, v) b = Add(e, f) "
_USED = "h = Conv(n, u) y = Add(h, b)"
STREAMS = {
    "residual": f"{_SUM} N(b, n) {_USED}",
    "computed maps": f"a = Conv(x, w) f = Relu(a) e = Conv(f, v) d = Conv(f, u) b = Add(d, e) "
    f"N(b, n) {_USED}",
    "no product": "a = Conv(x, w) f = Relu(a) e = Conv(f, v) c = Relu(e) b = Add(c, f) "
    "k = Conv(c, u) N(b, n) h = Add(n, k) y = Add(h, b)",
    "product alone": f"b = Conv(x, w) N(b, n) {_USED}",
    "several norms": f"{_SUM} N(b, n) N(b, m) h = Conv(n, u) i = Conv(m, v) j = Add(h, i) "
    "y = Add(j, b)",
    "sum is an output": f"{_SUM} N(b, n) h = Conv(n, u) y = Add(h, f) z = Identity(b)",
    "norm is an output": f"{_SUM} N(b, n) {_USED} z = Identity(n)",
    "two layers": f"{_SUM} N(b, n) h = Conv(n, u) i = Relu(h) j = Conv(i, v) k = Add(j, b) "
    "N(k, m) l = Conv(m, u) y = Add(l, k)",
    "function after": f"{_SUM} N(b, n) s = Sigmoid(n) h = Conv(s, u) y = Add(h, b)",
    "wide kernel": "a = Conv(x, w) f = Relu(a) e = Conv<pads=[1,1,1,1]>(f, q) b = Add(e, f) "
    f"N(b, n) {_USED}",
}
"""x to y, and to z in some; N(map, norm) is a norm."""
ALONE = {
    "pooled": f"{_SUM} p = MaxPool<kernel_shape=[2,2]>(b) N(p, n) h = Conv(n, u) y = Add(h, p)",
    "normalised": f"{_SUM} N(b, n) N(n, m) h = Conv(m, u) y = Add(h, n)",
}
"""The operand of a norm is not what its group accumulates."""
INSIDE = {"sum for a norm": f"{_SUM} N(b, n) y = Conv(n, u)"}
"""Only the norm, in the group of the sum, reads it."""


def stream(kind: str, norm: str, channels: int, size: tuple[int, int] = (5, 5)) -> onnx.ModelProto:
    """x (1, 6, *size) -> y, z (1, channels, …)."""
    body, c = (STREAMS | ALONE | INSIDE)[kind], channels
    for x, y in (("b", "n"), ("b", "m"), ("k", "m"), ("n", "m"), ("p", "n")):
        body = body.replace(f"N({x}, {y})", _NORMS[norm].format(x=x, y=y))
    second = f", float[1,{c},h,w] z" if " z = " in body else ""
    inputs, outputs = f"float[1,6,{size[0]},{size[1]}] x", f"float[1,{c},h,w] y{second}"
    rng = np.random.default_rng(channels)
    return with_constants(
        f"{_HEADER} g ({inputs}) => ({outputs}) {{ {body} }}",
        {
            "w": rng.normal(size=(c, 6, 1, 1)) * 0.8,
            "q": rng.normal(size=(c, c, 3, 3)) / np.sqrt(9 * c),
            **{name: rng.normal(size=(c, c, 1, 1)) / np.sqrt(c) for name in "uv"},
            **{f"g{name}": rng.normal(1, 0.4, c) for name in "nm"},
            **{f"o{name}": rng.normal(0, 0.5, c) for name in "nm"},
        },
    )
