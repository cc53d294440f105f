"""What machines run in another form than the model's: sums, Einsum, Tile, smaller maps, windows
larger than tiles.
"""

import math

import numpy as np

from tests.fuzz.layers import reduced
from tests.fuzz.sketch import MOST_ELEMENTS, MOST_MACS, Sketch, Value

_EQUATIONS = (
    *("nchw,oc->nohw", "bchw,cd->bdhw", "nchw,oc->nhwo", "...chw,cd->...dhw", "nchw,cho->nohw"),
    *("nchw,c->nchw", "nchw->nhwc", "nchw,chw->nchw"),
)
"""`nchw,cho->nohw` sums up channels alone, row by row: no machine has such weights."""


def reduction(s: Sketch, x: Value) -> Value:
    """A mean, sum or maximum over some axes of an image."""
    op = str(s.pick(("ReduceMean",) * 3 + ("ReduceSum", "ReduceMax")))
    axes = s.pick(((1,), (1,), (2,), (3,), (1, 2), (1, 3), (2, 3), (1, 2, 3)))
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    if op == "ReduceSum":
        return s.node(op, (x, s.ints(*axes)), shape, keepdims=1)
    return reduced(s, op, x, axes, shape)


def einsum(s: Sketch, x: Value) -> Value:
    equation = str(s.pick(_EQUATIONS))
    given, _, result = equation.partition("->")
    labels, *weight = given.replace("...", "n").split(",")
    new = s.number(1, max(1, min(24, MOST_MACS // x.elements)))
    sizes = {"o": new, "d": new, **dict(zip(labels, x.shape, strict=True))}
    shape = tuple(sizes[n] for n in result.replace("...", "n"))
    if math.prod(shape) > MOST_ELEMENTS:
        return x
    operands: list[Value | str] = [x]
    if weight:
        operands.append(s.weight(tuple(sizes[n] for n in weight[0]), x.channels))
    return s.node("Einsum", operands, shape, equation=equation)


def tile(s: Sketch, x: Value) -> Value:
    """Mostly of channels."""
    axis = int(s.pick((1, 1, 1, 2, 3)))
    times = [s.number(2, 3) if i == axis else 1 for i in range(4)]
    shape = tuple(n * k for n, k in zip(x.shape, times, strict=True))
    return s.node("Tile", (x, s.ints(*times)), shape) if math.prod(shape) <= MOST_ELEMENTS else x


def shrink(s: Sketch, x: Value) -> Value:
    """A Resize by one over a whole number, by sizes or scales."""
    by = [int(s.pick((1, 2, 2, 3, 4))) for _ in range(2)]
    size = [n // k for n, k in zip(x.size, by, strict=True)]
    if min(size) < 1 or by == [1, 1]:
        return x
    ways = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    form = {"coordinate_transformation_mode": str(s.pick(ways)), "mode": "linear"}
    if s.chance(0.5):
        modes = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
        form |= {"mode": "nearest", "nearest_mode": str(s.pick(modes))}
    shape = (1, x.channels, *size)
    if s.chance(0.4):
        return s.node("Resize", (x, "", "", s.ints(*shape)), shape, **form)
    scales = np.array([1, 1, *(1 / k for k in by)], np.float32)
    # A third of 9 is 3.0000001 rows or 2.9999999: inference and the runtime both round down.
    if [math.floor(n * float(f)) for n, f in zip(x.size, scales[2:], strict=True)] != size:
        return x
    return s.node("Resize", (x, "", s.constant(scales)), shape, **form)


def large_maximum(s: Sketch, x: Value) -> Value:
    """Windows of most of the map, around each pixel or a few apart."""
    kernel = [s.number(max(1, n // 2), n) for n in x.size]
    stride = [s.number(1, 3) for _ in range(2)]
    pads = [s.number(0, (kernel[i % 2] - 1) // 2) for i in range(4)]
    size = [(n + pads[i] + pads[i + 2] - kernel[i]) // stride[i] + 1 for i, n in enumerate(x.size)]
    form = {"kernel_shape": kernel, "strides": stride, "pads": pads}
    return s.node("MaxPool", (x,), (1, x.channels, *size), **form)
