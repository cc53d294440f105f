"""U-Net (Ronneberger et al. 2015), small: three levels, 16 to 128 channels, padded convolutions, so
that the result has the size of the image."""

import onnx_ir as ir

from opu_fuse.zoo.builder import Feature, Net

_WIDTHS = (16, 32, 64)


def unet(*, seed: int, image: tuple[int, int]) -> ir.Model:
    """Output "mask" [1, 2, rows, columns]; rows and columns multiples of 8."""
    net = Net("unet", seed=seed)
    x = net.input("image", (1, 3, *image))
    skips: list[Feature] = []
    for level, width in enumerate(_WIDTHS):
        x = _double(net, x, f"down{level}", width)
        skips.append(x)
        x = net.max_pool(x, f"down{level}.pool", kernel=2, stride=2)
    x = _double(net, x, "bottom", 2 * _WIDTHS[-1])
    for level, width in reversed(list(enumerate(_WIDTHS))):
        x = net.upsample(x, f"up{level}.resize")
        x = net.conv(x, f"up{level}.conv", out=width, kernel=3, pads=1, bias=True)
        x = net.concat([skips[level], x], f"up{level}.concat")
        x = _double(net, x, f"up{level}", width)
    return net.finish(net.conv(x, "head", out=2, kernel=1, bias=True), "mask")


def _double(net: Net, x: Feature, name: str, width: int) -> Feature:
    """Two 3x3 convolutions with batch norm and relu."""
    for index in (1, 2):
        x = net.conv(
            x, f"{name}.conv{index}", out=width, kernel=3, pads=1, batch_norm=f"{name}.bn{index}"
        )
        x = net.relu(x, f"{name}.relu{index}")
    return x
