"""Softmax and normalisations of the channels of a pixel, or of a map, which some machines run.

The others leave them to the host, in floats. The front end marks a model with the operators that
the machine runs (`quant.NORMS_KEY`); it then rounds their operands and results.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from msgspec import Struct, field

from opu_fuse.model.composites import Composite
from opu_fuse.model.divisions import division
from opu_fuse.model.grouped_softmax import grouped_softmax
from opu_fuse.model.known_values import const_array, known_shape
from opu_fuse.model.operator_sets import GROUPED_SOFTMAX, NORM_OPERATORS, NORMS
from opu_fuse.model.opsets import STANDARD
from opu_fuse.normalisation import BY_ROWS

_EPSILON = 1e-5
_GROUP = "GroupNormalization"
_KINDS = NORMS | {"Softmax"}
_NONE: Mapping[str, Any] = {}


class Norm(Struct, frozen=True, kw_only=True):
    """A norm that a machine runs.

    op: operator of the hardware spec; source: the map; constants: scale and, of a norm that
    has one, the offset, each one number or one for each channel; attrs: epsilon, not of a Softmax.
    A division by the first channel counts as one. A GroupNorm of one group is written as a
    LayerNormalization from axis 1 on, one whose groups are rows as that of the last two axes of a
    map with rows first.
    """

    op: str
    source: ir.Value
    constants: tuple[ir.Value, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)


def machine_norm(node: ir.Node, whole: Composite | None, operators: Collection[str]) -> Norm | None:
    """The norm of a node, or of the composite whose last node it is; None for others, and where not
    the channels of a pixel are normalised.

    operators: ONNX operators that the machine runs.
    """
    divided = division(node)
    if divided is not None and "Div" in operators:
        attrs = {"epsilon": divided.epsilon}
        return Norm(op=NORM_OPERATORS["Div"], source=divided.source, attrs=attrs)
    grouped = grouped_softmax(node)
    if grouped is not None:
        x = grouped[0].inputs[0] if GROUPED_SOFTMAX in operators else None
        return None if x is None else Norm(op=NORM_OPERATORS[GROUPED_SOFTMAX], source=x)
    norm = node if whole is None else next((n for n in whole.nodes if n.op_type in NORMS), None)
    if norm is None or norm.op_type not in _KINDS or norm.domain not in STANDARD:
        return None
    x = norm.inputs[0] if whole is None else whole.source
    shape = known_shape(x)
    if x is None or len(shape) not in {2, 4} or shape[0] != 1 or min(shape) <= 0:
        return None
    if const_array(x) is not None or {ir.DataType.FLOAT} != {x.dtype, node.outputs[0].dtype}:
        return None
    axis = norm.attributes.get_int("axis", -1) % len(shape)
    of_map = norm.op_type == "LayerNormalization" and (whole, axis, len(shape)) == (None, 1, 4)
    if of_map and math.prod(shape) > 1 and _GROUP in operators:
        return _with_constants(norm, NORM_OPERATORS[_GROUP], x, shape[1])
    if whole is not None and (norm.op_type, axis) == ("LayerNormalization", 2):
        known = _GROUP in operators
        rows = {BY_ROWS: True}
        return _with_constants(norm, NORM_OPERATORS[_GROUP], x, shape[1], rows) if known else None
    if norm.op_type not in operators:
        return None
    if norm.op_type == "Softmax":
        return Norm(op="softmax", source=x) if axis == 1 else None
    if axis != len(shape) - 1 or (whole is None and len(shape) != 2):
        return None
    return _with_constants(norm, NORM_OPERATORS[norm.op_type], x, shape[1])


def _with_constants(
    norm: ir.Node, op: str, x: ir.Value, channels: int, more: Mapping[str, Any] = _NONE
) -> Norm | None:
    """A norm with a constant scale, and offset if it has one. more: attributes."""
    constants = tuple(v for v in norm.inputs[1:] if v is not None)
    data = [const_array(v) for v in constants]
    if not constants or norm.inputs[1] is None or any(v.uses() for v in norm.outputs[1:]):
        return None
    if not all(d is not None and d.size in {1, channels} and np.isfinite(d).all() for d in data):
        return None
    attrs = {"epsilon": norm.attributes.get_float("epsilon", _EPSILON), **more}
    return Norm(op=op, source=x, constants=constants, attrs=attrs)
