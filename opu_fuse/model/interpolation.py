"""Linear upsampling Resizes that a machine runs as a transposed convolution of every channel.

Between the centres of two pixels the weights of a Resize by k change in steps of 1 / 2k, and beyond
the last centre the result is the last pixel. So it is the transposed convolution with a triangle of
2k taps, of the map with its border pixels repeated once. The taps are integers over a power of two:
nothing is rounded but the result.

Machines with depthwise windows and norms run it (`fuse/norm_operators.py`); the front end marks a
model with it (`quant.NORMS_KEY`) and leaves these Resizes alone.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from msgspec import Struct

from opu_fuse.model.known_values import const_array, known_shape
from opu_fuse.model.opsets import STANDARD
from opu_fuse.quant import META_KEY, QuantParams

INTERPOLATION = "Resize"
"""How a model is marked for machines that run them."""
_CENTRES = ("half_pixel", "pytorch_half_pixel")
_FACTOR = 2
"""Of rows and columns. Stores of larger factors leave gaps of more words than they write."""


class Interpolation(Struct, frozen=True, kw_only=True):
    """source: the map, whose border is repeated once; taps: int8 (channels, 1, 2k, 2k), a
    constant; attrs: those of a transposed convolution.
    """

    source: ir.Value
    taps: ir.Value
    attrs: Mapping[str, Any]


def interpolation(node: ir.Node, operators: Collection[str]) -> Interpolation | None:
    """The transposed convolution of a Resize; None for other nodes, and where the machine, which
    runs these `operators`, runs none.
    """
    factor = factor_of(node) if INTERPOLATION in operators else None
    x = node.inputs[0] if node.inputs else None
    if factor != _FACTOR or x is None or x.shape is None:
        return None
    channels = x.shape.numpy()[1]
    taps = ir.Value(name=f"{node.name}/taps", const_value=ir.tensor(_taps(factor, channels)))
    taps.meta[META_KEY] = QuantParams(scale=(1 / (2 * factor) ** 2,))
    pads = (3 * factor // 2,) * 4  # half a triangle, and the repeated pixel
    attrs = {
        "kernel": (2 * factor, 2 * factor),
        "strides": (factor, factor),
        "dilations": (1, 1),
        "pads": pads,
        "output_padding": (0, 0),
        "group": channels,
        "choice": True,
        "edges": True,
    }
    return Interpolation(source=x, taps=taps, attrs=attrs)


def triangle(factor: int) -> np.ndarray:
    """The taps of a Resize by k along an axis, times 2k: odd numbers, up and down."""
    rising = np.arange(1, 2 * factor, 2)
    return np.concatenate([rising, rising[::-1]])


def _taps(factor: int, channels: int) -> np.ndarray:
    one = np.outer(triangle(factor), triangle(factor)).astype(np.int8)
    return np.tile(one, (channels, 1, 1, 1))


def factor_of(node: ir.Node) -> int | None:
    """The factor of a linear Resize of an image by one power of two, in both directions, whose
    coordinates are pixel centres; None for other nodes.
    """
    if node.op_type != "Resize" or node.domain not in STANDARD:
        return None
    if node.attributes.get_string("mode", "nearest") != "linear":
        return None
    if node.attributes.get_string("coordinate_transformation_mode", "half_pixel") not in _CENTRES:
        return None
    source, target = (known_shape(v) for v in (node.inputs[0], node.outputs[0]))
    if len(source) != 4 or len(target) != 4 or source[:2] != target[:2] or source[0] != 1:
        return None
    if min(source[2:]) < 2 or not _scales_agree(node, source, target):
        return None
    factor = target[2] // source[2]
    same = [n * factor for n in source[2:]] == list(target[2:])
    return factor if same and factor > 1 and not factor & (factor - 1) else None


def _scales_agree(node: ir.Node, source: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether the scales, if they are given, are the quotients of the sizes, of all four axes."""
    scales = node.inputs[2] if len(node.inputs) > 2 else None
    data = None if scales is None else const_array(scales)
    if scales is None or (data is not None and data.size == 0):
        sizes = node.inputs[3] if len(node.inputs) > 3 else None
        return sizes is not None and const_array(sizes) is not None
    quotients = [t / s for s, t in zip(source, target, strict=True)]
    return data is not None and data.tolist() == quotients and "axes" not in node.attributes
