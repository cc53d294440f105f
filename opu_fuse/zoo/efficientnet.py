"""EfficientNet-B0 (Tan & Le 2019): squeeze and excite, swish."""

from typing import Any

import onnx_ir as ir

from opu_fuse.zoo.builder import Feature, Net

_STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
"""Expansion, kernel, stride of the first block, width, blocks."""


def efficientnet_b0(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """16 blocks; output [1, 1000]."""
    net = Net("efficientnet_b0", seed=seed)
    x = net.input("input", (1, 3, *image))
    x = net.conv_swish(x, "stem", out=32, kernel=3, stride=2)
    for stage, (expansion, kernel, first, width, depth) in enumerate(_STAGES, start=1):
        for index in range(depth):
            stride = first if index == 0 else 1
            name = f"stage{stage}.{index}"
            x = _block(net, x, name, expansion, kernel, stride, width)
    x = net.conv_swish(x, "head", out=1280)
    x = net.flatten(net.global_average_pool(x, "avgpool"), "flatten")
    return net.finish(net.dense(x, "fc", out=1000, centred=False))


def _block(
    net: Net, x: Feature, name: str, expansion: int, kernel: int, stride: int, width: int
) -> Feature:
    y = x
    if expansion > 1:
        y = net.conv_swish(y, f"{name}.expand", out=expansion * x.channels)
    y = net.conv_swish(
        y, f"{name}.depthwise", out=y.channels, kernel=kernel, stride=stride, groups=y.channels
    )
    y = _squeeze_excite(net, y, f"{name}.se", x.channels // 4)
    y = net.conv(y, f"{name}.project", out=width, kernel=1, batch_norm=f"{name}.project.bn")
    return net.add(x, y, f"{name}.add") if stride == 1 and x.channels == width else y


def _squeeze_excite(net: Net, x: Feature, name: str, squeezed: int) -> Feature:
    """Every channel times a factor computed from the means of all channels."""
    s = net.global_average_pool(x, f"{name}.mean")
    dense: dict[str, Any] = {"kernel": 1, "bias": True, "centred": False, "gain": 2.0}
    s = net.conv(s, f"{name}.reduce", out=squeezed, **dense)
    s = net.swish(s, f"{name}.swish")
    s = net.conv(s, f"{name}.expand", out=x.channels, **dense)
    return net.multiply(x, net.sigmoid(s, f"{name}.sigmoid"), f"{name}.scale")
