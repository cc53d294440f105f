"""A downsampling Resize becomes a strided window if all its pixels use the same weights.

1. Every k-th pixel (nearest, or linear with coordinates on pixels): MaxPool with a 1x1 kernel if
   it starts at pixel 0, else a Conv with one-hot weights.
2. Linear with the same weights at every pixel: AveragePool if the weights are equal (halving a map
   with `half_pixel` coordinates), else a depthwise Conv.

Antialiased Resizes do not change: they read more pixels, and others at the border. Nor do cubic
ones. This rewrite replaces an operator of the user's graph, so only strategies that ask for it run
it (`REWRITES`).
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from msgspec import Struct

from opu_fuse.frontend.canonical.gather_as_conv import choose, whole_pixels
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    operand,
    quant_of,
    rewrite,
    standard_nodes,
    static_shape,
)
from opu_fuse.quant import CHOICE_KEY, REWRITE_KEY, QuantParams

_CLOSE = 1e-4
"""Coordinates this close to a pixel border, but not on it, may round either way in float32."""
_WEIGHT_BITS = 6
"""Fractional bits of int8 weights, of which the largest is at most one."""


class _Taps(Struct, frozen=True, kw_only=True):
    """A strided window along one axis.

    Result i is the sum of `weights` times the pixels from `stride * i + first` on.

    stride: in pixels of the operand.
    exact: `weights` equal those of ONNX Runtime bit for bit.
    size, count: number of pixels of the operand and of the result.
    """

    stride: int
    first: int
    weights: np.ndarray
    exact: bool
    size: int
    count: int

    @property
    def picks(self) -> bool:
        return len(self.weights) == 1

    @property
    def kernel(self) -> int:
        """Kernel size that, from pixel 0 with this stride, gives exactly `count` results.

        0 if there is none.
        """
        least = max(self.first + len(self.weights), self.size - self.stride * self.count + 1)
        return least if least <= self.size - self.stride * (self.count - 1) else 0

    @property
    def window(self) -> np.ndarray:
        """Weights [kernel] of all pixels of the window, zeros included."""
        taps = np.zeros(self.kernel)
        taps[self.first : self.first + len(self.weights)] = self.weights
        return taps


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_shrink(model.graph, node) for node in standard_nodes(model.graph, "Resize")]
    return any(changed)


def _shrink(graph: ir.Graph, node: ir.Node) -> bool:
    x, y = node.inputs[0], node.outputs[0]
    taps = _taps(node)
    if x is None or taps is None or x.dtype is not ir.DataType.FLOAT:
        return False
    result_quant = quant_of(y)
    if (quant_of(x) is None) != (result_quant is None):
        return False
    same_quant = result_quant in {None, quant_of(x)}
    if not same_quant and not all(t.exact for t in taps):
        return False  # ties between two steps would round differently
    strides, picks = [t.stride for t in taps], all(t.picks for t in taps)
    if picks and same_quant and all(t.kernel == 1 for t in taps):  # Case 1
        rewrite(node, "MaxPool", [x], {"kernel_shape": [1, 1], "strides": strides})
        node.metadata_props[REWRITE_KEY] = "every n-th pixel: a pool over one element takes it"
        return True
    if (
        picks
        and same_quant
        and strides[0] == strides[1]
        and all(t.kernel == t.first + 1 for t in taps)
    ):
        channels = static_shape(x)[1]  # type: ignore[index]  # `_taps` has checked it
        choose(graph, node, x, whole_pixels(channels, strides[0], [(taps[0].first, taps[1].first)]))
        return True
    if all(t.kernel == len(t.weights) and len({*t.weights}) == 1 for t in taps):  # Case 2
        kernel, pads = [t.kernel for t in taps], [0] * 4
        attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads}
        rewrite(node, "AveragePool", [x], {**attributes, "count_include_pad": 0})
        node.metadata_props[REWRITE_KEY] = "the mean of neighbours: a pool does what Resize does"
        return True
    return _convolve(graph, node, x, taps)


def _convolve(graph: ir.Graph, node: ir.Node, x: ir.Value, taps: Sequence[_Taps]) -> bool:
    channels = static_shape(x)[1]  # type: ignore[index]  # `_taps` has checked it
    window = np.outer(taps[0].window, taps[1].window)
    weights, quant = np.tile(window.astype(np.float32), (channels, 1, 1, 1)), None
    if quant_of(node.outputs[0]) is not None:
        integers = np.ldexp(weights, _WEIGHT_BITS)
        if np.any(integers != np.rint(integers)):
            return False
        weights, quant = integers.astype(np.int8), QuantParams(scale=(2.0**-_WEIGHT_BITS,))
    attributes = {
        "kernel_shape": window.shape,
        "strides": [t.stride for t in taps],
        "dilations": [1, 1],
        "pads": [0] * 4,
        "group": channels,
    }
    rewrite(node, "Conv", [x, add_constant(graph, f"{node.name}/taps", weights, quant)], attributes)
    why = "neighbours weighed alike everywhere: a convolution does it"
    node.metadata_props.update({REWRITE_KEY: why, CHOICE_KEY: "taps"})
    return True


def _taps(node: ir.Node) -> list[_Taps] | None:
    """Windows of rows and columns; None if the weights vary or the Resize is no downsampling."""
    source, target = static_shape(node.inputs[0]), static_shape(node.outputs[0])
    mode = node.attributes.get_string("mode", "nearest")
    if source is None or target is None or len(source) != 4 or source[0] != 1:
        return None
    if source[:2] != target[:2] or 0 in (*source, *target) or mode not in {"nearest", "linear"}:
        return None
    if mode == "linear" and node.attributes.get_int("antialias", 0):
        return None
    if all(s <= t for s, t in zip(source, target, strict=True)):
        return None
    scales = _scales(node, source, target)
    if scales is None:
        return None
    sizes = zip(source[2:], target[2:], scales[2:], strict=True)
    windows = [_along(node, mode, *axis) for axis in sizes]
    taps = [t for t in windows if t is not None and t.kernel]
    return taps if len(taps) == len(windows) else None


def _scales(node: ir.Node, source: Sequence[int], target: Sequence[int]) -> list[float] | None:
    factors, sizes = operand(node, 2), operand(node, 3)
    if factors is None or static_shape(factors) == (0,):
        if constant(sizes) is None:
            return None
        return [float(np.float32(t / s)) for s, t in zip(source, target, strict=True)]
    scale_values = constant(factors)
    axes = [a % 4 for a in node.attributes.get_ints("axes", range(4))]
    if scale_values is None or scale_values.size != len(axes):
        return None
    scales = dict(zip(axes, map(float, scale_values), strict=True))
    return [scales.get(axis, 1.0) for axis in range(4)]


def _along(node: ir.Node, mode: str, size: int, count: int, scale: float) -> _Taps | None:
    coordinates = _source_coordinates(node, size, count, scale)
    if coordinates is None:
        return None
    if mode == "nearest":
        rounding = node.attributes.get_string("nearest_mode", "round_prefer_floor")
        indices = _nearest(coordinates, rounding)
        if indices is None:
            return None
        rows, exact = np.eye(size)[np.clip(indices, 0, size - 1)], True
    else:
        coordinates = np.clip(coordinates, 0, size - 1)
        on_pixel = np.abs(coordinates - np.rint(coordinates)) < _CLOSE
        exact = bool(np.all(coordinates[on_pixel] == np.rint(coordinates[on_pixel])))
        coordinates = np.where(on_pixel, np.rint(coordinates), coordinates)
        below = np.floor(coordinates).astype(np.int64)
        fraction = (coordinates - below)[:, None]
        above = np.minimum(below + 1, size - 1)
        rows = np.eye(size)[below] * (1 - fraction) + np.eye(size)[above] * fraction
    return _pattern(rows, exact=exact)


def _pattern(rows: np.ndarray, *, exact: bool) -> _Taps | None:
    """The window of a weight matrix `rows` [results, pixels]; None if the weights vary."""
    count, size = rows.shape
    first = int(np.argmax(rows[0] > 0))
    width = int(np.count_nonzero(rows[0]))
    weights = rows[0, first : first + width]
    stride = int(np.argmax(rows[1] > 0)) - first if count > 1 else size
    if stride < 1 or first + width + stride * (count - 1) > size:
        return None
    indices = first + stride * np.arange(count)[:, None] + np.arange(width)
    # The weights of a strided window, the same in each row; any deviation rules it out.
    expected = np.zeros_like(rows)
    np.put_along_axis(expected, indices, np.broadcast_to(weights, indices.shape), axis=1)
    if np.abs(expected - rows).max() > 0.0:
        return None
    return _Taps(stride=stride, first=first, weights=weights, exact=exact, size=size, count=count)


def _source_coordinates(node: ir.Node, size: int, count: int, scale: float) -> np.ndarray | None:
    """Source coordinates of the results in pixels, by ONNX's definition; None if unsupported."""
    x = np.arange(count, dtype=np.float64)
    match node.attributes.get_string("coordinate_transformation_mode", "half_pixel"):
        case "asymmetric":
            return x / scale
        case "half_pixel":
            return (x + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (x + 0.5) / scale - 0.5 if count > 1 else np.zeros(1)
        case "align_corners":
            return x * (size - 1) / (count - 1) if count > 1 else np.zeros(1)
        case _:
            return None


def _nearest(coordinates: np.ndarray, rounding: str) -> np.ndarray | None:
    tie = 0.5 if rounding.startswith("round") else 0.0
    distance = np.abs(coordinates - tie - np.rint(coordinates - tie))
    if np.any((distance > 0.0) & (distance < _CLOSE)):
        return None
    rounded = {
        "floor": np.floor(coordinates),
        "ceil": np.ceil(coordinates),
        "round_prefer_floor": np.ceil(coordinates - 0.5),
        "round_prefer_ceil": np.floor(coordinates + 0.5),
    }.get(rounding)
    return None if rounded is None else rounded.astype(np.int64)
