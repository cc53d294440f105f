"""Small networks that cover awkward shapes in a few thousand machine cycles."""

import onnx_ir as ir

from opu_fuse.zoo.builder import Net


def tiny_residual(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """A residual block with a strided 1x1 shortcut and one without, global average pooling, a
    classifier."""
    net = Net("tiny_residual", seed=seed)
    x = net.input("input", (1, 3, *image))
    x = net.relu(net.conv(x, "stem", out=16, kernel=3, pads=1, batch_norm="stem.bn"), "stem.relu")
    y = net.conv(x, "block1.conv1", out=24, kernel=3, stride=2, pads=1, batch_norm="block1.bn1")
    y = net.relu(y, "block1.relu1")
    y = net.conv(y, "block1.conv2", out=24, kernel=3, pads=1, batch_norm="block1.bn2")
    shortcut = net.conv(x, "block1.shortcut", out=24, kernel=1, stride=2, batch_norm="block1.bn3")
    x = net.relu(net.add(y, shortcut, "block1.add"), "block1.relu")
    y = net.conv(x, "block2.conv1", out=24, kernel=3, pads=1, batch_norm="block2.bn1")
    x = net.relu(net.add(y, x, "block2.add"), "block2.relu")
    x = net.flatten(net.global_average_pool(x, "pool"), "flatten")
    return net.finish(net.dense(x, "fc", out=10, centred=False))


def tiny_odd(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """Odd channel counts, paddings that differ on every side, stride 2, overlapping pooling, leaky
    relu."""
    net = Net("tiny_odd", seed=seed)
    x = net.input("input", (1, 3, *image))
    x = net.conv(x, "conv1", out=7, kernel=3, pads=(0, 1, 2, 1), bias=True)
    x = net.max_pool(net.leaky_relu(x, "leaky1", alpha=0.125), "pool1", kernel=3, stride=2, pads=1)
    x = net.conv(x, "conv2", out=13, kernel=(3, 2), stride=2, pads=(1, 0, 0, 2), bias=True)
    x = net.leaky_relu(x, "leaky2", alpha=0.25)
    return net.finish(net.conv(x, "conv3", out=5, kernel=1, bias=True))


def tiny_tiles(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """Layers that need several tiles, with remainders, in rows, columns and channels on a machine
    with words of 8 channels, feature banks of 128 words and partial-sum banks of 64 words; then a
    5x5 and a 1x1 convolution."""
    net = Net("tiny_tiles", seed=seed)
    x = net.input("input", (1, 21, *image))
    x = net.relu(net.conv(x, "conv1", out=27, kernel=3, pads=1, bias=True), "relu1")
    x = net.relu(net.conv(x, "conv2", out=19, kernel=5, stride=2, pads=2, bias=True), "relu2")
    return net.finish(net.conv(x, "conv3", out=11, kernel=1, bias=True))
