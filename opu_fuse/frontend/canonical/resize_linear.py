"""A linear upsampling Resize becomes a nearest Resize and average pools.

Every pixel is repeated k times; then a k-wide mean is computed. Between the centres of two pixels
their weights change in steps of 1 / k, as in linear interpolation. If k is even and coordinates are
pixel centres (`half_pixel`), the result is half a step off; a second mean over two corrects it.
Padding does not count, so beyond the last centre the result is the last pixel, as in Resize. A
single row or column is only repeated.

A pool takes a cycle for each value of its window. From three on, rows are therefore repeated and
averaged before columns: 1 + k values instead of k * k, since the map is still narrow. If k is a
power of two (of centres), it is several factors of two: each puts a mean between two neighbours,
and only the first one has padding.

This rewrite replaces an operator of the user's graph, so only strategies that ask for it run it
(`REWRITES`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    operand,
    quant_of,
    rewrite,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.interpolation import INTERPOLATION, interpolation
from opu_fuse.quant import CHOICE_KEY, NORMS_KEY, REWRITE_KEY

_SEPARATE = 3
"""From this factor on, rows and columns are averaged one after the other."""
_NEAREST = {
    "mode": "nearest",
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
}
_AVERAGED = "pixels repeated, then averaged: pools do what Resize does"
_CENTRES = ("half_pixel", "pytorch_half_pixel")
_CORNERS = ("asymmetric",)
_BEYOND = "tf_crop_and_resize"
"""The coordinate mode that extrapolates: it may read a fill value outside of the map."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_resize(node) for node in standard_nodes(model.graph, "Resize")]
    return any(changed)


def _resize(node: ir.Node) -> bool:
    x, factors = node.inputs[0], _factors(node)
    if x is None or factors is None or interpolation(node, _operators(node)) is not None:
        return False
    corner = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    channels, *source = static_shape(x)[1:]  # type: ignore[index]  # `_factors` knows them
    size = static_shape(node.outputs[0])[2:]  # type: ignore[index]  # likewise
    repeats = _only_repeats(source, factors)
    if not repeats and quant_of(node.outputs[0]) is not None:
        return False  # averages would round differently than the quantised Resize
    if not repeats and x.dtype is not ir.DataType.FLOAT:
        return False  # ONNX has no integer averages
    if repeats:
        rewrite(node, "Resize", [x, None, _scales(node, factors, f"{node.name}")], _NEAREST)
        node.metadata_props[REWRITE_KEY] = "pixels repeated: there are none to interpolate between"
        return True
    windows = [1 if n == 1 else k for n, k in zip(source, factors, strict=True)]
    shape, centred = (1, channels, *source), corner in _CENTRES
    if centred and min(windows) == max(windows) and windows[0] & (windows[0] - 1) == 0:
        _double(node, x, shape, windows[0])
        return True
    if min(windows) >= _SEPARATE:
        x, shape = _repeat(node, x, shape, (factors[0], 1), "rows/")
        window = _window((windows[0], 1), centred)
        x, shape = _average(node, x, shape, window, "rows/means")
        factors, windows[0] = [1, factors[1]], 1
    x, shape = _repeat(node, x, shape, factors, "")
    window = _window(windows, centred)
    excess = [n - wanted for n, wanted in zip(_pooled(shape, window)[2:], size, strict=True)]
    if any(excess):  # half a step off
        x, shape = _average(node, x, shape, window, "means")
        window = _mean([1 + e for e in excess], [0, 0], [0, 0])
    rewrite(node, "AveragePool", [x], window)
    node.metadata_props[REWRITE_KEY] = _AVERAGED
    return True


def _operators(node: ir.Node) -> frozenset[str]:
    """ONNX operators that the machine runs in its own form."""
    assert node.graph is not None
    return node.graph.meta.get(NORMS_KEY, frozenset())


def _double(node: ir.Node, x: ir.Value, shape: Sequence[int], factor: int) -> None:
    """Rewrite a Resize by a power of two, of rows and columns.

    After the first mean there is a value for every half of a pixel, from border to border, then for
    every fourth, and so on. Results of the last mean lie between those.
    """
    window, stage = _window((2, 2), centred=True), ""
    while factor > 1:
        if factor == 2 and stage and INTERPOLATION in _operators(node):
            _weigh(node, *_repeat(node, x, shape, (2, 2), stage))
            return
        x, shape = _repeat(node, x, shape, (2, 2), stage)
        x, shape = _average(node, x, shape, window, f"{stage}means")
        window, stage, factor = _mean((2, 2), (0, 0), (0, 0)), f"{stage}means/", factor // 2
    rewrite(node, "AveragePool", [x], window)
    node.metadata_props[REWRITE_KEY] = _AVERAGED


def _weigh(node: ir.Node, x: ir.Value, shape: Sequence[int]) -> None:
    """Rewrite the last two means of a map to a depthwise Conv, which rounds once."""
    assert node.graph is not None
    window = np.outer((1, 2, 1), (1, 2, 1)) / np.float32(16)
    taps = np.tile(window.astype(np.float32), (shape[1], 1, 1, 1))
    weights = add_constant(node.graph, f"{node.name}/taps", taps)
    rewrite(node, "Conv", [x, weights], {"kernel_shape": [3, 3], "group": shape[1]})
    node.metadata_props.update({REWRITE_KEY: _AVERAGED, CHOICE_KEY: "taps"})


def _scales(node: ir.Node, factors: Sequence[int], name: str) -> ir.Value:
    assert node.graph is not None
    return add_constant(node.graph, f"{name}/scales", np.array([1, 1, *factors], np.float32))


def _repeat(
    node: ir.Node, x: ir.Value, shape: Sequence[int], factors: Sequence[int], stage: str
) -> tuple[ir.Value, tuple[int, ...]]:
    """Every pixel of x (1, c, h, w) as often as the factors say, and the shape of that."""
    name, (_, channels, *source) = f"{node.name}/{stage}nearest", shape
    inputs = [x, None, _scales(node, factors, f"{node.name}/{stage}".rstrip("/"))]
    grown = (1, channels, *(n * k for n, k in zip(source, factors, strict=True)))
    return insert_before(node, "Resize", inputs, _NEAREST, name=name, shape=grown), grown


def _average(
    node: ir.Node, x: ir.Value, shape: Sequence[int], window: Mapping[str, Any], stage: str
) -> tuple[ir.Value, tuple[int, ...]]:
    grown, name = _pooled(shape, window), f"{node.name}/{stage}"
    return insert_before(node, "AveragePool", [x], window, name=name, shape=grown), grown


def _window(kernel: Sequence[int], centred: bool) -> dict[str, Any]:
    """The mean over as many pixels as each is repeated; centred: around a pixel, else from it."""
    half, ends = [k // 2 for k in kernel], [k - 1 for k in kernel]
    return _mean(kernel, half, half) if centred else _mean(kernel, [0, 0], ends)


def _mean(kernel: Sequence[int], before: Sequence[int], after: Sequence[int]) -> dict[str, Any]:
    """Attributes of an AveragePool with stride 1 that does not count padding."""
    pads = [*before, *after]
    return {"kernel_shape": [*kernel], "strides": [1, 1], "pads": pads, "count_include_pad": 0}


def _pooled(shape: Sequence[int], window: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of a pool's result with stride 1."""
    pads, sizes = window["pads"], zip(shape[2:], window["kernel_shape"], strict=True)
    return (*shape[:2], *(n + pads[i] + pads[i + 2] - k + 1 for i, (n, k) in enumerate(sizes)))


def _factors(node: ir.Node) -> list[int] | None:
    """Integer scale factors of rows and columns; None for Resizes that are not rewritten.

    Rewritten are linear interpolation of an image, and other modes if they only repeat pixels.
    """
    source, target = static_shape(node.inputs[0]), static_shape(node.outputs[0])
    mode = node.attributes.get_string("mode", "nearest")
    if mode == "nearest" or source is None or target is None:
        return None
    if len(source) != 4 or source[:1] != (1,) or min(source) < 1 or source[:2] != target[:2]:
        return None
    factors = [t // s for s, t in zip(source, target, strict=True)]
    is_integer = all(k >= 1 and s * k == t for s, t, k in zip(source, target, factors, strict=True))
    corner = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    linear = mode == "linear" and corner in {*_CENTRES, *_CORNERS}
    if not linear and (corner == _BEYOND or not _only_repeats(source[2:], factors[2:])):
        return None
    scale_operand = operand(node, 2)
    if scale_operand is not None and static_shape(scale_operand) != (0,):
        scales = constant(scale_operand)
        axes = [a % 4 for a in node.attributes.get_ints("axes", range(4))]
        if scales is None or scales.size != len(axes):
            return None
        axis_scales = zip(axes, scales.tolist(), strict=True)
        is_integer = is_integer and all(
            source[a] == 1 or scale == factors[a] for a, scale in axis_scales
        )
    elif constant(operand(node, 3)) is None:
        return None
    return factors[2:] if is_integer and max(factors) > 1 else None


def _only_repeats(size: Sequence[int], factors: Sequence[int]) -> bool:
    """Whether no axis that grows has two pixels to interpolate between."""
    return all(n == 1 or k == 1 for n, k in zip(size, factors, strict=True))
