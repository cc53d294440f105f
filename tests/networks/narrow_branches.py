"""Blocks of YOLO whose narrow branch reads half of a map, for tests."""

import onnx_ir as ir

from opu_fuse.zoo.tokens import TokenNet


def block(width: int, inner: int, size: tuple[int, int], *, first: int = 5) -> ir.Model:
    """A C3k2 block: half of a map of 2 · width channels passes two convolutions, is added to their
    result, and joined with both halves. inner: channels between these convolutions; first: of the
    block's input.
    """
    net = TokenNet("narrow", seed=7)
    x = net.conv_swish(net.input("x", (1, first, *size)), "before", out=first)
    a, b = net.split(net.conv_swish(x, "cut", out=2 * width), "split")
    y = net.conv_swish(b, "in", out=inner, kernel=3)
    y = net.add(b, net.conv_swish(y, "out", out=width, kernel=3), "sum")
    y = net.conv_swish(net.concat([a, b, y], "join"), "last", out=2 * width)
    return net.finish(y)


def upsampled(channels: int, size: tuple[int, int]) -> ir.Model:
    """A map that is stored, and upsampled for another reader."""
    net = TokenNet("upsampled", seed=8)
    x = net.input("x", (1, 6, *size))
    y = net.conv_swish(x, "map", out=channels)
    wide = net.conv(net.upsample(y, "wide"), "above", out=3, kernel=1)
    return net.finish(net.conv(y, "below", out=5, kernel=1), large=wide)
