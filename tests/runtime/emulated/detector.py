"""A detector for emulated processors: small maps, and the box tail of the YOLO family."""

import numpy as np
import onnx
import onnx_ir as ir

from opu_fuse.zoo.builder import Feature
from opu_fuse.zoo.tokens import TokenNet

IMAGE, CLASSES, BINS = 48, 3, 8


def detector() -> onnx.ModelProto:
    """Input [1, 3, 48, 48]; output [1, 4 + 3, 45]: corners of boxes in pixels, then probabilities.

    The machine computes two maps of logits. The tail: a Softmax over the bins of each side, its
    expectation, anchors, strides and Sigmoid.
    """
    net = TokenNet("detector", seed=5)
    x = net.input("image", (1, 3, IMAGE, IMAGE))
    maps = []
    for layer, channels in enumerate((8, 16, 16, 16)):
        x = net.conv(x, f"c{layer}", out=channels, kernel=3, stride=2, pads=1, bias=True)
        x = net.relu(x, f"r{layer}")
        maps.append(x)
    parts = []
    for number, part in enumerate(maps[-2:]):
        out = 4 * BINS + CLASSES
        y = net.conv(part, f"head{number}", out=out, kernel=1, bias=True, gain=2.0)
        parts.append(net.reshape(y, f"flat{number}", (1, out, y.shape[2] * y.shape[3])))
    return ir.to_proto(net.finish(_decoded(net, net.concat(parts, "all", axis=2), maps[-2:])))


def _decoded(net: TokenNet, x: Feature, maps: list[Feature]) -> Feature:
    pixels = x.shape[2]
    bins = net.reshape(net.crop(x, "sides", 0, 4 * BINS), "bins", (1, 4, BINS, pixels))
    shares = net.softmax(net.transpose(bins, "order", (0, 2, 1, 3)), "shares", axis=1)
    sides = net.reshape(net.expectation(shares, "expected"), "distances", (1, 4, pixels))
    before, after = net.split(sides, "corners")
    anchors = net.constant(_anchors(maps), "anchors")
    low, high = net.subtract(anchors, before, "low"), net.add(anchors, after, "high")
    strides = [np.full(m.shape[2] * m.shape[3], IMAGE / m.shape[2]) for m in maps]
    scale = net.constant(np.concatenate(strides)[None, None], "strides")
    boxes = net.multiply(net.concat([low, high], "boxes"), scale, "in_pixels")
    scores = net.sigmoid(net.crop(x, "classes", 4 * BINS, 4 * BINS + CLASSES), "scores")
    return net.concat([boxes, scores], "detections")


def _anchors(maps: list[Feature]) -> np.ndarray:
    """Centres of pixels, (1, 2, n): columns, rows."""
    grids = [np.indices(m.shape[2:])[::-1].reshape(2, -1) + 0.5 for m in maps]
    return np.concatenate(grids, axis=1)[None]
