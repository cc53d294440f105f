"""Networks with gates: a map times one value for each of its channels, where a convolution reads it
and elsewhere.
"""

from tests.dfg.canonical import canonical

BLOCK = """g (float[1,{c},9,7] x, float[{c},{c},1,1] wa, float[{c},1,3,3] wd, float[{c}] bd,
    float[6,{c},1,1] wr, float[6] br, float[{c},6,1,1] we, float[{c}] be, float[20,{c},{k},{k}] wp,
    float[20] bp) => (float[1,20,{rows},{cols}] y) {{
    a = Conv(x, wa)
    d = Conv<group={c}, pads=[1,1,1,1]>(a, wd, bd)
    m = GlobalAveragePool(d)
    r = Conv(m, wr, br)
    q = Relu(r)
    e = Conv(q, we, be)
    s = {sigmoid}(e)
    {gated} }}"""
"""Depthwise, mean, two dense layers, gate, projection: the block of MobileNetV3."""

PROJECTED = "p = Mul(d, s) y = Conv(p, wp, bp)"
NETWORKS = {
    "block": (40, PROJECTED),
    "gate first": (40, "p = Mul(s, d) y = Conv(p, wp, bp)"),
    "several words": (150, PROJECTED),
    "few channels": (5, PROJECTED),
    "the map is added, too": (
        40,
        "p = Mul(d, s) o = Conv(p, wp, bp) u = Conv(d, wp) y = Add(o, u)",
    ),
    "a gate of two maps": (
        40,
        "p = Mul(d, s) t = Mul(s, a) o = Conv(p, wp, bp) u = Conv(t, wp) y = Add(o, u)",
    ),
    "a product that two read": (
        40,
        "p = Mul(d, s) o = Conv(p, wp, bp) u = Conv(p, wp) y = Add(o, u)",
    ),
    "rectified": (40, "p = Mul(d, s) c = Relu(p) y = Conv(c, wp, bp)"),
    "no convolution": (20, "p = Mul(d, s) y = Relu(p)"),
    "depthwise behind": (
        20,
        "p = Mul(d, s) y = Conv<group=20, pads=[1,1,1,1]>(p, wd, bd)",
    ),
    "windows with padding": (
        40,
        "p = Mul(d, s) y = Conv<pads=[1,1,1,1], strides=[2,2]>(p, wp, bp)",
    ),
}
"""Channels, and what is done with the map `d` and its gate `s`."""
NOT_IN_FRONT = {"a product that two read", "no convolution", "depthwise behind"}
"""Networks whose gates stand behind the array, or in a pass of their own."""


def network(name, sigmoid="Sigmoid"):
    """A float model."""
    channels, gated = NETWORKS[name]
    wide = "strides" in gated
    size = {"rows": 5 if wide else 9, "cols": 4 if wide else 7, "k": 3 if wide else 1}
    return canonical(BLOCK.format(c=channels, sigmoid=sigmoid, gated=gated, **size), seed=7)


def in_front(compiled):
    """Names of the products that stand before the array."""
    ops = [op for group in compiled.bundle.groups for op in group.ops]
    return [op.name for op in ops if op.op == "multiply" and op.module in {"se_pre", "gate"}]
