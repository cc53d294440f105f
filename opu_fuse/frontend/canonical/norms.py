"""Normalisations of the channels of each pixel read and write maps with channels first.

ONNX normalises the last axes. Here a LayerNormalization or RMSNormalization of the last axis is
between two Transposes, one from a map (1, c, h, w) and one to a map. The three are one operator of
the data-flow graph (`model/composites.py`), so that its predecessors and successors have channels
first. Tokens become pixels of an image (`tokens`). One token, such as a mean of all, becomes a row
(1, c), which needs no Transposes. A Reshape that puts the pixels of a map (1, c, h, w) into a row
moves after the norm of a machine, which can then follow the convolution that computes the map.
"""

import math

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.token_images import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    as_image,
    as_row,
    is_image,
    map_of,
    reshape_after,
)
from opu_fuse.frontend.editing import (
    add_constant,
    drop_unread,
    insert_after,
    is_standard,
    move_before,
    operand,
    quant_of,
    sole_reader,
    static_shape,
)
from opu_fuse.model.composites import ROWS_FIRST
from opu_fuse.model.operator_sets import NORMS
from opu_fuse.quant import NORMS_KEY


def convert(graph: ir.Graph, node: ir.Node) -> bool:
    """Give a normalisation its Transposes. Returns whether the graph changed."""
    x = node.inputs[0]
    if x is None or not _is_of_last_axis(node, x):
        return False
    shape = static_shape(x)
    if shape is not None and math.prod(shape[:-1]) == 1:
        return as_row(graph, node)
    is_new = not is_image(x)
    if is_new:
        x = map_of(x) or as_image(node, x)
        reshape_after(graph, node, x)
        node.replace_input_with(0, x)
        node.attributes["axis"] = ir.AttrInt64("axis", -1)
    changed = _transpose_operand(node, x)
    changed |= _transpose_result(node)
    changed |= _before_reshape(graph, node)
    return changed or is_new


def is_of_norm(node: ir.Node) -> bool:
    """Whether a node is a Transpose that belongs to a normalisation."""
    if not is_standard(node, "Transpose"):
        return False
    order = tuple(node.attributes.get_ints("perm", ()))
    if order in {CHANNELS_LAST, ROWS_FIRST}:
        reader = sole_reader(node.outputs[0])
        if reader is not None and _normalises(reader, order):
            return True
    x = node.inputs[0]
    norm = None if x is None else x.producer()
    if x is None or norm is None or sole_reader(x) is None:
        return False
    return order in {CHANNELS_FIRST, ROWS_FIRST} and _normalises(norm, order)


def _normalises(node: ir.Node, order: tuple[int, ...]) -> bool:
    """Whether a node is a norm to which a Transpose of this order belongs."""
    of_rows = node.attributes.get_int("axis", -1) == 2
    return is_standard(node, *NORMS) and of_rows == (order == ROWS_FIRST)


def _before_reshape(graph: ir.Graph, node: ir.Node) -> bool:
    """Normalise a map instead of a row of its pixels, which a Reshape makes."""
    if node.op_type not in graph.meta.get(NORMS_KEY, ()):
        return False
    last, turned = operand(node, 0), sole_reader(node.outputs[0])
    before = None if last is None else last.producer()
    row = None if before is None else before.inputs[0]
    reshape = None if row is None else row.producer()
    if turned is None or before is None or row is None or reshape is None:
        return False
    x, size = reshape.inputs[0], static_shape(row)
    shape = static_shape(x)
    if not is_standard(reshape, "Reshape") or x is None:
        return False
    if shape is None or size is None or len(shape) != len(size) or shape[2] == 1:
        return False
    if size != (1, shape[1], 1, shape[2] * shape[3]) or shape[0] != 1:
        return False
    if quant_of(row) not in {None, quant_of(x)}:
        return False
    before.replace_input_with(0, x)
    drop_unread(row)
    for value in (before.outputs[0], node.outputs[0]):
        value.shape = ir.Shape([shape[axis] for axis in CHANNELS_LAST])
    to = add_constant(graph, f"{node.name}/row_shape", np.asarray(size, np.int64))
    name = f"{node.name}/row"
    insert_after(turned, turned.outputs[0], "Reshape", (to,), name=name, shape=shape)
    return True


def _is_of_last_axis(node: ir.Node, x: ir.Value) -> bool:
    """Whether a node normalises several channels of several tokens, and has one result."""
    shape = static_shape(x)
    if shape is None or len(shape) < 2 or 0 in shape or shape[-1] == 1:
        return False
    if any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
        return False
    is_last = node.attributes.get_int("axis", -1) % len(shape) == len(shape) - 1
    return is_last and node.outputs[0].dtype == x.dtype == ir.DataType.FLOAT


def _transpose_operand(node: ir.Node, x: ir.Value) -> bool:
    producer = x.producer()
    if producer is not None and is_of_norm(producer):
        return False
    shape = static_shape(x)
    assert shape is not None
    first = [shape[axis] for axis in CHANNELS_FIRST]
    name = f"{node.name}/channels"
    perm = {"perm": CHANNELS_FIRST}
    first_map = move_before(node, "Transpose", [x], perm, name=name, shape=first)
    perm, name = {"perm": CHANNELS_LAST}, f"{node.name}/last"
    last_map = move_before(node, "Transpose", [first_map], perm, name=name, shape=shape)
    node.replace_input_with(0, last_map)
    return True


def _transpose_result(node: ir.Node) -> bool:
    result = node.outputs[0]
    reader = sole_reader(result)
    if reader is not None and is_of_norm(reader):
        return False
    shape = static_shape(result)
    assert shape is not None
    first = [shape[axis] for axis in CHANNELS_FIRST]
    perm = {"perm": CHANNELS_LAST}
    insert_after(node, result, "Transpose", (), perm, name=f"{node.name}/rows", shape=first)
    perm = {"perm": CHANNELS_FIRST}
    insert_after(node, result, "Transpose", (), perm, name=f"{node.name}/turned", shape=shape)
    return True
