"""GoogLeNet (Szegedy et al. 2014, without local response normalisation and side classifiers) and
SqueezeNet 1.1 (Iandola et al. 2016): branches that end in a concatenation."""

import onnx_ir as ir

from opu_fuse.zoo.builder import Feature, Net

_CEIL = (0, 0, 1, 1)
"""Padding with which a 3/2 max-pool covers the last row and column, as `ceil_mode` does."""

_MODULES = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
"""Channels: 1x1; 3x3 reduce, 3x3; 5x5 reduce, 5x5; after the pooling."""


def googlenet(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """57 convolutions, nine modules; output [1, 1000]."""
    net = Net("googlenet", seed=seed)
    x = net.input("input", (1, 3, *image))
    x = _conv(net, x, "conv1", 64, kernel=7, stride=2)
    x = net.max_pool(x, "pool1", kernel=3, stride=2, pads=_CEIL)
    x = _conv(net, x, "conv2.reduce", 64)
    x = _conv(net, x, "conv2", 192, kernel=3)
    x = net.max_pool(x, "pool2", kernel=3, stride=2, pads=_CEIL)
    for name, channels in _MODULES.items():
        x = _module(net, x, f"inception{name}", channels)
        if name in {"3b", "4e"}:
            x = net.max_pool(x, f"pool{name[0]}", kernel=3, stride=2, pads=_CEIL)
    x = net.flatten(net.global_average_pool(x, "avgpool"), "flatten")
    return net.finish(net.dense(x, "fc", out=1000, centred=False))


def squeezenet(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """Version 1.1, eight fire modules, no dense layer; output [1, 1000]."""
    net = Net("squeezenet", seed=seed)
    x = net.input("input", (1, 3, *image))
    x = net.relu(net.conv(x, "conv1", out=64, kernel=3, stride=2, bias=True), "conv1.relu")
    squeezes = {2: 16, 3: 16, 4: 32, 5: 32, 6: 48, 7: 48, 8: 64, 9: 64}
    for index, width in squeezes.items():
        if index in {2, 4, 6}:
            x = net.max_pool(x, f"pool{index - 1}", kernel=3, stride=2, pads=_CEIL)
        x = _conv(net, x, f"fire{index}.squeeze", width)
        one = _conv(net, x, f"fire{index}.expand1", 4 * width)
        three = _conv(net, x, f"fire{index}.expand3", 4 * width, kernel=3)
        x = net.concat([one, three], f"fire{index}")
    x = net.global_average_pool(_conv(net, x, "conv10", 1000), "avgpool")
    return net.finish(net.flatten(x, "flatten"))


def _module(net: Net, x: Feature, name: str, channels: tuple[int, ...]) -> Feature:
    one, reduce3, three, reduce5, five, pooled = channels
    y3 = _conv(net, x, f"{name}.3x3.reduce", reduce3)
    y5 = _conv(net, x, f"{name}.5x5.reduce", reduce5)
    pool = net.max_pool(x, f"{name}.pool", kernel=3, stride=1, pads=1)
    branches = [
        _conv(net, x, f"{name}.1x1", one),
        _conv(net, y3, f"{name}.3x3", three, kernel=3),
        _conv(net, y5, f"{name}.5x5", five, kernel=5),
        _conv(net, pool, f"{name}.pool.proj", pooled),
    ]
    return net.concat(branches, name)


def _conv(
    net: Net, x: Feature, name: str, out: int, *, kernel: int = 1, stride: int = 1
) -> Feature:
    """Convolution with bias that keeps the size, and relu."""
    pads = kernel // 2
    x = net.conv(x, name, out=out, kernel=kernel, stride=stride, pads=pads, bias=True)
    return net.relu(x, f"{name}.relu")
