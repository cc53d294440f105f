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


def sums(width: int, size: tuple[int, int]) -> ir.Model:
    """A C3k block, which reads a map that is joined with its result: two sums of width channels,
    the second of which is joined with a map of as many.
    """
    net = TokenNet("sums", seed=9)
    x = net.conv_swish(net.input("x", (1, 5, *size)), "before", out=2 * width)
    y = net.conv_swish(x, "first", out=width)
    for n in range(2):
        inner = net.conv_swish(y, f"in{n}", out=width, kernel=3)
        y = net.add(y, net.conv_swish(inner, f"out{n}", out=width, kernel=3), f"sum{n}")
    y = net.concat([y, net.conv_swish(x, "other", out=width)], "join")
    y = net.concat([x, net.conv_swish(y, "last", out=2 * width)], "all")
    return net.finish(net.conv_swish(y, "end", out=width))


def upsampled(channels: int, size: tuple[int, int]) -> ir.Model:
    """A map that is stored, and upsampled for another reader."""
    net = TokenNet("upsampled", seed=8)
    x = net.input("x", (1, 6, *size))
    y = net.conv_swish(x, "map", out=channels)
    wide = net.conv(net.upsample(y, "wide"), "above", out=3, kernel=1)
    return net.finish(net.conv(y, "below", out=5, kernel=1), large=wide)
