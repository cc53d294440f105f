"""Networks that add one pixel, a value for each channel, to a map: as biases that are computed."""

import onnx_ir as ir

from tests.dfg.canonical import canonical

_TEXT = """g (float[1,{c},9,7] x{given}, float[{c},{c},1,1] wa, float[{c},{c},1,1] wv,
    float[{c}] bv) => (float[1,{c},{rows},{cols}] y)
    <float[4] scales = {{1.0, 1.0, 2.0, 2.0}}> {{
    a = Conv(x, wa)
    m = GlobalAveragePool(x)
    v = Conv(m, wv, bv)
    {added} }}"""

NETWORKS = {
    "computed": (40, "y = Add(a, v)"),
    "computed, first": (40, "y = Add(v, a)"),
    "an input": (40, "y = Add(a, given)"),
    "several words": (150, "y = Add(a, v)"),
    "few channels": (5, "s = Add(a, v) y = Relu(s)"),
    "no convolution": (40, "s = Add(x, v) y = Relu(s)"),
    "to two maps": (40, "s = Add(a, v) t = Add(x, v) y = Add(s, t)"),
    "before a pool": (40, "s = Add(a, v) y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(s)"),
    "after a pool": (
        40,
        "p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a) y = Add(p, v)",
    ),
    "repeated": (
        12,
        """s = Add(a, v) y = Resize<coordinate_transformation_mode="asymmetric", mode="nearest",
        nearest_mode="floor">(s, , scales)""",
    ),
}
"""Channels, and what is done with the map `a` and the pixel `v`, or the input `given`."""


def network(name: str) -> ir.Model:
    """A float model."""
    channels, added = NETWORKS[name]
    size = {"rows": 9, "cols": 7}
    if "MaxPool" in added:
        size = {"rows": 4, "cols": 3}
    if "Resize" in added:
        size = {"rows": 18, "cols": 14}
    given = f", float[1,{channels},1,1] given" if "given" in added else ""
    return canonical(_TEXT.format(c=channels, added=added, given=given, **size), seed=7)
