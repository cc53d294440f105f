"""ShuffleNet v2 (Ma et al. 2018), node names as in torchvision: half the channels pass each unit
untouched, then both halves are interleaved."""

import onnx_ir as ir

from opu_fuse.zoo.builder import Feature, Net


def shufflenet_v2(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """Width 1.0: stages of 4, 8, 4 units; output [1, 1000]."""
    net = Net("shufflenet_v2", seed=seed)
    x = net.input("input", (1, 3, *image))
    x = _conv(net, x, "conv1", 24, kernel=3, stride=2)
    x = net.max_pool(x, "maxpool", kernel=3, stride=2, pads=1)
    for stage, (depth, width) in enumerate(((4, 116), (8, 232), (4, 464)), start=2):
        x = _halving_unit(net, x, f"stage{stage}.0", width)
        for index in range(1, depth):
            x = _unit(net, x, f"stage{stage}.{index}")
    x = _conv(net, x, "conv5", 1024)
    x = net.flatten(net.global_average_pool(x, "avgpool"), "flatten")
    return net.finish(net.dense(x, "fc", out=1000, centred=False))


def _unit(net: Net, x: Feature, name: str) -> Feature:
    unchanged, y = net.split(x, f"{name}.split")
    y = _branch(net, y, f"{name}.branch2", y.channels, stride=1)
    return _shuffle(net, net.concat([unchanged, y], f"{name}.concat"), f"{name}.shuffle")


def _halving_unit(net: Net, x: Feature, name: str, width: int) -> Feature:
    """Half the size; both branches are convolved."""
    left = _depthwise(net, x, f"{name}.branch1.0", stride=2)
    left = _conv(net, left, f"{name}.branch1.2", width // 2)
    right = _branch(net, x, f"{name}.branch2", width // 2, stride=2)
    return _shuffle(net, net.concat([left, right], f"{name}.concat"), f"{name}.shuffle")


def _branch(net: Net, x: Feature, name: str, width: int, *, stride: int) -> Feature:
    x = _conv(net, x, f"{name}.0", width)
    x = _depthwise(net, x, f"{name}.3", stride=stride)
    return _conv(net, x, f"{name}.5", width)


def _shuffle(net: Net, x: Feature, name: str) -> Feature:
    """Channels 0 … n-1 become 0, n/2, 1, n/2 + 1, …"""
    _, channels, rows, cols = x.shape
    x = net.reshape(x, f"{name}.split", (1, 2, channels // 2, rows, cols))
    x = net.transpose(x, f"{name}.transpose", (0, 2, 1, 3, 4))
    return net.reshape(x, f"{name}.join", (1, channels, rows, cols))


def _conv(net: Net, x: Feature, name: str, out: int, **window: int) -> Feature:
    return net.relu(net.conv_bn(x, name, out=out, **window), f"{name}.relu")


def _depthwise(net: Net, x: Feature, name: str, *, stride: int) -> Feature:
    return net.conv_bn(x, name, out=x.channels, kernel=3, stride=stride, groups=x.channels)
