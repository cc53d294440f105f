"""Checks of constant operands, which onnx's checker and shape inference do not get."""

import math

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import constant, is_standard, operand, static_shape
from opu_fuse.model.operator_sets import WEIGHTED
from opu_fuse.model.opsets import REAL_FLOOR_MOD, is_real_floor_mod

_WEIGHTED = WEIGHTED | {"BatchNormalization"}
LARGEST = 2.0**120
"""Largest magnitude of a weight. Sums and scaled values up to it do not overflow float32."""

_NEEDS_FMOD = f"it takes integers, of real numbers it needs fmod=1 or opset {REAL_FLOOR_MOD}"


def mistake_of_numbers(node: ir.Node) -> str | None:
    """Error text for invalid constant operands of a node, None if they are valid."""
    if is_standard(node, "BatchNormalization"):
        return _normalised(node)
    if is_standard(node, "Div", "Mod"):
        return _divisor(node)
    if is_standard(node, "Gather"):
        return _indices(node)
    if is_standard(node, "Reshape"):
        return _resized(node)
    return None


def mistake_of_constant(value: ir.Value) -> tuple[ir.Node, str] | None:
    """(node, error text) if a weight has NaN, infinite or too large values, else None.

    The constant is checked once for all nodes that read it. Infinity is valid in other constants,
    such as bounds of Clip and additive masks.
    """
    reader = next((use.node for use in value.uses() if is_standard(use.node, *_WEIGHTED)), None)
    if reader is None or not _is_real(value):
        return None
    data = constant(value)
    if data is None or in_range(data):
        return None
    return reader, f"its constant {value.name!r} holds {_worst(data)}"


def in_range(data: np.ndarray) -> bool:
    """Whether all values are numbers with a magnitude up to LARGEST."""
    # min and max allocate no temporary array, and propagate NaN.
    return not data.size or (float(data.min()) >= -LARGEST and float(data.max()) <= LARGEST)


def are_scales(data: np.ndarray) -> bool:
    """Whether these are valid scales of weights: all between 1 / LARGEST and LARGEST."""
    return bool(np.all((data > 1.0 / LARGEST) & (data < LARGEST)))


def _worst(data: np.ndarray) -> str:
    ends = (float(data.min()), float(data.max()))
    worst = ends[0] if math.isnan(ends[0]) else max(ends, key=abs)
    return f"{worst:.3g}, numbers up to {LARGEST:.1g} are allowed"


def _resized(node: ir.Node) -> str | None:
    """Error text for a Reshape to another count of elements, which inference does not check."""
    data = operand(node, 0)
    source, target = data and static_shape(data), static_shape(node.outputs[0])
    if data is None or source is None or target is None or math.prod(source) == math.prod(target):
        return None
    return f"its operand {data.name!r} of {list(source)} does not fill {list(target)}"


def _normalised(node: ir.Node) -> str | None:
    """Error text for a BatchNormalization whose combined scale or shift is out of range."""
    parts = [constant(operand(node, i)) for i in range(1, 5)]
    if any(p is None or not p.size for p in parts):
        return None
    gamma, beta, mean, var = (p.astype(np.float64) for p in parts if p is not None)
    var += (epsilon := node.attributes.get_float("epsilon", 1e-5))
    if not var.min() > 0.0:
        return f"its variance is {var.min() - epsilon:g}, epsilon {epsilon:g}"
    scale = gamma / np.sqrt(var)
    for data in (scale, beta - mean * scale):
        if not in_range(data):
            return f"it scales or shifts by {_worst(data)}"
    return None


def _divisor(node: ir.Node) -> str | None:
    """Error text for a Div or Mod of integers by zero, or a Mod that its opset lacks."""
    if is_real_floor_mod(node):
        opset = node.graph.opset_imports.get("", 0) if node.graph is not None else 0
        return None if opset >= REAL_FLOOR_MOD else _NEEDS_FMOD
    if _is_real(node.outputs[0]):
        return None
    divisors = constant(operand(node, 1))
    return None if divisors is None or np.all(divisors) else "it divides integers by zero"


def _indices(node: ir.Node) -> str | None:
    """Error text for a Gather with an index out of bounds."""
    shape, indices = static_shape(node.inputs[0]), constant(operand(node, 1))
    axis = node.attributes.get_int("axis", 0)
    if shape is None or indices is None or not indices.size or not -len(shape) <= axis < len(shape):
        return None
    size, ends = shape[axis], (int(indices.min()), int(indices.max()))
    wrong = [index for index in ends if not -size <= index < size]
    return f"it reads index {wrong[0]} of axis {axis}, which has {size}" if wrong else None


def _is_real(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()
