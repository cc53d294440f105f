"""YOLO11n (Jocher & Qiu 2024): attention of pixels, distances as Softmax over bins."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.zoo.builder import Feature
from opu_fuse.zoo.tokens import TokenNet

_BINS = 16
"""Of each distance from a pixel to a side of its box."""


def yolo11n(*, seed: int, image: tuple[int, int], width: int = 16, classes: int = 80) -> ir.Model:
    """2.6 M weights. Output [1, 4 + classes, pixels of three maps]: centre, width and height in
    pixels of the image, then probabilities. width: channels of the first layer, a multiple of 4.
    """
    net = TokenNet("yolo11n", seed=seed)
    w = width
    x = _halved(net, net.input("images", (1, 3, *image)), "0", w)
    x = _c3k2(net, _halved(net, x, "1", 2 * w), "2", 4 * w, w)
    p3 = _c3k2(net, _halved(net, x, "3", 4 * w), "4", 8 * w, 2 * w)
    p4 = _c3k2(net, _halved(net, p3, "5", 8 * w), "6", 8 * w, 4 * w, deep=True)
    x = _c3k2(net, _halved(net, p4, "7", 16 * w), "8", 16 * w, 8 * w, deep=True)
    p5 = _c2psa(net, _sppf(net, x, "9"), "10")
    p4 = _c3k2(net, _joined(net, p5, p4, "12"), "13", 8 * w, 4 * w)
    n3 = _c3k2(net, _joined(net, p4, p3, "15"), "16", 4 * w, 2 * w)
    x = net.concat([_halved(net, n3, "17", 4 * w), p4], "18")
    n4 = _c3k2(net, x, "19", 8 * w, 4 * w)
    x = net.concat([_halved(net, n4, "20", 8 * w), p5], "21")
    n5 = _c3k2(net, x, "22", 16 * w, 8 * w, deep=True)
    return net.finish(_boxes(net, (n3, n4, n5), image[0], classes))


def _halved(net: TokenNet, x: Feature, name: str, out: int) -> Feature:
    return net.conv_swish(x, name, out=out, kernel=3, stride=2)


def _bottleneck(net: TokenNet, x: Feature, name: str, hidden: int) -> Feature:
    y = net.conv_swish(x, f"{name}.cv1", out=hidden, kernel=3)
    y = net.conv_swish(y, f"{name}.cv2", out=x.channels, kernel=3)
    return net.add(x, y, f"{name}.add")


def _c3k2(
    net: TokenNet, x: Feature, name: str, out: int, width: int, *, deep: bool = False
) -> Feature:
    first, y = net.split(net.conv_swish(x, f"{name}.cv1", out=2 * width), f"{name}.split")
    half = width // 2
    if deep:
        z = net.conv_swish(y, f"{name}.m.cv1", out=half)
        for index in range(2):
            z = _bottleneck(net, z, f"{name}.m.m.{index}", half)
        other = net.conv_swish(y, f"{name}.m.cv2", out=half)
        z = net.concat([z, other], f"{name}.m.concat")
        z = net.conv_swish(z, f"{name}.m.cv3", out=width)
    else:
        z = _bottleneck(net, y, f"{name}.m", half)
    return net.conv_swish(net.concat([first, y, z], f"{name}.concat"), f"{name}.cv2", out=out)


def _sppf(net: TokenNet, x: Feature, name: str) -> Feature:
    """Maxima of growing windows."""
    c = x.channels
    parts = [net.conv_swish(x, f"{name}.cv1", out=c // 2)]
    for index in range(3):
        pool = f"{name}.m.{index}"
        parts.append(net.max_pool(parts[-1], pool, kernel=5, stride=1, pads=2))
    return net.conv_swish(net.concat(parts, f"{name}.concat"), f"{name}.cv2", out=c)


def _c2psa(net: TokenNet, x: Feature, name: str) -> Feature:
    """Attention and a small MLP of half the channels."""
    c = x.channels
    first, y = net.split(net.conv_swish(x, f"{name}.cv1", out=c), f"{name}.split")
    y = net.add(y, _spatial_attention(net, y, f"{name}.attn", heads=2), f"{name}.add1")
    z = net.conv_swish(y, f"{name}.ffn.0", out=c)
    z = net.conv(z, f"{name}.ffn.1", out=c // 2, kernel=1, batch_norm=f"{name}.ffn.1.bn")
    y = net.concat([first, net.add(y, z, f"{name}.add2")], f"{name}.concat")
    return net.conv_swish(y, f"{name}.cv2", out=c)


def _spatial_attention(net: TokenNet, x: Feature, name: str, *, heads: int) -> Feature:
    """Pixels are tokens, channels come first; queries and keys have half the channels of values."""
    _, c, rows, cols = x.shape
    wide = c // heads
    qkv = net.conv(x, f"{name}.qkv", out=2 * c, kernel=1, batch_norm=f"{name}.qkv.bn")
    qkv = net.reshape(qkv, f"{name}.heads", (1, heads, 2 * wide, rows * cols))
    qk, v = net.split(qkv, f"{name}.qk_v", axis=2)
    q, k = net.split(qk, f"{name}.q_k", axis=2)
    q = net.transpose(q, f"{name}.q.transpose", (0, 1, 3, 2))
    scores = net.matmul(q, k, f"{name}.scores")
    scores = net.scaled(scores, f"{name}.scale", (wide // 2) ** -0.5)
    weights = net.softmax(scores, f"{name}.softmax")
    weights = net.transpose(weights, f"{name}.softmax.transpose", (0, 1, 3, 2))
    y = net.reshape(net.matmul(v, weights, f"{name}.values"), f"{name}.map", x.shape)
    v = net.reshape(v, f"{name}.v.map", x.shape)
    v = net.conv(v, f"{name}.pe", out=c, kernel=3, pads=1, groups=c, batch_norm=f"{name}.pe.bn")
    y = net.add(y, v, f"{name}.add")
    return net.conv(y, f"{name}.proj", out=c, kernel=1, batch_norm=f"{name}.proj.bn")


def _joined(net: TokenNet, x: Feature, finer: Feature, name: str) -> Feature:
    return net.concat([net.upsample(x, f"{name}.upsample"), finer], f"{name}.concat")


def _boxes(net: TokenNet, maps: Sequence[Feature], size: int, classes: int) -> Feature:
    parts: list[Feature] = []
    narrow = max(maps[0].channels, min(classes, 100))
    for index, x in enumerate(maps):
        box, scores = _detector(net, x, f"23.{index}", narrow, classes)
        pixels = x.shape[2] * x.shape[3]
        y = net.concat([box, scores], f"23.{index}.concat")
        parts.append(net.reshape(y, f"23.{index}.flat", (1, 4 * _BINS + classes, pixels)))
    x = net.concat(parts, "23.concat", axis=2)
    box = net.crop(x, "23.box", 0, 4 * _BINS)
    scores = net.crop(x, "23.cls", 4 * _BINS, 4 * _BINS + classes)
    box = _decoded(net, _distances(net, box), maps, size)
    return net.concat([box, net.sigmoid(scores, "23.sigmoid")], "23.output")


def _detector(
    net: TokenNet, x: Feature, name: str, narrow: int, classes: int
) -> tuple[Feature, Feature]:
    """Logits of bins, four sides of a box, and of classes."""
    box, scores = x, x
    for layer in range(2):
        box = net.conv_swish(box, f"{name}.cv2.{layer}", out=4 * _BINS, kernel=3)
        label, c = f"{name}.cv3.{layer}", scores.channels
        scores = net.conv_swish(scores, f"{label}.0", out=c, kernel=3, groups=c)
        scores = net.conv_swish(scores, f"{label}.1", out=narrow)
    box = net.conv(box, f"{name}.cv2.2", out=4 * _BINS, kernel=1, bias=True)
    return box, net.conv(scores, f"{name}.cv3.2", out=classes, kernel=1, bias=True)


def _distances(net: TokenNet, box: Feature) -> Feature:
    """Expected bin of each side, (1, 4, n)."""
    n = box.shape[2]
    x = net.reshape(box, "23.dfl.bins", (1, 4, _BINS, n))
    x = net.softmax(net.transpose(x, "23.dfl.transpose", (0, 2, 1, 3)), "23.dfl.softmax", axis=1)
    return net.reshape(net.expectation(x, "23.dfl.conv"), "23.dfl", (1, 4, n))


def _decoded(net: TokenNet, sides: Feature, maps: Sequence[Feature], size: int) -> Feature:
    """Distances of the four sides from a pixel's centre -> box in pixels of the image."""
    grids = [x.shape[2:] for x in maps]
    centres = [np.indices(grid)[::-1].reshape(2, -1) + 0.5 for grid in grids]
    strides = [np.full(rows * cols, size / rows) for rows, cols in grids]
    anchors = net.constant(np.concatenate(centres, axis=1)[None], "23.anchors")
    before, after = net.split(sides, "23.sides")
    low = net.subtract(anchors, before, "23.low")
    high = net.add(after, anchors, "23.high")
    middle = net.scaled(net.add(low, high, "23.sum"), "23.middle", 0.5)
    box = net.concat([middle, net.subtract(high, low, "23.size")], "23.boxes")
    return net.multiply(
        box, net.constant(np.concatenate(strides)[None, None], "23.strides"), "23.dbox"
    )
