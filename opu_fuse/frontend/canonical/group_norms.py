"""GroupNorms of one group become LayerNormalizations from axis 1 on, scale and offset by channel.

1. A GroupNormalization of one group.
2. As exporters of PyTorch write it: an InstanceNormalization of a map as one channel (1, 1, n),
   between two Reshapes, then a product with and a sum of constants for each channel.
3. Either form with several groups, and an InstanceNormalization of a map: `several_groups.py`.

Only for machines that run them: ONNX Runtime computes any of these forms.
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical import several_groups
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
    if not {_GROUP, "LayerNormalization"} <= {*graph.meta.get(NORMS_KEY, ())}:
        return False
    changed = [_of_group(graph, node) for node in standard_nodes(graph, _GROUP)]
    instances = standard_nodes(graph, "InstanceNormalization")
    changed += [_of_instance(graph, n) or _of_channels_alone(graph, n) for n in instances]
    return any(changed)


def _of_group(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 1."""
    x, shape = node.inputs[0], static_shape(node.inputs[0])
    if x is None or not _is_map(x):
        return False
    assert shape is not None
    scale, offset = (_of_channels(operand(node, i), shape) for i in (1, 2))
    if scale is None or offset is None:
        return False
    groups = node.attributes.get_int("num_groups", 0)
    return _become_norm(graph, node, x, groups, (scale, offset), node)


def _of_channels_alone(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 3, of groups of one channel."""
    x, shape = node.inputs[0], static_shape(node.inputs[0])
    if x is None or shape is None or not _is_map(x) or shape[1] == 1:
        return False
    scale, offset = (_of_channels(operand(node, i), shape) for i in (1, 2))
    if scale is None or offset is None:
        return False
    return _become_norm(graph, node, x, shape[1], (scale, offset), node)


def _of_instance(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 2."""
    first = None if node.inputs[0] is None else node.inputs[0].producer()
    last, size = sole_reader(node.outputs[0]), static_shape(node.inputs[0])
    if first is None or last is None or not all(is_standard(n, "Reshape") for n in (first, last)):
        return False
    x, shape = first.inputs[0], static_shape(last.outputs[0])
    if x is None or shape is None or size is None or not _is_map(x) or static_shape(x) != shape:
        return False
    groups, rest = size[1], shape[1] % size[1]
    if size[0] != 1 or len(size) != 3 or rest:
        return False
    scale, offset = (_of_groups(operand(node, i), groups, shape) for i in (1, 2))
    known = quant_of(node.outputs[0]) == quant_of(last.outputs[0])
    if scale is None or offset is None or not known or not _is_norm_of(x, groups):
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
    _become_norm(graph, last, x, groups, (scale, offset), node)
    graph.remove(inner, safe=True)
    return True


def _is_map(x: ir.Value) -> bool:
    """Whether a value has the shape of a map (1, c, h, w), or of a row (1, c, n)."""
    shape = static_shape(x)
    known = shape is not None and len(shape) in {3, 4} and shape[0] == 1 and 0 not in shape
    return known and x.dtype is ir.DataType.FLOAT


def _is_norm_of(x: ir.Value, groups: int) -> bool:
    """Whether a map with so many groups has a norm that machines run."""
    shape = static_shape(x)
    assert shape is not None
    if groups == 1:
        return len(shape) == 4
    return quant_of(x) is None and several_groups.fits(shape, groups)


def _of_groups(value: ir.Value | None, groups: int, shape: tuple[int, ...]) -> np.ndarray | None:
    """A float constant of one number, or one for each group, for each channel; None for others."""
    data = constant(value)
    if data is None or data.dtype != np.float32 or data.size not in {1, groups}:
        return None
    each = shape[1] // (groups if data.size > 1 else 1)
    return np.repeat(data.reshape(-1), each).reshape(-1, 1, 1)


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
    ones = (1,) * (len(shape) - 2)
    if size is None or size[-len(ones) :] != ones or static_shape(reader.outputs[0]) != shape:
        return None
    return _of_channels(value, shape)


def _become_norm(
    graph: ir.Graph,
    node: ir.Node,
    x: ir.Value,
    groups: int,
    constants: tuple[np.ndarray, np.ndarray],
    norm: ir.Node,
) -> bool:
    """Let a node compute the norm of a map. constants: scale and offset of each channel; norm: the
    node with its epsilon. Returns whether machines run it.
    """
    epsilon = norm.attributes.get_float("epsilon", _EPSILON)
    if not _is_norm_of(x, groups):
        return False
    if groups > 1:
        several_groups.normalise_groups(graph, node, x, groups, constants, epsilon)
        return True
    values = [
        add_constant(graph, f"{node.name}/{name}", np.ascontiguousarray(data))
        for name, data in zip(("scale", "offset"), constants, strict=True)
    ]
    rewrite(node, "LayerNormalization", [x, *values], {"axis": 1, "epsilon": epsilon})
    return True
