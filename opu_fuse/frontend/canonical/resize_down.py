"""A Resize that makes a map smaller becomes a window with strides, where all its pixels are made
alike.

1. One pixel of every k (nearest, or linear whose places are those of pixels): MaxPool over one
   element from the first pixel on, else a Conv with ones.
2. Linear, the same weights for every pixel: AveragePool where they are equal (half of a map, of
   centres), else a Conv for each channel.

With antialiasing it reads more pixels, and others at the border; that, and cubic, stay. The user's
graph has one operator there: only strategies that ask for it see these.
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
"""Places so near to a border between two pixels, not on it, float32 may put on either side."""
_WEIGHT_BITS = 6
"""Of weights whose integers int8 holds, the largest of them one."""


class _Taps(Struct, frozen=True, kw_only=True):
    """Along one axis: result i is the sum of `weights` times pixels `apart * i + first` and those
    behind it. exact: they are what ONNX Runtime multiplies by, to the bit. size, count: pixels
    before and after.
    """

    apart: int
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
        """Pixels of a window, the first one included, that stands in as many places as there are
        results; 0 where none does.
        """
        least = max(self.first + len(self.weights), self.size - self.apart * self.count + 1)
        return least if least <= self.size - self.apart * (self.count - 1) else 0

    @property
    def window(self) -> np.ndarray:
        """Weights of all pixels of the window."""
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
    rounded = quant_of(y)
    if (quant_of(x) is None) != (rounded is None):
        return False
    same = rounded in {None, quant_of(x)}
    if not same and not all(t.exact for t in taps):
        return False  # halves between two steps would fall elsewhere
    strides, picks = [t.apart for t in taps], all(t.picks for t in taps)
    if picks and same and all(t.kernel == 1 for t in taps):  # Case 1
        rewrite(node, "MaxPool", [x], {"kernel_shape": [1, 1], "strides": strides})
        node.metadata_props[REWRITE_KEY] = "every n-th pixel: a pool over one element takes it"
        return True
    if picks and same and strides[0] == strides[1] and all(t.kernel == t.first + 1 for t in taps):
        channels = static_shape(x)[1]  # type: ignore[index]  # `_taps` has looked at it
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
    channels = static_shape(x)[1]  # type: ignore[index]  # `_taps` has looked at it
    window = np.outer(taps[0].window, taps[1].window)
    weights, quant = np.tile(window.astype(np.float32), (channels, 1, 1, 1)), None
    if quant_of(node.outputs[0]) is not None:
        integers = np.ldexp(weights, _WEIGHT_BITS)
        if np.any(integers != np.rint(integers)):
            return False
        weights, quant = integers.astype(np.int8), QuantParams(scale=(2.0**-_WEIGHT_BITS,))
    attributes = {
        "kernel_shape": window.shape,
        "strides": [t.apart for t in taps],
        "dilations": [1, 1],
        "pads": [0] * 4,
        "group": channels,
    }
    rewrite(node, "Conv", [x, add_constant(graph, f"{node.name}/taps", weights, quant)], attributes)
    why = "neighbours weighed alike everywhere: a convolution does it"
    node.metadata_props.update({REWRITE_KEY: why, CHOICE_KEY: "taps"})
    return True


def _taps(node: ir.Node) -> list[_Taps] | None:
    """Of rows and columns; None where results are not made alike, or nothing becomes smaller."""
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
    found = [_along(node, mode, *axis) for axis in sizes]
    taps = [t for t in found if t is not None and t.kernel]
    return taps if len(taps) == len(found) else None


def _scales(node: ir.Node, source: Sequence[int], target: Sequence[int]) -> list[float] | None:
    given, sizes = operand(node, 2), operand(node, 3)
    if given is None or static_shape(given) == (0,):
        if constant(sizes) is None:
            return None
        return [float(np.float32(t / s)) for s, t in zip(source, target, strict=True)]
    numbers = constant(given)
    axes = [a % 4 for a in node.attributes.get_ints("axes", range(4))]
    if numbers is None or numbers.size != len(axes):
        return None
    scales = dict(zip(axes, map(float, numbers), strict=True))
    return [scales.get(axis, 1.0) for axis in range(4)]


def _along(node: ir.Node, mode: str, size: int, count: int, scale: float) -> _Taps | None:
    places = _places(node, size, count, scale)
    if places is None:
        return None
    if mode == "nearest":
        rounding = node.attributes.get_string("nearest_mode", "round_prefer_floor")
        taken = _nearest(places, rounding)
        if taken is None:
            return None
        rows, exact = np.eye(size)[np.clip(taken, 0, size - 1)], True
    else:
        places = np.clip(places, 0, size - 1)
        near = np.abs(places - np.rint(places)) < _CLOSE
        exact = bool(np.all(places[near] == np.rint(places[near])))
        places = np.where(near, np.rint(places), places)
        below = np.floor(places).astype(np.int64)
        share = (places - below)[:, None]
        above = np.minimum(below + 1, size - 1)
        rows = np.eye(size)[below] * (1 - share) + np.eye(size)[above] * share
    return _pattern(rows, exact=exact)


def _pattern(rows: np.ndarray, *, exact: bool) -> _Taps | None:
    """rows: for every result the weights of all pixels."""
    count, size = rows.shape
    first = int(np.argmax(rows[0] > 0))
    width = int(np.count_nonzero(rows[0]))
    weights = rows[0, first : first + width]
    apart = int(np.argmax(rows[1] > 0)) - first if count > 1 else size
    if apart < 1 or first + width + apart * (count - 1) > size:
        return None
    places = first + apart * np.arange(count)[:, None] + np.arange(width)
    wanted = np.zeros_like(rows)
    np.put_along_axis(wanted, places, np.broadcast_to(weights, places.shape), axis=1)
    if np.abs(wanted - rows).max() > 0.0:
        return None
    return _Taps(apart=apart, first=first, weights=weights, exact=exact, size=size, count=count)


def _places(node: ir.Node, size: int, count: int, scale: float) -> np.ndarray | None:
    """Where results lie among the pixels, by ONNX's definition."""
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


def _nearest(places: np.ndarray, rounding: str) -> np.ndarray | None:
    middle = 0.5 if rounding.startswith("round") else 0.0
    off = np.abs(places - middle - np.rint(places - middle))
    if np.any((off > 0.0) & (off < _CLOSE)):
        return None
    taken = {
        "floor": np.floor(places),
        "ceil": np.ceil(places),
        "round_prefer_floor": np.ceil(places - 0.5),
        "round_prefer_ceil": np.floor(places + 0.5),
    }.get(rounding)
    return None if taken is None else taken.astype(np.int64)
