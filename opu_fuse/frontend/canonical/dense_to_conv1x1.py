"""Pointwise dense layers become 1x1 convolutions.

Channels-last frameworks write the dense layers of a ConvNeXt or of squeeze-and-excite blocks as
MatMuls over the last axis of a map, or reshape the map to rows of pixels first.

1. MatMul of (1, l, c) or (1, h, w, c) with a constant matrix: a 1x1 Conv between two Transposes,
   which `transposes` merges with the network's own. For a 1-D tensor it is a 1-D Conv.
2. MatMul or Gemm of rows (h·w, c) that a Reshape gets from such a map: as case 1 on that map,
   with the Reshape after it.
3. An elementwise operator of such rows: the Reshape of case 2 moves after it, so that the next
   layer matches case 2.

Rows that are not the pixels of a map are several samples; they do not change.
"""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from msgspec.structs import replace

from opu_fuse.frontend.canonical.dense import is_final
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_after,
    insert_before,
    is_standard,
    operand,
    quant_of,
    rewrite,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.operator_sets import ELEMENT_WISE
from opu_fuse.quant import META_KEY

_MAPS = {3: (0, 2, 1), 4: (0, 3, 1, 2)}
"""Ranks of channels-last maps, and their permutation to channels-first."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = False
    for node in standard_nodes(model.graph, "MatMul", "Gemm", *ELEMENT_WISE):
        rule = _dense if is_standard(node, "MatMul", "Gemm") else _move_reshape_after
        changed |= rule(model.graph, node)
    return changed


def _dense(graph: ir.Graph, node: ir.Node) -> bool:
    x, w = node.inputs[0], operand(node, 1)
    weight = constant(w)
    if x is None or w is None or weight is None or weight.ndim != 2:
        return False
    if (quant_of(x) is None) != (quant_of(w) is None) or x.dtype != ir.DataType.FLOAT:
        return False  # the host computes it unchanged
    if node.op_type == "Gemm":
        source = _map_of(x) if is_final(node) else None  # Case 2
        bias = operand(node, 2)
    else:
        source, bias = x if _is_map(x) else _map_of(x), None
        weight = weight.T
    if source is None:
        return False
    if source is not x:
        _reshape_after(graph, node, source)
    quant = quant_of(w)
    if quant is not None and quant.axis is not None and node.op_type == "MatMul":
        quant = replace(quant, axis=1 - quant.axis % 2)
    taps = weight[(..., *[None] * (len(source.shape or ()) - 2))]
    filters = add_constant(graph, f"{w.name}/pixel", taps, quant)
    _convolve(node, source, [filters] if bias is None else [filters, bias])
    return True


def _convolve(node: ir.Node, source: ir.Value, weights: Sequence[ir.Value]) -> None:
    """Case 1: replace a node that reads `source` by a Conv between two Transposes."""
    size, target = static_shape(source), static_shape(node.outputs[0])
    assert size is not None
    assert target is not None
    order = _MAPS[len(size)]
    name, shape = f"{node.name}/channels", [size[axis] for axis in order]
    x = insert_before(node, "Transpose", [source], {"perm": order}, name=name, shape=shape)
    if (quant := quant_of(source)) is not None:
        x.meta[META_KEY] = quant
    inverse = {"perm": np.argsort(order).tolist()}
    name, shape = f"{node.name}/last", [target[axis] for axis in order]
    insert_after(node, node.outputs[0], "Transpose", (), inverse, name=name, shape=shape)
    rewrite(node, "Conv", [x, *weights])  # `convolutions` adds its attributes


def _move_reshape_after(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 3: let an elementwise operator read the maps, with the Reshape to rows after it."""
    maps = {v: m for v in node.inputs if v is not None and (m := _map_of(v)) is not None}
    sizes = {static_shape(m) for m in maps.values()}
    others = [v for v in node.inputs if v is not None and v not in maps]
    result = node.outputs[0]
    if len(sizes) != 1 or not all(_is_for_channels(v) for v in others):
        return False
    if result.dtype != ir.DataType.FLOAT or static_shape(result) not in map(static_shape, maps):
        return False
    _reshape_after(graph, node, next(iter(maps.values())))
    for index, value in enumerate(node.inputs):
        if value in maps:
            node.replace_input_with(index, maps[value])
    return True


def _reshape_after(graph: ir.Graph, node: ir.Node, source: ir.Value) -> None:
    """Let a node's result have the axes of `source`, and insert a Reshape to rows after it."""
    rows, size = static_shape(node.outputs[0]), static_shape(source)
    assert rows is not None
    assert size is not None
    shape = add_constant(graph, f"{node.name}/rows_shape", np.asarray(rows, np.int64))
    pixels = (*size[:-1], rows[-1])
    insert_after(node, node.outputs[0], "Reshape", (shape,), name=f"{node.name}/rows", shape=pixels)


def _map_of(rows: ir.Value | None) -> ir.Value | None:
    """The channels-last map that a Reshape turned into these rows; None if it requantises."""
    node = None if rows is None else rows.producer()
    if rows is None or node is None or not is_standard(node, "Reshape"):
        return None
    source, size, shape = node.inputs[0], static_shape(node.inputs[0]), static_shape(rows)
    if source is None or size is None or shape is None or not _is_map(source):
        return None
    same_quant = quant_of(rows) in {None, quant_of(source)}
    return source if same_quant and shape == (math.prod(size[:-1]), size[-1]) else None


def _is_map(value: ir.Value) -> bool:
    shape = static_shape(value)
    return shape is not None and len(shape) in _MAPS and shape[0] == 1 and 0 not in shape


def _is_for_channels(value: ir.Value) -> bool:
    """Whether a value is a constant vector of channels or a scalar."""
    shape, quant = static_shape(value), quant_of(value)
    if constant(value) is None or shape is None or (quant is not None and quant.axis is not None):
        return False
    return math.prod(shape[:-1]) == 1 and len(shape) <= len(("row", "channel"))
