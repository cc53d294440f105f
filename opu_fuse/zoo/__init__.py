from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from opu_fuse.errors import ModelError
from opu_fuse.zoo import classic, resnet, small


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    build: Callable[..., ir.Model]
    image: tuple[int, int]
    smallest: int
    text: str


_NETWORKS = {
    "resnet18": _Entry(
        build=resnet.resnet18, image=(224, 224), smallest=32, text="ResNet-18, 1.8 G multiply-adds"
    ),
    "resnet50": _Entry(
        build=resnet.resnet50, image=(224, 224), smallest=32, text="ResNet-50, 4.1 G multiply-adds"
    ),
    "vgg16": _Entry(
        build=classic.vgg16, image=(224, 224), smallest=32, text="VGG-16 with its three FC layers"
    ),
    "tiny_yolov2": _Entry(
        build=classic.tiny_yolov2,
        image=(416, 416),
        smallest=32,
        text="Tiny YOLOv2 (leaky relu 1/8)",
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
    Raises ModelError for an unknown name or an image too small for the network.
    """
    entry = _entry(name)
    size = entry.image if image is None else (image, image) if isinstance(image, int) else image
    if min(size) < entry.smallest:
        raise ModelError(
            where=f"zoo network {name!r}",
            what=f"an input of {size[0]}x{size[1]} is too small",
            help=f"use at least {entry.smallest}x{entry.smallest}",
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
