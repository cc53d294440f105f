"""YOLOv3 and its tiny form (Redmon & Farhadi 2018), 80 classes, raw maps of 255 channels."""

from math import hypot, sqrt

import onnx_ir as ir
from msgspec import Struct

from opu_fuse.zoo.builder import Feature, Net
from opu_fuse.zoo.classic import LEAKY_ALPHA

_OUT = 255
"""Channels of a detector: 3 anchors of 80 classes, 4 coordinates and an objectness."""


class _Darknet(Struct):
    """A network in darknet's own style: convolutions are numbered."""

    net: Net
    count: int = 0

    def conv(
        self, x: Feature, out: int, kernel: int, *, stride: int = 1, gain: float = 1.0
    ) -> Feature:
        """Convolution, batch norm, leaky relu."""
        n, self.count = self.count, self.count + 1
        x = self.net.conv(
            x,
            f"conv{n}",
            out=out,
            kernel=kernel,
            stride=stride,
            pads=kernel // 2,
            batch_norm=f"bn{n}",
            gain=gain,
        )
        return self.net.leaky_relu(x, f"leaky{n}", alpha=LEAKY_ALPHA)

    def head(self, x: Feature) -> Feature:
        """The 1x1 convolution before a detector."""
        n, self.count = self.count, self.count + 1
        return self.net.conv(x, f"conv{n}", out=_OUT, kernel=1, bias=True)

    def joined(self, x: Feature, out: int, earlier: Feature) -> Feature:
        """1x1 convolution, twice the size, then a Concat with an earlier map of that size. Both
        maps need one magnitude, although residual stages grow."""
        x = self.conv(x, out, 1, gain=hypot(earlier.mean, sqrt(earlier.var)))
        x = self.net.upsample(x, f"upsample{self.count - 1}")
        return self.net.concat([x, earlier], f"concat{self.count - 1}")


def yolov3(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """Darknet-53 and three detectors: 75 convolutions, 23 residual adds; outputs for strides 32,
    16, 8."""
    net = Net("yolov3", seed=seed)
    d = _Darknet(net)
    x = d.conv(net.input("image", (1, 3, *image)), 32, 3)
    stages: list[Feature] = []
    for width, depth in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        x = d.conv(x, width, 3, stride=2)
        for _ in range(depth):
            y = d.conv(d.conv(x, width // 2, 1), width, 3)
            x = net.add(x, y, f"add{d.count - 1}")
        stages.append(x)
    grids: dict[str, Feature] = {}
    for stride, width in ((32, 512), (16, 256), (8, 128)):
        if stride < 32:
            stages.pop()
            x = d.joined(x, width, stages[-1])
        for kernel in (1, 3, 1, 3, 1):
            x = d.conv(x, width if kernel == 1 else 2 * width, kernel)
        grids[f"grid{stride}"] = d.head(d.conv(x, 2 * width, 3))
    return net.finish(grids.pop("grid32"), "grid32", **grids)


def yolov3_tiny(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """13 convolutions, six max-pools (the last with stride 1), two detectors."""
    net = Net("yolov3_tiny", seed=seed)
    d = _Darknet(net)
    x = net.input("image", (1, 3, *image))
    maps: list[Feature] = []
    for layer, width in enumerate((16, 32, 64, 128, 256, 512)):
        maps.append(d.conv(x, width, 3))
        last = layer == 5
        pads = (0, 0, 1, 1) if last else 0
        x = net.max_pool(maps[-1], f"pool{layer}", kernel=2, stride=1 if last else 2, pads=pads)
    x = d.conv(d.conv(x, 1024, 3), 256, 1)
    coarse = d.head(d.conv(x, 512, 3))
    x = d.joined(x, 128, maps[4])
    return net.finish(coarse, "grid32", grid16=d.head(d.conv(x, 256, 3)))
