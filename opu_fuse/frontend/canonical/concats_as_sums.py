"""A Concat of rows or columns becomes a sum of padded maps, which machines compute.

Machines join channels only. Each computed operand is padded with zeros to the size of the result;
the constant ones (a class token) are one constant map. Every element of the sum has one operand
that is not zero, so that it is rounded as the Concat rounds it. A constant that is added to the sum
(positions) joins the constant map, unless the sum is rounded before. The host joins maps that it
computes. This rewrite replaces an operator of the user's graph, so only strategies that ask for it
run it (`REWRITES`).
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.norms import is_of_norm
from opu_fuse.frontend.canonical.space_depth_as_conv import is_computed
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    detach,
    insert_before,
    is_standard,
    merge_sources,
    move_before,
    quant_of,
    rewrite,
    sole_reader,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.rolls import roll_of, rolls
from opu_fuse.quant import REWRITE_KEY

_WHY = "a sum of the padded maps: a machine joins channels, not rows or columns"
_SPATIAL = (2, 3)


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_sum(model.graph, node) for node in standard_nodes(model.graph, "Concat")]
    changed += [_take_up(model.graph, node) for node in standard_nodes(model.graph, "Add")]
    return any(changed)


def _sum(graph: ir.Graph, node: ir.Node) -> bool:
    result = node.outputs[0]
    shape, axis = static_shape(result), node.attributes.get_int("axis", 0)
    if shape is None or len(shape) != 4 or shape[0] != 1 or axis % 4 not in _SPATIAL:
        return False
    transposes = [use.node for use in result.uses() if is_standard(use.node, "Transpose")]
    if not all(map(is_of_norm, transposes)):
        return False  # channels are last: it joins when the Transpose has moved before it
    if rolls(graph) and roll_of(node) is not None:
        return False  # the machine rolls it as it stores
    axis %= 4
    values = [v for v in node.inputs if v is not None]
    sizes = [static_shape(v) for v in values]
    computed = [v for v in values if constant(v) is None]
    constants = [v for v in values if constant(v) is not None]
    if not computed or None in sizes or result.dtype != ir.DataType.FLOAT:
        return False
    if not all(map(is_computed, computed)) or len({quant_of(v) for v in constants}) > 1:
        return False
    if len({quant_of(v) is None for v in (*values, result)}) > 1:
        return False  # the host computes part of it in floats
    if any(q.axis is not None for v in values if (q := quant_of(v)) is not None):
        return False
    starts = np.cumsum([0, *(size[axis] for size in sizes if size is not None)]).tolist()
    terms = [
        _padded(graph, node, value, axis, start, shape)
        for value, start in zip(values, starts, strict=False)
        if constant(value) is None
    ]
    if constants:
        placed = [(v, start) for v, start in zip(values, starts, strict=False) if v in constants]
        terms.append(_constant_map(graph, node, placed, axis, shape))
    total = terms[0]
    for number, term in enumerate(terms[1:-1], start=1):
        total = insert_before(
            node,
            "Add",
            [total, term],
            name=f"{node.name}/{number}",
            shape=shape,
            quant=quant_of(result),
        )
    rewrite(node, "Add", [total, terms[-1]])
    node.metadata_props[REWRITE_KEY] = _WHY
    return True


def _take_up(graph: ir.Graph, node: ir.Node) -> bool:
    """Let the constant map of such a sum include a constant that is added to it (positions)."""
    sums = [v for v in node.inputs if v is not None and constant(v) is None]
    source = sums[0].producer() if len(sums) == 1 else None
    if source is None or source.metadata_props.get(REWRITE_KEY) != _WHY:
        return False
    other = node.inputs[1 - node.inputs.index(sums[0])]
    added, own = constant(other), constant(source.inputs[-1])
    if other is None or added is None or own is None or sole_reader(sums[0]) is not node:
        return False
    is_float = quant_of(sums[0]) is None and quant_of(other) is None
    if not is_float or static_shape(node.outputs[0]) != own.shape:
        return False
    whole = add_constant(graph, f"{source.name}/constants", own + added)
    merge_sources(node, [source])
    rewrite(node, "Add", [source.inputs[0], whole])
    node.metadata_props[REWRITE_KEY] = _WHY
    detach(source)
    return True


def _padded(
    graph: ir.Graph, node: ir.Node, value: ir.Value, axis: int, start: int, shape: Sequence[int]
) -> ir.Value:
    size = static_shape(value)
    assert size is not None
    amounts = np.zeros(8, np.int64)
    amounts[[axis, 4 + axis]] = start, shape[axis] - start - size[axis]
    name = f"{node.name}/{start}/pad"
    pads = add_constant(graph, f"{name}s", amounts)
    return move_before(node, "Pad", [value, pads], {"mode": "constant"}, name=name, shape=shape)


def _constant_map(
    graph: ir.Graph,
    node: ir.Node,
    placed: Sequence[tuple[ir.Value, int]],
    axis: int,
    shape: Sequence[int],
) -> ir.Value:
    """All constant operands, each from its first index on, zeros elsewhere."""
    quant = quant_of(placed[0][0])
    kind = np.float32 if quant is None else np.int8
    whole = np.full(shape, 0 if quant is None else quant.zero_point, kind)
    for value, start in placed:
        data = constant(value)
        assert data is not None
        there = [slice(None)] * 4
        there[axis] = slice(start, start + data.shape[axis])
        whole[tuple(there)] = data
    return add_constant(graph, f"{node.name}/constants", whole, quant)
