"""MobileNet v1 (Howard et al. 2017) and v2 (Sandler et al. 2018): depthwise convolutions, relu
capped at 6."""

import onnx_ir as ir

from opu_fuse.zoo.builder import Feature, Net


def mobilenet_v1(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """13 depthwise and pointwise pairs; output [1, 1000]."""
    return _v1("mobilenet_v1", 1.0, seed=seed, image=image)


def mobilenet_v1_025(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """A quarter of the channels; output [1, 1000]."""
    return _v1("mobilenet_v1_025", 0.25, seed=seed, image=image)


def _v1(name: str, multiplier: float, *, seed: int, image: tuple[int, int]) -> ir.Model:
    net = Net(name, seed=seed)
    x = net.input("input", (1, 3, *image))
    x = _conv(net, x, "conv0", int(32 * multiplier), kernel=3, stride=2)
    widths = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5)
    for index, (width, stride) in enumerate((*widths, (1024, 2), (1024, 1)), start=1):
        x = _depthwise(net, x, f"conv{index}.depthwise", stride=stride)
        x = _conv(net, x, f"conv{index}.pointwise", int(width * multiplier))
    return _classifier(net, x, "fc")


def mobilenet_v2(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """17 inverted residual blocks, node names as in torchvision; output [1, 1000]."""
    net = Net("mobilenet_v2", seed=seed)
    x = net.input("input", (1, 3, *image))
    x = _conv(net, x, "features.0", 32, kernel=3, stride=2)
    blocks = [
        (expansion, width, stride if layer == 0 else 1)
        for expansion, width, depth, stride in (
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        )
        for layer in range(depth)
    ]
    for index, (expansion, width, stride) in enumerate(blocks, start=1):
        x = _inverted(net, x, f"features.{index}", expansion, width, stride)
    x = _conv(net, x, "features.18", 1280)
    return _classifier(net, x, "classifier.1")


def _inverted(net: Net, x: Feature, name: str, expansion: int, width: int, stride: int) -> Feature:
    """Wide inside, narrow outside; the add connects the narrow ends."""
    y = x
    if expansion > 1:
        y = _conv(net, y, f"{name}.expand", expansion * x.channels)
    y = _depthwise(net, y, f"{name}.depthwise", stride=stride)
    y = net.conv(y, f"{name}.project", out=width, kernel=1, batch_norm=f"{name}.project.bn")
    return net.add(x, y, f"{name}.add") if stride == 1 and x.channels == width else y


def _classifier(net: Net, x: Feature, name: str) -> ir.Model:
    x = net.flatten(net.global_average_pool(x, "avgpool"), "flatten")
    return net.finish(net.dense(x, name, out=1000, centred=False))


def _conv(net: Net, x: Feature, name: str, out: int, **window: int) -> Feature:
    return net.relu6(net.conv_bn(x, name, out=out, **window), f"{name}.relu6")


def _depthwise(net: Net, x: Feature, name: str, *, stride: int) -> Feature:
    return _conv(net, x, name, x.channels, kernel=3, stride=stride, groups=x.channels)
