"""A linear upsampling Resize becomes a nearest Resize and average pools.

Every pixel is repeated k times; then a k-wide mean is computed. Between the centres of two pixels
their weights change in steps of 1 / k, as in linear interpolation. If k is even and coordinates are
pixel centres (`half_pixel`), the result is half a step off; a second mean over two corrects it.
Padding does not count, so beyond the last centre the result is the last pixel, as in Resize. A
single row or column is only repeated.

This rewrite replaces an operator of the user's graph, so only strategies that ask for it run it
(`REWRITES`).
"""

from collections.abc import Sequence

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
from opu_fuse.quant import REWRITE_KEY

_CENTRES = ("half_pixel", "pytorch_half_pixel")
_CORNERS = ("asymmetric",)
_BEYOND = "tf_crop_and_resize"
"""The coordinate mode that extrapolates: it may read a fill value outside of the map."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_resize(model.graph, node) for node in standard_nodes(model.graph, "Resize")]
    return any(changed)


def _resize(graph: ir.Graph, node: ir.Node) -> bool:
    x, factors = node.inputs[0], _factors(node)
    if x is None or factors is None:
        return False
    corner = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    channels, *source = static_shape(x)[1:]  # type: ignore[index]  # `_factors` knows them
    size = static_shape(node.outputs[0])[2:]  # type: ignore[index]  # likewise
    repeats = _only_repeats(source, factors)
    if not repeats and quant_of(node.outputs[0]) is not None:
        return False  # averages would round differently than the quantised Resize
    if not repeats and x.dtype is not ir.DataType.FLOAT:
        return False  # ONNX has no integer averages
    scales = add_constant(graph, f"{node.name}/scales", np.array([1, 1, *factors], np.float32))
    nearest = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    inputs, attributes = [x, None, scales], {"mode": "nearest", **nearest}
    if repeats:
        rewrite(node, "Resize", inputs, attributes)
        node.metadata_props[REWRITE_KEY] = "pixels repeated: there are none to interpolate between"
        return True
    name, shape = f"{node.name}/nearest", (1, channels, *size)
    repeated = insert_before(node, "Resize", inputs, attributes, name=name, shape=shape)
    factors = [1 if n == 1 else k for n, k in zip(source, factors, strict=True)]
    ends = [k - 1 for k in factors]
    if corner in _CORNERS:
        rewrite(node, "AveragePool", [repeated], _mean(factors, [0, 0], ends))
    else:
        even = [1 - k % 2 for k in factors]
        half = [k // 2 for k in factors]
        window = _mean(factors, half, half)
        if any(even):
            grown = [n + e for n, e in zip(size, even, strict=True)]
            name, shape = f"{node.name}/means", (1, channels, *grown)
            repeated = insert_before(
                node, "AveragePool", [repeated], window, name=name, shape=shape
            )
            window = _mean([1 + e for e in even], [0, 0], [0, 0])
        rewrite(node, "AveragePool", [repeated], window)
    node.metadata_props[REWRITE_KEY] = "pixels repeated, then averaged: pools do what Resize does"
    return True


def _mean(kernel: list[int], before: list[int], after: list[int]) -> dict[str, list[int] | int]:
    """Attributes of an AveragePool with stride 1 that does not count padding."""
    pads = [*before, *after]
    return {"kernel_shape": kernel, "strides": [1, 1], "pads": pads, "count_include_pad": 0}


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
