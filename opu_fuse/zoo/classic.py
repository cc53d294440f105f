"""VGG-16 (Simonyan & Zisserman 2014, without batch norm), Tiny YOLOv2 (Redmon & Farhadi 2016) and
the tiny-yolo of the published accelerator, one class instead of twenty."""

import onnx_ir as ir

from opu_fuse.zoo.builder import Net

LEAKY_ALPHA = 0.125
"""The YOLO networks were trained with 0.1; accelerators with a comparator take 1/8, a shift by
three bits, and so does this zoo."""


def vgg16(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """Node names as in torchvision (`features.0`, `classifier.6`)."""
    net = Net("vgg16", seed=seed)
    x = net.input("input", (1, 3, *image))
    index = 0
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            x = net.conv(x, f"features.{index}", out=width, kernel=3, pads=1, bias=True)
            x = net.relu(x, f"features.{index + 1}")
            index += 2
        x = net.max_pool(x, f"features.{index}", kernel=2, stride=2)
        index += 1
    x = net.flatten(x, "flatten")
    x = net.relu(net.dense(x, "classifier.0", out=4096), "classifier.1")
    x = net.relu(net.dense(x, "classifier.3", out=4096), "classifier.4")
    return net.finish(net.dense(x, "classifier.6", out=1000))


def tiny_yolov2(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """20 classes and 5 anchors: 5 * (5 + 20) = 125 output channels."""
    return _tiny_yolo("tiny_yolov2", 125, seed=seed, image=image)


def tiny_yolo(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """One class (licence plates) and 5 anchors: 5 * (5 + 1) = 30 output channels."""
    return _tiny_yolo("tiny_yolo", 30, seed=seed, image=image)


def _tiny_yolo(name: str, out: int, *, seed: int, image: tuple[int, int]) -> ir.Model:
    """Nine convolutions. The sixth pool has stride 1 and pads bottom and right: the size stays."""
    net = Net(name, seed=seed)
    x = net.input("image", (1, 3, *image))
    for layer, width in enumerate((16, 32, 64, 128, 256, 512, 1024, 1024), start=1):
        x = net.conv(x, f"conv{layer}", out=width, kernel=3, pads=1, batch_norm=f"bn{layer}")
        x = net.leaky_relu(x, f"leaky{layer}", alpha=LEAKY_ALPHA)
        if layer < 6:
            x = net.max_pool(x, f"pool{layer}", kernel=2, stride=2)
        elif layer == 6:
            x = net.max_pool(x, f"pool{layer}", kernel=2, stride=1, pads=(0, 0, 1, 1))
    return net.finish(net.conv(x, "conv9", out=out, kernel=1, bias=True), "grid")
