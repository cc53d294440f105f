"""Sink Transposes through layout-agnostic operators until inverse ones meet and cancel.

Channels-last frameworks wrap channels-first operators in two Transposes. These separate operators
that a machine could fuse.

1. Two consecutive Transposes become one with the composed permutation. A Reshape that only moves
   the one axis that is not 1 counts as a Transpose.
2. Elementwise operators, Concat, Split and Slice move before the Transposes of their operands if
   all have the same permutation. Constants, and values without a moved axis, are permuted the other
   way. If an operand of an elementwise operator or Concat is channels-last, so are the others: they
   get a Transpose to channels-first.
   The Transposes around a normalisation of channels belong to it (`norms`) and stay.
3. A Pad that only a Transpose reads moves after it, where its reader may absorb it.

Other readers of a transposed value still read it. Quantisation does not change.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.norms import is_of_norm
from opu_fuse.frontend.canonical.token_images import CHANNELS_LAST
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    detach,
    drop_unread,
    insert_after,
    insert_before,
    is_standard,
    merge_sources,
    operand,
    quant_of,
    rewrite,
    sole_reader,
    static_shape,
)
from opu_fuse.model.operator_sets import ELEMENT_WISE
from opu_fuse.quant import META_KEY

_ALONG = {"Concat": None, "Split": 0}
"""Operators with an axis attribute, and its default."""
Order = tuple[int, ...]


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = False
    for node in model.graph:
        if is_standard(node, "Transpose"):
            transpose: ir.Node | None = node
            while transpose is not None:  # Pad by Pad
                changed |= _merge(transpose)  # Case 1
                transpose = _before_pad(model.graph, transpose)  # Case 3
                changed |= transpose is not None
        elif is_standard(node, "Reshape"):
            changed |= _skip(node)  # Case 1
        else:
            changed |= _before(model.graph, node)  # Case 2
    return changed


def _order(node: ir.Node | None) -> Order | None:
    """The permutation of a Transpose that moves an axis other than 1; None for other nodes."""
    order = _any_order(node)
    shape = None if node is None or order is None else static_shape(node.inputs[0])
    return order if shape is not None and order is not None and _moves(shape, order) else None


def _any_order(node: ir.Node | None) -> Order | None:
    """The permutation of a Transpose that does not requantise; None for other nodes."""
    if node is None or not is_standard(node, "Transpose"):
        return None
    x, shape = node.inputs[0], static_shape(node.inputs[0])
    if x is None or shape is None or quant_of(node.outputs[0]) not in {None, quant_of(x)}:
        return None
    return tuple(node.attributes.get_ints("perm", range(len(shape))[::-1]))


def _moves(shape: Sequence[int], order: Order) -> bool:
    moved = [axis for axis in order if shape[axis] != 1]
    return moved != sorted(moved)


def _merge(node: ir.Node) -> bool:
    if is_of_norm(node):
        return False
    first_transpose, second_order = (
        _transpose_before(node.inputs[0]) or _moved(node.inputs[0]),
        _any_order(node),
    )
    if first_transpose is None or second_order is None:
        return False
    source, order = first_transpose
    intermediate = node.inputs[0]
    rewrite(node, "Transpose", [source], {"perm": [order[axis] for axis in second_order]})
    drop_unread(intermediate)
    return True


def _skip(node: ir.Node) -> bool:
    """Let a Reshape that moves an axis read the operand of one before it (case 1)."""
    moved_before, intermediate = _moved(node.inputs[0]), node.inputs[0]
    if moved_before is None or _moved(node.outputs[0]) is None:
        return False
    node.replace_input_with(0, moved_before[0])
    drop_unread(intermediate)
    return True


def _transpose_before(value: ir.Value | None) -> tuple[ir.Value, Order] | None:
    """The operand and permutation of the Transpose that computes a value; None for others."""
    node = None if value is None else value.producer()
    order = None if node is None or is_of_norm(node) else _order(node)
    return None if node is None or order is None else (node.inputs[0], order)  # type: ignore[return-value]  # `_order` has checked it


def _before_pad(graph: ir.Graph, node: ir.Node) -> ir.Node | None:
    """Swap a Pad and the Transpose that reads it (case 3). Returns the new Transpose, or None."""
    x, order = node.inputs[0], _any_order(node)
    pad = None if x is None else x.producer()
    if x is None or order is None or pad is None or sole_reader(x) is not node:
        return None
    amounts = constant(operand(pad, 1))
    if not is_standard(pad, "Pad") or operand(pad, 3) is not None or amounts is None:
        return None
    if quant_of(x) is not None:
        return None
    shape = static_shape(pad.inputs[0])
    assert shape is not None
    transposed = insert_before(
        node,
        "Transpose",
        [pad.inputs[0]],
        {"perm": order},
        name=f"{node.name}/turned",
        shape=[shape[axis] for axis in order],
    )
    pads = amounts.reshape(2, -1)[:, order].reshape(-1)
    fill_operands = pad.inputs[2:]
    mode = pad.attributes.get_string("mode", "constant")
    merge_sources(node, [pad])
    rewrite(
        node,
        "Pad",
        [transposed, add_constant(graph, f"{pad.name}/pads", pads), *fill_operands],
        {"mode": mode},
    )
    detach(pad)
    return transposed.producer()


def _before(graph: ir.Graph, node: ir.Node) -> bool:
    known = all(v.dtype == ir.DataType.FLOAT and static_shape(v) for v in node.outputs)
    sources = _sources(node, _transpose_before)
    if not sources and is_standard(node, *ELEMENT_WISE):
        sources = _sources(node, _moved)
        others = {
            v for v in node.inputs if v not in sources and constant(v) is None and _is_wide(v)
        }
        if len(others) >= len(
            sources
        ):  # else as many new Transposes arise, and the next run swaps again
            return False
    orders = {order for _, order in sources.values()}
    if not known or len(orders) != 1:
        return False
    (order,) = orders
    inputs = _inputs(graph, node, {v: source for v, (source, _) in sources.items()}, order)
    if inputs is None:
        return False
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        node.replace_input_with(index, value)
    if node.op_type in _ALONG:
        axis = node.attributes.get_int("axis", _ALONG[node.op_type])
        assert axis is not None
        node.attributes["axis"] = ir.AttrInt64("axis", order[axis])
    for result in node.outputs:
        shape = static_shape(result)
        assert shape is not None
        unpermuted = [shape[axis] for axis in np.argsort(order)]
        name, perm = f"{node.name}/turned", {"perm": order}
        insert_after(node, result, "Transpose", (), perm, name=name, shape=unpermuted)
    return True


def _is_wide(value: ir.Value | None) -> bool:
    return math.prod(static_shape(value) or ()) != 1


def _sources(
    node: ir.Node, how: Callable[[ir.Value | None], tuple[ir.Value, Order] | None]
) -> dict[ir.Value, tuple[ir.Value, Order]]:
    return {v: source for v in node.inputs if v is not None and (source := how(v)) is not None}


def _moved(value: ir.Value | None) -> tuple[ir.Value, Order] | None:
    """Operand and permutation of a node that only moves the one axis that is not 1.

    It is a Transpose of [n, c, 1, 1], or the Reshape by which `reshapes` replaced one.
    """
    node = None if value is None else value.producer()
    if node is None or not is_standard(node, "Reshape", "Transpose"):
        return None
    x, before, after = node.inputs[0], static_shape(node.inputs[0]), static_shape(value)
    if value is None or x is None or before is None or after is None:
        return None
    if len(before) != len(after) or quant_of(value) not in {None, quant_of(x)}:
        return None
    wide = [[axis for axis, size in enumerate(s) if size != 1] for s in (before, after)]
    if [*map(len, wide)] != [1, 1] or wide[0] == wide[1]:
        return None
    ((old,), (new,)) = wide
    order = [axis for axis in range(len(before)) if axis != old]
    return x, (*order[:new], old, *order[new:])


def _inputs(
    graph: ir.Graph, node: ir.Node, sources: Mapping[ir.Value, ir.Value], order: Order
) -> list[ir.Value | None] | None:
    """The operands of an operator that moves before the Transposes; None if it cannot."""
    if is_standard(node, "Concat", *ELEMENT_WISE):
        size = static_shape(node.outputs[0])
        same_shape = node.op_type == "Concat" or all(static_shape(v) == size for v in sources)
        return _permute_back(graph, node, sources, order) if same_shape else None  # nothing grows
    source = sources.get(node.inputs[0])  # type: ignore[arg-type]  # who reads nothing has no sources
    if source is None or not is_standard(node, "Split", "Slice"):
        return None
    other_operands = [*node.inputs[1:]]
    if node.op_type == "Slice":
        starts, axes = constant(operand(node, 1)), constant(operand(node, 3))
        if starts is None or (operand(node, 3) is not None and axes is None):
            return None
        axes = np.asarray(order)[np.arange(starts.size) if axes is None else axes]
        other_operands[2:3] = [add_constant(graph, f"{node.name}/axes", axes)]
    return [source, *other_operands]


def _permute_back(
    graph: ir.Graph, node: ir.Node, sources: Mapping[ir.Value, ir.Value], order: Order
) -> list[ir.Value | None] | None:
    back = tuple(int(axis) for axis in np.argsort(order))
    is_last = order == CHANNELS_LAST
    if not all(v in sources or _is_free_to_permute(v, back, computed=is_last) for v in node.inputs):
        return None
    return [sources.get(v) or _back(graph, node, v, back) for v in node.inputs]  # type: ignore[arg-type]  # None is in no mapping


def _is_free_to_permute(value: ir.Value | None, back: Order, *, computed: bool) -> bool:
    """Whether permuting a value needs no data movement at run time.

    computed: or it is computed, and has as many axes.
    """
    shape, data = static_shape(value), constant(value)
    if computed and value is not None and data is None and len(shape or ()) == len(back):
        return value.dtype == ir.DataType.FLOAT
    if value is None or shape is None or data is None:
        return value is None or (len(shape or ()) == len(back) and not _moves(shape or (), back))
    quant = quant_of(value)
    return len(shape) <= len(back) and (quant is None or quant.axis is None)


def _back(graph: ir.Graph, node: ir.Node, value: ir.Value | None, back: Order) -> ir.Value | None:
    shape, data = static_shape(value), constant(value)
    if value is None or shape is None or math.prod(shape) == 1:
        return value
    name = f"{value.name}/turned"
    if data is None:
        sizes = [shape[axis] for axis in back]
        attributes = {"perm": back}
        turned = insert_before(node, "Transpose", [value], attributes, name=name, shape=sizes)
        if (quant := quant_of(value)) is not None:
            turned.meta[META_KEY] = quant
        return turned
    full = data.reshape((1,) * (len(back) - data.ndim) + data.shape)
    return add_constant(graph, name, full.transpose(back), quant_of(value))
