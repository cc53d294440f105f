"""A Resize that interpolates between neighbours becomes a nearest one and averages.

Every pixel is repeated k times, then the mean is taken over k of them: between the centres of two
pixels their shares go from one to the other in steps of 1 / k. Where k is even and the coordinates
are those of centres, the steps lie half a step off; a mean of two more puts them right. Pixels
outside do not count, so what lies beyond the last centre is the last pixel, as Resize has it. Of a
single row or column there is nothing to average: whatever interpolates it repeats it.

The user's graph has one operator there: only strategies that ask for it see these.
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
"""May read beyond the map, where it has a value of its own."""


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
        return False  # what is quantised already says what one Resize rounds
    if not repeats and x.dtype is not ir.DataType.FLOAT:
        return False  # ONNX knows no averages of integers
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
    """An AveragePool over what lies inside the map."""
    pads = [*before, *after]
    return {"kernel_shape": kernel, "strides": [1, 1], "pads": pads, "count_include_pad": 0}


def _factors(node: ir.Node) -> list[int] | None:
    """By how much rows and columns grow, whole; None for anything but linear interpolation of an
    image, or any that has nothing to interpolate between.
    """
    source, target = static_shape(node.inputs[0]), static_shape(node.outputs[0])
    mode = node.attributes.get_string("mode", "nearest")
    if mode == "nearest" or source is None or target is None:
        return None
    if len(source) != 4 or source[:1] != (1,) or min(source) < 1 or source[:2] != target[:2]:
        return None
    found = [t // s for s, t in zip(source, target, strict=True)]
    whole = all(k >= 1 and s * k == t for s, t, k in zip(source, target, found, strict=True))
    corner = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    linear = mode == "linear" and corner in {*_CENTRES, *_CORNERS}
    if not linear and (corner == _BEYOND or not _only_repeats(source[2:], found[2:])):
        return None
    given = operand(node, 2)
    if given is not None and static_shape(given) != (0,):
        scales = constant(given)
        axes = [a % 4 for a in node.attributes.get_ints("axes", range(4))]
        if scales is None or scales.size != len(axes):
            return None
        by = zip(axes, scales.tolist(), strict=True)
        whole = whole and all(source[a] == 1 or scale == found[a] for a, scale in by)
    elif constant(operand(node, 3)) is None:
        return None
    return found[2:] if whole and max(found) > 1 else None


def _only_repeats(size: Sequence[int], factors: Sequence[int]) -> bool:
    """Whether no axis that grows has two pixels to interpolate between."""
    return all(n == 1 or k == 1 for n, k in zip(size, factors, strict=True))
