"""DenseNet (Huang et al. 2016), node names as in torchvision: batch norm before every
convolution, every layer reads the concatenation of all layers of its block before it."""

import onnx_ir as ir

from opu_fuse.zoo.builder import Feature, Net

_BOTTLENECK = 4
"""Channels between the two convolutions of a layer, in units of the growth rate, the number of
channels that a layer adds."""


def densenet121(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """Four blocks of 6, 12, 24, 16 layers, growth 32; output [1, 1000]."""
    net = Net("densenet121", seed=seed)
    x = net.input("input", (1, 3, *image))
    x = net.conv(
        x, "features.conv0", out=64, kernel=7, stride=2, pads=3, batch_norm="features.norm0"
    )
    x = net.relu(x, "features.relu0")
    x = net.max_pool(x, "features.pool0", kernel=3, stride=2, pads=1)
    return _body(net, x, (6, 12, 24, 16), growth=32, classes=1000)


def densenet_small(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """For CIFAR: three blocks of four layers, growth 12; output [1, 10]."""
    net = Net("densenet_small", seed=seed)
    x = net.conv(net.input("input", (1, 3, *image)), "features.conv0", out=24, kernel=3, pads=1)
    return _body(net, x, (4, 4, 4), growth=12, classes=10)


def _body(net: Net, x: Feature, depths: tuple[int, ...], *, growth: int, classes: int) -> ir.Model:
    for block, depth in enumerate(depths, start=1):
        if block > 1:
            x = _transition(net, x, f"features.transition{block - 1}")
        parts = [x]
        for layer in range(1, depth + 1):
            name = f"features.denseblock{block}.denselayer{layer}"
            joined = net.concat(parts, f"{name}.concat") if layer > 1 else x
            parts.append(_layer(net, joined, name, growth))
        x = net.concat(parts, f"features.denseblock{block}.concat")
    x = net.relu(net.batch_norm(x, "features.norm5"), "relu")
    x = net.flatten(net.global_average_pool(x, "avgpool"), "flatten")
    return net.finish(net.dense(x, "classifier", out=classes, centred=False))


def _layer(net: Net, x: Feature, name: str, growth: int) -> Feature:
    x = net.relu(net.batch_norm(x, f"{name}.norm1"), f"{name}.relu1")
    width = _BOTTLENECK * growth
    x = net.conv(x, f"{name}.conv1", out=width, kernel=1, batch_norm=f"{name}.norm2")
    x = net.relu(x, f"{name}.relu2")
    return net.conv(x, f"{name}.conv2", out=growth, kernel=3, pads=1)


def _transition(net: Net, x: Feature, name: str) -> Feature:
    """Half the channels, half the size."""
    x = net.relu(net.batch_norm(x, f"{name}.norm"), f"{name}.relu")
    x = net.conv(x, f"{name}.conv", out=x.channels // 2, kernel=1)
    return net.average_pool(x, f"{name}.pool", kernel=2, stride=2)
