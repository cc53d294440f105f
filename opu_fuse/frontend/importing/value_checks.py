"""Numbers of operators that onnx's checker and inference let pass: they see no weights."""

import math

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import constant, is_standard, operand, static_shape
from opu_fuse.model.operator_sets import WEIGHTED
from opu_fuse.model.opsets import REAL_FLOOR_MOD, is_real_floor_mod

_WEIGHTED = WEIGHTED | {"BatchNormalization"}
LARGEST = 2.0**120
"""Weights up to here can be added up and scaled without leaving float32."""

_NEEDS_FMOD = f"it takes integers, of real numbers it needs fmod=1 or opset {REAL_FLOOR_MOD}"


def mistake_of_numbers(node: ir.Node) -> str | None:
    """What is wrong with what a node makes of its constants, None when nothing is."""
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
    """A node whose weight holds no numbers that it can compute with, and what it holds; None when
    there is none. Looked at once, however many nodes read it.

    Infinity is welcome where it says something: bounds of Clip, masks that are added.
    """
    reader = next((use.node for use in value.uses() if is_standard(use.node, *_WEIGHTED)), None)
    if reader is None or not _is_real(value):
        return None
    data = constant(value)
    if data is None or in_range(data):
        return None
    return reader, f"its constant {value.name!r} holds {_worst(data)}"


def in_range(data: np.ndarray) -> bool:
    """Whether these are numbers, none of them beyond LARGEST."""
    # The extremes take no memory; NaN is both.
    return not data.size or (float(data.min()) >= -LARGEST and float(data.max()) <= LARGEST)


def are_scales(data: np.ndarray) -> bool:
    """Whether weights can have these as scales: positive, none so large or small that it leaves
    float32 on the way.
    """
    return bool(np.all((data > 1.0 / LARGEST) & (data < LARGEST)))


def _worst(data: np.ndarray) -> str:
    ends = (float(data.min()), float(data.max()))
    worst = ends[0] if math.isnan(ends[0]) else max(ends, key=abs)
    return f"{worst:.3g}, numbers up to {LARGEST:.1g} are allowed"


def _resized(node: ir.Node) -> str | None:
    """Inference takes the shape that is written, whatever the operand holds."""
    data = operand(node, 0)
    source, target = data and static_shape(data), static_shape(node.outputs[0])
    if data is None or source is None or target is None or math.prod(source) == math.prod(target):
        return None
    return f"its operand {data.name!r} of {list(source)} does not fill {list(target)}"


def _normalised(node: ir.Node) -> str | None:
    """Its scale and shift, as one function of its operand, must be in range too."""
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
    if is_real_floor_mod(node):
        opset = node.graph.opset_imports.get("", 0) if node.graph is not None else 0
        return None if opset >= REAL_FLOOR_MOD else _NEEDS_FMOD
    if _is_real(node.outputs[0]):
        return None
    divisors = constant(operand(node, 1))
    return None if divisors is None or np.all(divisors) else "it divides integers by zero"


def _indices(node: ir.Node) -> str | None:
    """Places that a Gather takes are there."""
    shape, places = static_shape(node.inputs[0]), constant(operand(node, 1))
    axis = node.attributes.get_int("axis", 0)
    if shape is None or places is None or not places.size or not -len(shape) <= axis < len(shape):
        return None
    size, ends = shape[axis], (int(places.min()), int(places.max()))
    wrong = [place for place in ends if not -size <= place < size]
    return f"it takes place {wrong[0]} of axis {axis}, which has {size}" if wrong else None


def _is_real(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()
