"""ResNet-18, ResNet-50 and ResNet-20 (He et al. 2015), node names as in torchvision."""

import onnx_ir as ir

from opu_fuse.zoo.builder import Feature, Net

_WIDTHS = (64, 128, 256, 512)


def resnet18(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """Two basic blocks in each of four stages; input "input", output "output" [1, 1000]."""
    return _resnet("resnet18", (2, 2, 2, 2), bottleneck=False, seed=seed, image=image)


def resnet50(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """3, 4, 6, 3 bottleneck blocks; input "input", output "output" [1, 1000]."""
    return _resnet("resnet50", (3, 4, 6, 3), bottleneck=True, seed=seed, image=image)


def resnet20(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """For CIFAR: three basic blocks in each of three stages, 1x1 convolutions as shortcuts where
    the size changes; output [1, 10]."""
    net = Net("resnet20", seed=seed)
    x = net.input("input", (1, 3, *image))
    x = net.relu(net.conv(x, "conv1", out=16, kernel=3, pads=1, batch_norm="bn1"), "relu")
    return _body(net, x, (3, 3, 3), (16, 32, 64), bottleneck=False, classes=10)


def _resnet(
    name: str, depths: tuple[int, ...], *, bottleneck: bool, seed: int, image: tuple[int, int]
) -> ir.Model:
    net = Net(name, seed=seed)
    x = net.input("input", (1, 3, *image))
    x = net.conv(x, "conv1", out=64, kernel=7, stride=2, pads=3, batch_norm="bn1")
    x = net.max_pool(net.relu(x, "relu"), "maxpool", kernel=3, stride=2, pads=1)
    return _body(net, x, depths, _WIDTHS, bottleneck=bottleneck, classes=1000)


def _body(
    net: Net,
    x: Feature,
    depths: tuple[int, ...],
    widths: tuple[int, ...],
    *,
    bottleneck: bool,
    classes: int,
) -> ir.Model:
    """The stages, the average pooling and the classifier."""
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True), start=1):
        for index in range(depth):
            stride = 2 if stage > 1 and index == 0 else 1
            x = _block(
                net, x, f"layer{stage}.{index}", width=width, stride=stride, bottleneck=bottleneck
            )
    x = net.flatten(net.global_average_pool(x, "avgpool"), "flatten")
    return net.finish(net.dense(x, "fc", out=classes, centred=False))


def _block(
    net: Net, x: Feature, name: str, *, width: int, stride: int, bottleneck: bool
) -> Feature:
    """Basic block (3x3, 3x3) or bottleneck (1x1, 3x3 with the stride, 1x1 to four times the
    width)."""
    if bottleneck:
        y = net.conv(x, f"{name}.conv1", out=width, kernel=1, batch_norm=f"{name}.bn1")
        y = net.relu(y, f"{name}.relu1")
        y = net.conv(
            y, f"{name}.conv2", out=width, kernel=3, stride=stride, pads=1, batch_norm=f"{name}.bn2"
        )
        y = net.relu(y, f"{name}.relu2")
        y = net.conv(y, f"{name}.conv3", out=4 * width, kernel=1, batch_norm=f"{name}.bn3")
    else:
        y = net.conv(
            x, f"{name}.conv1", out=width, kernel=3, stride=stride, pads=1, batch_norm=f"{name}.bn1"
        )
        y = net.relu(y, f"{name}.relu1")
        y = net.conv(y, f"{name}.conv2", out=width, kernel=3, pads=1, batch_norm=f"{name}.bn2")
    if stride != 1 or x.channels != y.channels:
        down = f"{name}.downsample"
        x = net.conv(
            x, f"{down}.0", out=y.channels, kernel=1, stride=stride, batch_norm=f"{down}.1"
        )
    return net.relu(net.add(y, x, f"{name}.add"), f"{name}.relu")
