"""Elementwise operators in the few forms that machines support.

1. Sum of n -> chain of n - 1 Adds; Add and Mul with the constant second, shaped [c, 1, 1].
2. Sub of a constant -> Add; Div by a constant -> Mul; a Sub from a constant for each channel ->
   BatchNormalization (all only on real constants).
3. Clip(0, inf) -> Relu; Max(x, 0) -> Relu; PRelu with one slope -> LeakyRelu.
4. Add of a constant that differs between pixels: the constant gets the shape of the map.
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    is_standard,
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


def _sum(graph: ir.Graph, node: ir.Node) -> bool:
    del graph
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
    a, b = node.inputs
    changed = False
    if constant(a) is not None and constant(b) is None:
        rewrite(node, node.op_type, [b, a])
        changed = True
    return _channel_shape(graph, node) or changed


def _channel_shape(graph: ir.Graph, node: ir.Node) -> bool:
    """[1, c, 1, 1] -> [c, 1, 1]: constants that lack the batch dimension. Case 4 for maps."""
    value = node.inputs[1]
    data = constant(value)
    if value is None or data is None:
        return False
    if is_standard(node, "Add") and any(size != 1 for size in data.shape[-2:]):
        return _expand(graph, node, value, data)
    if data.ndim != 4 or data.shape[0] != 1 or quant_of(value):
        return False
    if len(static_shape(node.inputs[0]) or ()) != 4:  # else the constant gives the result its rank
        return False
    node.replace_input_with(1, add_constant(graph, f"{value.name}/channels", data[0]))
    return True


def _expand(graph: ir.Graph, node: ir.Node, value: ir.Value, data: np.ndarray) -> bool:
    """Case 4: a constant that differs between pixels gets the shape of the map."""
    shape, quant = static_shape(node.inputs[0]), quant_of(value)
    if shape is None or len(shape) != 4 or shape[0] != 1 or data.shape == shape:
        return False
    if static_shape(node.outputs[0]) != shape or (quant is not None and quant.axis is not None):
        return False
    whole = np.ascontiguousarray(np.broadcast_to(data, shape))
    node.replace_input_with(1, add_constant(graph, f"{value.name}/map", whole, quant))
    return True


def _sub(graph: ir.Graph, node: ir.Node) -> bool:
    value = node.inputs[1]
    data = constant(value)
    if data is None:
        return _from_constant(graph, node)
    if value is None or data.dtype != np.float32 or quant_of(value):
        return False
    rewrite(node, "Add", [node.inputs[0], add_constant(graph, f"{value.name}/negative", -data)])
    return True


def _from_constant(graph: ir.Graph, node: ir.Node) -> bool:
    value, x = node.inputs
    data, shape = constant(value), static_shape(node.outputs[0])
    if value is None or data is None or data.dtype != np.float32 or quant_of(value):
        return False
    if shape is None or len(shape) != 4 or static_shape(x) != shape or shape[1] == 1:
        return False
    if (1,) * (4 - data.ndim) + data.shape != (
        1,
        shape[1],
        1,
        1,
    ):  # a scalar is part of a lookup table
        return False
    ones, name = np.ones(shape[1], np.float32), node.name
    parameters = {"scale": -ones, "shift": data.reshape(-1), "mean": 0 * ones, "variance": ones}
    constants = [add_constant(graph, f"{name}/{part}", v) for part, v in parameters.items()]
    rewrite(node, "BatchNormalization", [x, *constants], {"epsilon": 0.0})
    return True


def _div(graph: ir.Graph, node: ir.Node) -> bool:
    value = node.inputs[1]
    data = constant(value)
    if value is None or data is None or data.dtype != np.float32 or quant_of(value):
        return False
    if not np.all(data):
        return False
    inverse = (1.0 / data.astype(np.float64)).astype(np.float32)
    rewrite(node, "Mul", [node.inputs[0], add_constant(graph, f"{value.name}/inverse", inverse)])
    return True


def _clip(graph: ir.Graph, node: ir.Node) -> bool:
    del graph
    low, high = operand(node, 1), operand(node, 2)
    lowest = constant(low)
    highest = np.float32(np.inf) if high is None else constant(high)
    if lowest is None or highest is None or np.any(lowest != 0.0):
        return False
    if np.any(highest < np.finfo(np.float32).max):
        return False
    rewrite(node, "Relu", node.inputs[:1])
    return True


def _max(graph: ir.Graph, node: ir.Node) -> bool:
    del graph
    if len(node.inputs) != 2:
        return False
    for x, other in (node.inputs, reversed(node.inputs)):
        limit = constant(other)
        same_shape = static_shape(x) == static_shape(node.outputs[0])
        if limit is not None and same_shape and not np.any(limit) and limit.dtype == np.float32:
            rewrite(node, "Relu", [x])
            return True
    return False


def _prelu(graph: ir.Graph, node: ir.Node) -> bool:
    del graph
    slope = constant(node.inputs[1])
    if slope is None or quant_of(node.inputs[1]) or np.unique(slope).size != 1:  # type: ignore[arg-type]  # None is ruled out before
        return False
    rewrite(node, "LeakyRelu", node.inputs[:1], {"alpha": float(slope.flat[0])})
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
