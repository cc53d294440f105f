"""Sink Transposes through layout-agnostic operators until inverse ones meet and cancel.

Channels-last frameworks wrap channels-first operators in two Transposes. These separate operators
that a machine could fuse.

1. Two consecutive Transposes become one with the composed permutation. A Reshape of a tensor with
   one axis of size > 1 that only moves this axis counts as a Transpose.
2. Elementwise operators, Concat, Split, Slice and its form as a MaxPool (`slices`), and a Pad of a
   channels-last map move before the Transposes of their operands if all have the same permutation.
   Their other operands get the inverse permutation if that costs nothing: constants, and values
   whose memory order it does not change. If an operand of an elementwise operator or Concat is
   channels-last, so are the others: they get a Transpose to channels-first.
   The Transposes around a normalisation of channels belong to it (`norms`) and stay.
   A Reshape of the pixels of such a channels-last map, (1, h, w, c) to (1, y, x, c), moves, too.
3. A Pad whose only reader is a Transpose, not to channels-last, moves after the Transpose, where
   the next operator (a Conv or a pool) may absorb it.

A transposed value with other readers is still computed for them. Quantisation does not change.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.norms import is_of_norm
from opu_fuse.frontend.canonical.token_images import CHANNELS_FIRST, CHANNELS_LAST
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    detach,
    drop_unread,
    insert_after,
    insert_before,
    is_standard,
    merge_sources,
    move_before,
    operand,
    quant_of,
    reshape_before,
    rewrite,
    sole_reader,
    static_shape,
)
from opu_fuse.model.operator_sets import ELEMENT_WISE
from opu_fuse.model.products import TURN

_DEFAULT_AXIS = {"Concat": None, "Split": 0}
"""Operators with an axis attribute -> its default."""
Permutation = tuple[int, ...]
"""`perm` of a Transpose."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = False
    for node in model.graph:
        if is_standard(node, "Transpose"):
            transpose: ir.Node | None = node
            while transpose is not None:  # past a chain of Pads, one at a time
                changed |= _merge_transposes(transpose)  # Case 1
                transpose = _swap_with_pad(model.graph, transpose)  # Case 3
                changed |= transpose is not None
        elif is_standard(node, "Reshape"):
            changed |= _merge_reshape(node)  # Case 1
            changed |= _move_pixels(node)  # Case 2
        else:
            changed |= _move_before_transposes(model.graph, node)  # Case 2
    return changed


def _permutation_if_data_moves(node: ir.Node | None) -> Permutation | None:
    """The permutation of a Transpose that changes the order of axes of size > 1, else None."""
    order = _permutation(node)
    if node is None or order is None:
        return None
    shape = static_shape(node.inputs[0])
    return order if shape is not None and _changes_memory_order(shape, order) else None


def _permutation(node: ir.Node | None) -> Permutation | None:
    """The permutation of a Transpose that does not requantise; None for other nodes."""
    if node is None or not is_standard(node, "Transpose"):
        return None
    x, shape = node.inputs[0], static_shape(node.inputs[0])
    if x is None or shape is None or quant_of(node.outputs[0]) not in {None, quant_of(x)}:
        return None
    return tuple(node.attributes.get_ints("perm", range(len(shape))[::-1]))


def _changes_memory_order(shape: Sequence[int], order: Permutation) -> bool:
    """Whether the axes of size > 1 change their order."""
    moved = [axis for axis in order if shape[axis] != 1]
    return moved != sorted(moved)


def _merge_transposes(node: ir.Node) -> bool:
    """Compose a Transpose with the one before it (case 1)."""
    if is_of_norm(node):
        return False
    first_transpose = _transpose_before(node.inputs[0]) or _single_axis_move(node.inputs[0])
    second_order = _permutation(node)
    if first_transpose is None or second_order is None:
        return False
    source, order = first_transpose
    intermediate = node.inputs[0]
    rewrite(node, "Transpose", [source], {"perm": [order[axis] for axis in second_order]})
    drop_unread(intermediate)
    return True


def _merge_reshape(node: ir.Node) -> bool:
    """Let a Reshape that moves one axis read the operand of such a node before it (case 1)."""
    moved_before, intermediate = _single_axis_move(node.inputs[0]), node.inputs[0]
    if moved_before is None or _single_axis_move(node.outputs[0]) is None:
        return False
    node.replace_input_with(0, moved_before[0])
    drop_unread(intermediate)
    return True


def _move_pixels(node: ir.Node) -> bool:
    """Let a Reshape of a channels-last map's pixels reshape the channels-first one (case 2)."""
    x, size = node.inputs[0], static_shape(node.outputs[0])
    before, shape = _transpose_before(x), static_shape(x)
    if x is None or before is None or before[1] != CHANNELS_LAST or shape is None or size is None:
        return False
    if len(size) != len(shape) or (shape[0], shape[3]) != (size[0], size[3]) or size == shape:
        return False
    if quant_of(node.outputs[0]) not in {None, quant_of(x)}:
        return False
    first = [size[axis] for axis in CHANNELS_FIRST]
    value = reshape_before(node, before[0], first, name=f"{node.name}/first")
    rewrite(node, "Transpose", [value], {"perm": CHANNELS_LAST})
    drop_unread(x)
    return True


def _transpose_before(value: ir.Value | None) -> tuple[ir.Value, Permutation] | None:
    """The operand and permutation of the Transpose that computes a value; None for others."""
    node = None if value is None else value.producer()
    order = None if node is None or is_of_norm(node) else _permutation_if_data_moves(node)
    return None if node is None or order is None else (node.inputs[0], order)  # type: ignore[return-value]  # the operand was checked


def _swap_with_pad(graph: ir.Graph, node: ir.Node) -> ir.Node | None:
    """Swap a Pad and the Transpose that reads it (case 3). Returns the new Transpose, or None."""
    x, order = node.inputs[0], _permutation(node)
    pad = None if x is None else x.producer()
    if x is None or order is None or pad is None or sole_reader(x) is not node:
        return None
    if is_of_norm(node) or order == CHANNELS_LAST:
        return None
    amounts = constant(operand(pad, 1))
    # A Pad with axes (operand 3, opset 18) is not handled.
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
    new_amounts = add_constant(graph, f"{pad.name}/pads", pads)
    rewrite(node, "Pad", [transposed, new_amounts, *fill_operands], {"mode": mode})
    detach(pad)
    return transposed.producer()


def _move_before_transposes(graph: ir.Graph, node: ir.Node) -> bool:
    """Move an operator before the Transposes of its operands (case 2)."""
    known = all(v.dtype == ir.DataType.FLOAT and static_shape(v) for v in node.outputs)
    sources = _operands_via(node, _transpose_before)
    if not sources and is_standard(node, *ELEMENT_WISE):
        sources = _operands_via(node, _single_axis_move)
        new_transposes = {
            v for v in node.inputs if v not in sources and constant(v) is None and _is_not_scalar(v)
        }
        # Each of these operands gets a Transpose. If they are not fewer than the operands that lose
        # one, the next run finds the roles exchanged and moves the operator back, for ever.
        if len(new_transposes) >= len(sources):
            return False
    orders = {order for _, order in sources.values()}
    # With channels first among them, the next run would move the operator back.
    if CHANNELS_LAST in orders and CHANNELS_FIRST not in orders:
        sources = {v: source for v, source in sources.items() if source[1] == CHANNELS_LAST}
        orders = {CHANNELS_LAST}
    if not known or len(orders) != 1:
        return False
    (order,) = orders
    # Machines join channels, not pixels.
    if order == TURN and is_standard(node, "Concat") and node.attributes.get_int("axis") == 1:
        return False
    untransposed = {v: source for v, (source, _) in sources.items()}
    inputs = _operands_before_transposes(graph, node, untransposed, order)
    if inputs is None:
        return False
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        node.replace_input_with(index, value)
    if is_standard(node, "MaxPool"):
        node.attributes["strides"] = ir.AttrInt64s("strides", _steps_before(node, order))
    if node.op_type in _DEFAULT_AXIS:
        axis = node.attributes.get_int("axis", _DEFAULT_AXIS[node.op_type])
        assert axis is not None
        node.attributes["axis"] = ir.AttrInt64("axis", order[axis])
    for result in node.outputs:
        shape = static_shape(result)
        assert shape is not None
        shape_before = [shape[axis] for axis in np.argsort(order)]
        name, perm = f"{node.name}/turned", {"perm": order}
        insert_after(node, result, "Transpose", (), perm, name=name, shape=shape_before)
    return True


def _is_not_scalar(value: ir.Value | None) -> bool:
    """Whether a value of known shape has several elements."""
    return math.prod(static_shape(value) or ()) != 1


def _operands_via(
    node: ir.Node, how: Callable[[ir.Value | None], tuple[ir.Value, Permutation] | None]
) -> dict[ir.Value, tuple[ir.Value, Permutation]]:
    """Operand -> (value before its Transpose, permutation), where `how` knows them."""
    return {v: source for v in node.inputs if v is not None and (source := how(v)) is not None}


def _single_axis_move(value: ir.Value | None) -> tuple[ir.Value, Permutation] | None:
    """Operand and permutation of a node that moves the only axis of size > 1, else None.

    For example [1, c, 1, 1] -> [1, 1, 1, c]. The node is a Transpose, or the Reshape by which the
    pass `reshapes` replaced it.
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
    if len(wide[0]) != 1 or len(wide[1]) != 1 or wide[0] == wide[1]:
        return None
    ((old,), (new,)) = wide
    order = [axis for axis in range(len(before)) if axis != old]
    return x, (*order[:new], old, *order[new:])


def _operands_before_transposes(
    graph: ir.Graph, node: ir.Node, sources: Mapping[ir.Value, ir.Value], order: Permutation
) -> list[ir.Value | None] | None:
    """The operands of an operator that moves before the Transposes; None if it cannot."""
    if is_standard(node, "Concat", *ELEMENT_WISE):
        size = static_shape(node.outputs[0])
        same_shape = node.op_type == "Concat" or all(static_shape(v) == size for v in sources)
        # With a broadcast the Transpose would run on the larger result.
        return _operands_permuted_back(graph, node, sources, order) if same_shape else None
    source = sources.get(node.inputs[0])  # type: ignore[arg-type]  # None is in no mapping
    if source is not None and is_standard(node, "MaxPool"):
        return [source] if _steps_before(node, order) else None
    if source is not None and is_standard(node, "Pad"):
        amounts = constant(operand(node, 1))
        if order != CHANNELS_LAST or amounts is None or operand(node, 3) is not None:
            return None
        pads = amounts.reshape(2, -1)[:, np.argsort(order)].reshape(-1)
        return [source, add_constant(graph, f"{node.name}/pads", pads), *node.inputs[2:3]]
    if source is None or not is_standard(node, "Split", "Slice"):
        return None
    other_operands = [*node.inputs[1:]]
    if node.op_type == "Slice":
        starts, axes = constant(operand(node, 1)), constant(operand(node, 3))
        if starts is None or (operand(node, 3) is not None and axes is None):
            return None
        axes = np.asarray(order)[np.arange(starts.size) if axes is None else axes]
        # Operand 3 (axes) is replaced, or appended where it is absent.
        other_operands[2:3] = [add_constant(graph, f"{node.name}/axes", axes)]
    return [source, *other_operands]


def _steps_before(node: ir.Node, order: Permutation) -> list[int]:
    """Strides of a MaxPool that selects every n-th pixel, for its operand before the Transpose;
    empty for others, and if it would select channels there.
    """
    ints = node.attributes.get_ints
    if {*ints("kernel_shape", ())} != {1} or any(ints("pads", ())) or len(order) != 4:
        return []
    steps = [1] * 4
    for axis, step in zip(order[2:], ints("strides", (1, 1)), strict=True):
        steps[axis] = step
    return steps[2:] if steps[:2] == [1, 1] else []


def _operands_permuted_back(
    graph: ir.Graph, node: ir.Node, sources: Mapping[ir.Value, ir.Value], order: Permutation
) -> list[ir.Value | None] | None:
    """The operands with the inverse permutation; None if one of them would move data."""
    back = tuple(int(axis) for axis in np.argsort(order))
    is_last = order == CHANNELS_LAST
    if not all(v in sources or _is_free_to_permute(v, back, computed=is_last) for v in node.inputs):
        return None
    # None is in no mapping.
    return [sources.get(v) or _inverse_permuted(graph, node, v, back) for v in node.inputs]  # type: ignore[arg-type]


def _is_free_to_permute(value: ir.Value | None, back: Permutation, *, computed: bool) -> bool:
    """Whether permuting a value needs no data movement at run time.

    computed: also accept a computed float value with as many axes, which needs a Transpose.
    """
    shape, data = static_shape(value), constant(value)
    if computed and value is not None and data is None and len(shape or ()) == len(back):
        return value.dtype == ir.DataType.FLOAT
    if value is None or shape is None or data is None:
        return value is None or (
            len(shape or ()) == len(back) and not _changes_memory_order(shape or (), back)
        )
    quant = quant_of(value)
    return len(shape) <= len(back) and (quant is None or quant.axis is None)


def _inverse_permuted(
    graph: ir.Graph, node: ir.Node, value: ir.Value | None, back: Permutation
) -> ir.Value | None:
    """A value in the axes before the Transposes."""
    shape, data = static_shape(value), constant(value)
    if value is None or shape is None or math.prod(shape) == 1:
        return value
    name = f"{value.name}/turned"
    if data is None:
        sizes = [shape[axis] for axis in back]
        attributes = {"perm": back}
        return move_before(node, "Transpose", [value], attributes, name=name, shape=sizes)
    # numpy broadcasting: missing axes are the leading ones.
    aligned = data.reshape((1,) * (len(back) - data.ndim) + data.shape)
    return add_constant(graph, name, aligned.transpose(back), quant_of(value))
