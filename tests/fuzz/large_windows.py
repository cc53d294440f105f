"""Windows larger than networks usually have: depthwise kernels of 9 to 31 rows and columns, and
pools over maps of hundreds of them. Few channels and few results keep them fast.
"""

import math

import numpy as np

from tests.fuzz.layers import global_pool, pointwise
from tests.fuzz.sketch import MOST_ELEMENTS, MOST_MACS, Sketch, Value

_LONGEST = 300
"""Rows or columns of a map that is pooled as a whole: more than a window of an instruction has."""


def large_depthwise(s: Sketch, x: Value) -> Value:
    """One filter for each of at most eight channels; strides as large as its products demand."""
    x = _narrowed(s, x, 8)
    kernel = [s.number(9, 31) if s.chance(0.8) else s.number(1, 7) for _ in x.size]
    if s.chance(0.6):
        kernel = [kernel[0]] * 2
    half = [k // 2 for k in kernel] * 2
    least = [max(0, -(-(k - n) // 2)) for k, n in zip(kernel, x.size, strict=True)] * 2
    pads = (
        half
        if s.chance(0.6)
        else [s.number(min(low, high), high) for low, high in zip(least, half, strict=True)]
    )
    pads = [max(low, pad) for low, pad in zip(least, pads, strict=True)]
    strides = [1, 1] if s.chance(0.6) else [s.number(1, 3) for _ in range(2)]
    room = MOST_MACS // 4 // (x.channels * math.prod(kernel))
    while math.prod(size := _size(x, kernel, pads, strides)) > max(room, 1):
        strides = [n + 1 for n in strides]
    weight = s.weight((x.channels, 1, *kernel), math.prod(kernel))
    operands = [x, weight, *([s.numbers((x.channels,), -0.4, 0.4)] if s.chance(0.6) else [])]
    form = {"kernel_shape": kernel, "pads": pads, "strides": strides, "group": x.channels}
    return s.node("Conv", operands, (1, x.channels, *size), **form)


def large_mean(s: Sketch, x: Value) -> Value:
    """An average over most of the map around each pixel, or a few apart."""
    kernel = [s.number(max(1, n // 2), n) for n in x.size]
    strides = [s.number(1, 4) for _ in range(2)]
    pads = [s.number(0, (kernel[i % 2] - 1) // 2) for i in range(4)]
    form = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    counted = s.number(0, 1)
    shape = (1, x.channels, *_size(x, kernel, pads, strides))
    return s.node("AveragePool", (x,), shape, count_include_pad=counted, **form)


def large_global_pool(s: Sketch, x: Value) -> Value:
    """Over a map that a Resize makes large, mostly along one axis."""
    x = _narrowed(s, x, 3)
    room = MOST_ELEMENTS // x.elements
    times = [s.number(1, max(1, min(room, _LONGEST // x.size[0]))), 1]
    times[1] = s.number(1, max(1, min(room // times[0], _LONGEST // x.size[1])))
    shape = (1, x.channels, *(n * k for n, k in zip(x.size, times, strict=True)))
    form = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    scales = s.constant(np.array([1, 1, *times], np.float32))
    larger = s.node("Resize", (x, "", scales), shape, nearest_mode="floor", **form)
    return global_pool(s, larger)


def _narrowed(s: Sketch, x: Value, most: int) -> Value:
    return x if x.channels <= most else pointwise(s, x, s.number(1, most))


def _size(x: Value, kernel: list[int], pads: list[int], strides: list[int]) -> list[int]:
    return [(n + pads[i] + pads[i + 2] - kernel[i]) // strides[i] + 1 for i, n in enumerate(x.size)]
