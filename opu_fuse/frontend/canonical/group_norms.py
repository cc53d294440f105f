"""GroupNorms of one group become LayerNormalizations from axis 1 on, scale and offset by channel.

1. A GroupNormalization of one group.
2. As exporters of PyTorch write it: an InstanceNormalization of a map as one channel (1, 1, n),
   between two Reshapes, then a product with and a sum of constants for each channel.

Only for machines that run them: ONNX Runtime computes any of these forms.
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    is_standard,
    merge_sources,
    operand,
    quant_of,
    rewrite,
    sole_reader,
    standard_nodes,
    static_shape,
)
from opu_fuse.quant import NORMS_KEY

_GROUP = "GroupNormalization"
_EPSILON = 1e-5


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    graph = model.graph
    if _GROUP not in graph.meta.get(NORMS_KEY, ()):
        return False
    changed = [_of_group(graph, node) for node in standard_nodes(graph, _GROUP)]
    instances = standard_nodes(graph, "InstanceNormalization")
    return any([*changed, *(_of_instance(graph, node) for node in instances)])


def _of_group(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 1."""
    x, shape = node.inputs[0], static_shape(node.inputs[0])
    if x is None or node.attributes.get_int("num_groups", 0) != 1 or not _is_map(x):
        return False
    assert shape is not None
    scale, offset = (_of_channels(operand(node, i), shape) for i in (1, 2))
    if scale is None or offset is None:
        return False
    _become_norm(graph, node, x, scale, offset, node.attributes.get_float("epsilon", _EPSILON))
    return True


def _of_instance(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 2."""
    first = None if node.inputs[0] is None else node.inputs[0].producer()
    last, size = sole_reader(node.outputs[0]), static_shape(node.inputs[0])
    if first is None or last is None or not all(is_standard(n, "Reshape") for n in (first, last)):
        return False
    x, shape = first.inputs[0], static_shape(last.outputs[0])
    if x is None or shape is None or size is None or not _is_map(x) or static_shape(x) != shape:
        return False
    scale, offset = (_of_channels(operand(node, i), shape) for i in (1, 2))
    known = size[:2] == (1, 1) and quant_of(node.outputs[0]) == quant_of(last.outputs[0])
    if scale is None or offset is None or not known:
        return False
    inner = [node]
    if (gains := _constant_after(last, "Mul", shape)) is not None:
        scale, offset = scale * gains, offset * gains
        inner.append(last)
        last = last.outputs[0].consumers()[0]
    if (more := _constant_after(last, "Add", shape)) is not None:
        offset = offset + more
        inner.append(last)
        last = last.outputs[0].consumers()[0]
    merge_sources(last, inner)
    epsilon = node.attributes.get_float("epsilon", _EPSILON)
    _become_norm(graph, last, x, scale, offset, epsilon)
    graph.remove(inner, safe=True)
    return True


def _is_map(x: ir.Value) -> bool:
    shape = static_shape(x)
    known = shape is not None and len(shape) == 4 and shape[0] == 1 and 0 not in shape
    return known and x.dtype is ir.DataType.FLOAT


def _of_channels(value: ir.Value | None, shape: tuple[int, ...]) -> np.ndarray | None:
    """A float constant of one number or one for each channel, (c, 1, 1); None for others."""
    data = constant(value)
    if data is None or data.dtype != np.float32 or data.size not in {1, shape[1]}:
        return None
    return np.broadcast_to(data.reshape(-1, 1, 1), (shape[1], 1, 1))


def _constant_after(node: ir.Node, op_type: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """What the only reader of a result adds to it or multiplies it by for each channel; None if it
    does not, or if the result is rounded.
    """
    reader = sole_reader(node.outputs[0])
    if reader is None or not is_standard(reader, op_type) or quant_of(node.outputs[0]) is not None:
        return None
    value = next((v for v in reader.inputs if constant(v) is not None), None)
    size = static_shape(value)
    if (
        size is None
        or len(size) < 3
        or size[-2:] != (1, 1)
        or static_shape(reader.outputs[0]) != shape
    ):
        return None
    return _of_channels(value, shape)


def _become_norm(
    graph: ir.Graph,
    node: ir.Node,
    x: ir.Value,
    scale: np.ndarray,
    offset: np.ndarray,
    epsilon: float,
) -> None:
    named = (("scale", scale), ("offset", offset))
    constants = [
        add_constant(graph, f"{node.name}/{name}", np.ascontiguousarray(data))
        for name, data in named
    ]
    rewrite(node, "LayerNormalization", [x, *constants], {"axis": 1, "epsilon": epsilon})
