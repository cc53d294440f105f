from collections.abc import Callable

import onnx_ir as ir
from msgspec import Struct

from opu_fuse.errors import ModelError
from opu_fuse.zoo import (
    classic,
    densenet,
    efficientnet,
    inception,
    mobilenet,
    resnet,
    shufflenet,
    small,
    unet,
    vit,
    yolo,
    yolo11,
)
from opu_fuse.zoo.living import living_weights

__all__ = ["build", "description", "living_weights", "names"]


class _Entry(Struct, frozen=True, kw_only=True):
    """image: usual rows and columns; smallest: of either; step: both are multiples of it."""

    build: Callable[..., ir.Model]
    text: str
    image: tuple[int, int] = (224, 224)
    smallest: int = 32
    step: int = 1


_CIFAR, _YOLO = (32, 32), (416, 416)

_NETWORKS = {
    "resnet18": _Entry(build=resnet.resnet18, text="ResNet-18, 1.8 G multiply-adds"),
    "resnet50": _Entry(build=resnet.resnet50, text="ResNet-50, 4.1 G multiply-adds"),
    "resnet20": _Entry(
        build=resnet.resnet20, image=_CIFAR, smallest=8, text="ResNet-20 for CIFAR, 1x1 shortcuts"
    ),
    "vgg16": _Entry(build=classic.vgg16, text="VGG-16 with its three FC layers"),
    "googlenet": _Entry(build=inception.googlenet, text="GoogLeNet (Inception v1) without LRN"),
    "squeezenet": _Entry(build=inception.squeezenet, text="SqueezeNet 1.1"),
    "densenet121": _Entry(build=densenet.densenet121, text="DenseNet-121, growth 32"),
    "densenet_small": _Entry(
        build=densenet.densenet_small,
        image=_CIFAR,
        smallest=8,
        text="DenseNet for CIFAR, three blocks of four layers, growth 12",
    ),
    "mobilenet_v1": _Entry(build=mobilenet.mobilenet_v1, text="MobileNet v1, relu6"),
    "mobilenet_v1_025": _Entry(
        build=mobilenet.mobilenet_v1_025, text="MobileNet v1 with a quarter of the channels"
    ),
    "mobilenet_v2": _Entry(build=mobilenet.mobilenet_v2, text="MobileNet v2"),
    "shufflenet_v2": _Entry(build=shufflenet.shufflenet_v2, text="ShuffleNet v2, width 1.0"),
    "efficientnet_b0": _Entry(
        build=efficientnet.efficientnet_b0, text="EfficientNet-B0: squeeze and excite, swish"
    ),
    "unet": _Entry(
        build=unet.unet, image=(128, 128), smallest=16, step=8, text="small U-Net, three levels"
    ),
    "tiny_yolo": _Entry(
        build=classic.tiny_yolo, image=_YOLO, text="tiny-yolo for licence plates (leaky relu 1/8)"
    ),
    "tiny_yolov2": _Entry(
        build=classic.tiny_yolov2, image=_YOLO, text="Tiny YOLOv2 (leaky relu 1/8)"
    ),
    "yolov3": _Entry(
        build=yolo.yolov3, image=_YOLO, step=32, text="YOLOv3, 75 convolutions (leaky relu 1/8)"
    ),
    "yolov3_tiny": _Entry(
        build=yolo.yolov3_tiny, image=_YOLO, step=32, text="YOLOv3-tiny (leaky relu 1/8)"
    ),
    "yolo11n": _Entry(
        build=yolo11.yolo11n,
        image=(320, 320),
        step=32,
        text="YOLO11n with attention, decoded boxes",
    ),
    "vit_tiny": _Entry(build=vit.vit_tiny, step=16, text="ViT-tiny, 12 layers of 197 tokens"),
    "mobilevit_s": _Entry(
        build=vit.mobilevit_s,
        image=(256, 256),
        step=64,
        text="MobileViT-S: inverted residuals, attention over patches",
    ),
    "tiny_residual": _Entry(
        build=small.tiny_residual,
        image=(12, 12),
        smallest=4,
        text="two residual blocks, for RTL tests",
    ),
    "tiny_odd": _Entry(
        build=small.tiny_odd,
        image=(25, 23),
        smallest=5,
        text="odd channels and paddings, for RTL tests",
    ),
    "tiny_tiles": _Entry(
        build=small.tiny_tiles, image=(20, 19), smallest=5, text="many ragged tiles, for RTL tests"
    ),
}


def names() -> tuple[str, ...]:
    """The networks that `build` knows."""
    return tuple(_NETWORKS)


def description(name: str) -> str:
    """One line: what the network is and the size of its input."""
    entry = _entry(name)
    return f"{entry.text}, input {entry.image[0]}x{entry.image[1]}"


def build(name: str, *, seed: int = 0, image: int | tuple[int, int] | None = None) -> ir.Model:
    """A float network with seeded weights: NCHW, batch 1, opset 17, batch norm as in the original.

    image: height and width of the input (an int for both) instead of the usual size. Expects
    normalised images (mean 0, deviation 1). The same name, seed and image give the same bytes.
    Raises ModelError for an unknown name or an image that the network cannot take.
    """
    entry = _entry(name)
    size = entry.image if image is None else (image, image) if isinstance(image, int) else image
    where = f"zoo network {name!r}"
    if min(size) < entry.smallest:
        raise ModelError(
            where=where,
            what=f"an input of {size[0]}x{size[1]} is too small",
            help=f"use at least {entry.smallest}x{entry.smallest}",
        )
    if any(n % entry.step for n in size):
        raise ModelError(
            where=where,
            what=f"an input of {size[0]}x{size[1]} cannot be halved and doubled evenly",
            help=f"use multiples of {entry.step}",
        )
    return entry.build(seed=seed, image=size)


def _entry(name: str) -> _Entry:
    if name not in _NETWORKS:
        raise ModelError(
            where=f"zoo network {name!r}",
            what="there is no such network",
            help=f"choose one of {', '.join(names())}",
        )
    return _NETWORKS[name]
