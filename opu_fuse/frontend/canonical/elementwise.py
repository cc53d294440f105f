"""Elementwise operators in the few forms that machines support.

1. Sum of n -> chain of n - 1 Adds.
2. Add and Mul: the constant second, shaped [c, 1, 1]. A constant that differs between pixels gets
   the shape of the map instead.
3. Sub of a constant -> Add; Div by a constant -> Mul; Sub from a constant for each channel ->
   BatchNormalization. The constants are float32, and not quantised.
4. Clip(0, inf) -> Relu; Max(x, 0) -> Relu; PRelu with one slope -> LeakyRelu.
"""

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
from opu_fuse.model.preprocessing import preprocessing_nodes


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    at_ports = preprocessing_nodes(model.graph)  # computed by a lookup table, not rewritten
    nodes = [n for n in standard_nodes(model.graph, *_RULES) if n not in at_ports]
    changed = [_RULES[n.op_type](model.graph, n) for n in nodes]
    return any(changed)


# Every rule rewrites one node (of its graph) and returns whether it did.


def _sum(_: ir.Graph, node: ir.Node) -> bool:
    """Case 1."""
    shapes = [static_shape(v) for v in node.inputs]
    if len(shapes) < 2 or any(s is None for s in shapes):
        return False
    total = node.inputs[0]
    shape = shapes[0]
    for step, value in enumerate(node.inputs[1:-1], start=1):
        shape = np.broadcast_shapes(shape, shapes[step])  # type: ignore[arg-type]  # None is ruled out before
        total = insert_before(node, "Add", [total, value], name=f"{node.name}/{step}", shape=shape)
    rewrite(node, "Add", [total, node.inputs[-1]])
    return True


def _commutative(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 2."""
    a, b = node.inputs
    changed = False
    if constant(a) is not None and constant(b) is None:
        rewrite(node, node.op_type, [b, a])
        changed = True
    return _channel_shape(graph, node) or changed


def _channel_shape(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 2: the constant without the batch dimension, or with the shape of the map."""
    value = node.inputs[1]
    data = constant(value)
    if value is None or data is None:
        return False
    if any(size != 1 for size in data.shape[-2:]):
        return _expand(graph, node, value, data)
    if data.ndim != 4 or data.shape[0] != 1 or quant_of(value):
        return False
    if len(static_shape(node.inputs[0]) or ()) != 4:  # else the constant gives the result its rank
        return False
    node.replace_input_with(1, add_constant(graph, f"{value.name}/channels", data[0]))
    return True


def _expand(graph: ir.Graph, node: ir.Node, value: ir.Value, data: np.ndarray) -> bool:
    """Case 2: a constant that differs between pixels gets the shape of the map."""
    shape, quant = static_shape(node.inputs[0]), quant_of(value)
    if shape is None or len(shape) != 4 or shape[0] != 1 or data.shape == shape:
        return False
    if static_shape(node.outputs[0]) != shape or (quant is not None and quant.axis is not None):
        return False
    whole = np.ascontiguousarray(np.broadcast_to(data, shape))
    node.replace_input_with(1, add_constant(graph, f"{value.name}/map", whole, quant))
    return True


def _real_constant(value: ir.Value | None) -> np.ndarray | None:
    """The data of a float32 constant that is not quantised; None for other values."""
    data = constant(value)
    if value is None or data is None or data.dtype != np.float32 or quant_of(value):
        return None
    return data


def _sub(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 3."""
    x, value = node.inputs
    if constant(value) is None:
        return _sub_from_constant(graph, node)
    data = _real_constant(value)
    if value is None or data is None:
        return False
    rewrite(node, "Add", [x, add_constant(graph, f"{value.name}/negative", -data)])
    return True


def _sub_from_constant(graph: ir.Graph, node: ir.Node) -> bool:
    value, x = node.inputs
    data, shape = _real_constant(value), static_shape(node.outputs[0])
    if data is None or shape is None or len(shape) != 4 or static_shape(x) != shape:
        return False
    channels = shape[1]
    # A scalar, as that of a map of one channel, is part of a lookup table.
    if channels == 1 or (1,) * (4 - data.ndim) + data.shape != (1, channels, 1, 1):
        return False
    ones, name = np.ones(channels, np.float32), node.name
    parameters = {"scale": -ones, "shift": data.reshape(-1), "mean": 0 * ones, "variance": ones}
    constants = [add_constant(graph, f"{name}/{part}", v) for part, v in parameters.items()]
    rewrite(node, "BatchNormalization", [x, *constants], {"epsilon": 0.0})
    return True


def _div(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 3."""
    x, value = node.inputs
    data = _real_constant(value)
    if value is None or data is None or not np.all(data):
        return False
    inverse = (1.0 / data.astype(np.float64)).astype(np.float32)
    rewrite(node, "Mul", [x, add_constant(graph, f"{value.name}/inverse", inverse)])
    return True


def _clip(_: ir.Graph, node: ir.Node) -> bool:
    """Case 4."""
    low, high = operand(node, 1), operand(node, 2)
    lowest = constant(low)
    highest = np.float32(np.inf) if high is None else constant(high)
    if lowest is None or highest is None or np.any(lowest != 0.0):
        return False
    if np.any(highest < np.finfo(np.float32).max):
        return False
    rewrite(node, "Relu", node.inputs[:1])
    return True


def _max(_: ir.Graph, node: ir.Node) -> bool:
    """Case 4."""
    if len(node.inputs) != 2:
        return False
    for x, other in (node.inputs, reversed(node.inputs)):
        limit = constant(other)
        same_shape = static_shape(x) == static_shape(node.outputs[0])
        if limit is not None and same_shape and not np.any(limit) and limit.dtype == np.float32:
            rewrite(node, "Relu", [x])
            return True
    return False


def _prelu(_: ir.Graph, node: ir.Node) -> bool:
    """Case 4."""
    x, value = node.inputs
    slope = constant(value)
    if value is None or slope is None or quant_of(value) or np.unique(slope).size != 1:
        return False
    rewrite(node, "LeakyRelu", [x], {"alpha": float(slope.flat[0])})
    return True


_RULES = {
    "Sum": _sum,
    "Sub": _sub,
    "Div": _div,
    "Add": _commutative,
    "Mul": _commutative,
    "Clip": _clip,
    "Max": _max,
    "PRelu": _prelu,
}
