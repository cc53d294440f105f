"""YOLO11 with its attention of pixels and its decoded boxes, built in code with seeded weights."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from benchmarks.attention_builder import Builder, Value


def yolo11(
    size: int = 320,
    stem: Sequence[int] = (16, 32),
    stages: Sequence[int] = (64, 128, 128, 256),
    neck: Sequence[int] = (64, 128, 256),
    heads: int = 2,
    classes: int = 80,
    bins: int = 16,
    **how: Any,
) -> onnx.ModelProto:
    """YOLO11n with its decoded boxes: attention on the last map, distances as Softmax over bins.

    neck: channels of the detected maps, which are those of the last stages.
    """
    b = Builder(**how)
    x, maps = b.input(1, 3, size, size), []
    for c in stem:
        x = _cbs(b, x, c, 3, 2)
    for number, c in enumerate(stages):
        deep = number >= 2
        x = _cbs(b, x, stages[number - 1], 3, 2) if number else x
        x = _c3k2(b, x, c, c // 2 if deep else c // 4, deep=deep)
        if number < len(stages) - 1:
            maps.append(x)
            continue
        maps.append(_c2psa(b, _sppf(b, x), heads))
    return b.model(_boxes(b, _neck(b, maps[-len(neck) :], neck), size, classes, bins))


def _cbs(
    b: Builder, x: Value, out: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> Value:
    return b.silu(b.conv(x, out, kernel, stride, kernel // 2, groups))


def _bottleneck(b: Builder, x: Value, hidden: int) -> Value:
    return b.op("Add", x, _cbs(b, _cbs(b, x, hidden, 3), b.shapes[x][1], 3))


def _c3k2(b: Builder, x: Value, out: int, c: int, *, deep: bool) -> Value:
    first, y = b.split(_cbs(b, x, 2 * c), 1, 2)
    if deep:
        z = _cbs(b, y, c // 2)
        for _ in range(2):
            z = _bottleneck(b, z, c // 2)
        z = _cbs(b, b.concat(1, z, _cbs(b, y, c // 2)), c)
    else:
        z = _bottleneck(b, y, c // 2)
    return _cbs(b, b.concat(1, first, y, z), out)


def _sppf(b: Builder, x: Value) -> Value:
    c, how = b.shapes[x][1], {"kernel_shape": [5, 5], "strides": [1, 1], "pads": [2] * 4}
    parts = [_cbs(b, x, c // 2)]
    for _ in range(3):
        parts.append(b.op("MaxPool", parts[-1], **how))
    return _cbs(b, b.concat(1, *parts), c)


def _c2psa(b: Builder, x: Value, heads: int) -> Value:
    c = b.shapes[x][1]
    first, y = b.split(_cbs(b, x, c), 1, 2)
    y = b.op("Add", y, _spatial_attention(b, y, heads))
    y = b.op("Add", y, b.conv(_cbs(b, y, c), c // 2, 1))
    return _cbs(b, b.concat(1, first, y), c)


def _spatial_attention(b: Builder, x: Value, heads: int) -> Value:
    """Pixels are tokens, channels come first; keys have half the channels of values."""
    _, c, rows, cols = b.shapes[x]
    wide = c // heads
    qkv = b.reshape(b.conv(x, 2 * c, 1), 1, heads, 2 * wide, rows * cols)
    qk, v = b.split(qkv, 2, 2)
    q, k = b.split(qk, 2, 2)
    scores = b.matmul(b.transpose(q, 0, 1, 3, 2), k)
    scores = b.op("Mul", scores, b.const((wide // 2) ** -0.5))
    y = b.matmul(v, b.transpose(b.softmax(scores), 0, 1, 3, 2))
    position = b.conv(b.reshape(v, *b.shapes[x]), c, 3, 1, 1, groups=c)
    return b.conv(b.op("Add", b.reshape(y, *b.shapes[x]), position), c, 1)


def _neck(b: Builder, maps: Sequence[Value], widths: Sequence[int]) -> list[Value]:
    """Top-down and bottom-up paths; maps from fine to coarse."""
    x, kept = maps[-1], [maps[-1]]
    for skip, c in zip(maps[-2::-1], widths[-2::-1], strict=True):
        scales = b.const([1, 1, 2, 2])
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
        shape = (1, b.shapes[x][1], *b.shapes[skip][2:])
        x = b.op("Resize", x, "", scales, shape=shape, nearest_mode="floor", **how)
        x = _c3k2(b, b.concat(1, x, skip), c, c // 2, deep=False)
        kept.append(x)
    found = [kept.pop()]
    for c in widths[1:]:
        x = b.concat(1, _cbs(b, found[-1], b.shapes[found[-1]][1], 3, 2), kept.pop())
        found.append(_c3k2(b, x, c, c // 2, deep=c == widths[-1]))
    return found


def _boxes(b: Builder, maps: Sequence[Value], size: int, classes: int, bins: int) -> Value:
    """(1, 4 + classes, pixels of all maps): centre, width, height in pixels of the image, and
    probabilities."""
    wide, narrow = 4 * bins, max(b.shapes[maps[0]][1], min(classes, 100))
    parts, anchors, strides = [], [], []
    for x in maps:
        _, c, rows, cols = b.shapes[x]
        box = b.conv(_cbs(b, _cbs(b, x, wide, 3), wide, 3), wide, 1)
        y = _cbs(b, _cbs(b, x, c, 3, groups=c), narrow)
        y = b.conv(_cbs(b, _cbs(b, y, narrow, 3, groups=narrow), narrow), classes, 1)
        parts.append(b.reshape(b.concat(1, box, y), 1, wide + classes, rows * cols))
        anchors.append(np.indices((rows, cols))[::-1].reshape(2, -1) + 0.5)
        strides.append(np.full((1, rows * cols), size / rows))
    x = b.concat(2, *parts) if len(parts) > 1 else parts[0]
    n = b.shapes[x][2]
    box, scores = b.slice(x, 1, 0, wide), b.slice(x, 1, wide, wide + classes)
    box = b.transpose(b.reshape(box, 1, 4, bins, n), 0, 2, 1, 3)
    box = b.op("Softmax", box, axis=1)
    expected = b.const(np.arange(bins).reshape(1, bins, 1, 1))
    box = b.reshape(b.op("Conv", box, expected, shape=(1, 1, 4, n), kernel_shape=[1, 1]), 1, 4, n)
    before, after = b.split(box, 1, 2)
    centres = b.const(np.concatenate(anchors, 1)[None])
    low, high = b.op("Sub", centres, before), b.op("Add", centres, after)
    middle = b.op("Div", b.op("Add", low, high), b.const(2.0))
    box = b.concat(1, middle, b.op("Sub", high, low))
    box = b.op("Mul", box, b.const(np.concatenate(strides, 1)[None]))
    return b.concat(1, box, b.op("Sigmoid", scores))
