"""Fold an explicit Pad of rows and columns into its only reader.

1. Zeros before a Conv: into its pads.
2. Zeros before an AveragePool that counts padding (or has none): into its pads, counted.
3. Before a MaxPool: -inf always; zeros if no value is negative (after Relu, Clip with min >= 0);
   mode `edge` without dilations, since each window that reaches the padding contains the edge.
4. A Pad with negative amounts of rows or columns becomes a Slice, followed by a Pad with the
   positive amounts.
5. A Pad that remains gets eight constant pads and no axes.

Pooling absorbs padding only below its kernel size, as ONNX Runtime requires.
"""

import math

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    bypass,
    constant,
    is_standard,
    move_before,
    operand,
    rewrite,
    sole_reader,
    standard_nodes,
    static_shape,
)


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_pad(model.graph, node) for node in standard_nodes(model.graph, "Pad")]
    return any(changed)


def _pad(graph: ir.Graph, node: ir.Node) -> bool:
    amounts = _amounts(node)
    if amounts is None:
        return False
    spatial = not (amounts[0] or amounts[1] or amounts[4] or amounts[5])
    if spatial and _cut(graph, node, np.asarray(amounts)):  # Case 4
        return True
    reader = sole_reader(node.outputs[0])
    value = _value(node, reader)
    sides = np.asarray([amounts[2], amounts[3], amounts[6], amounts[7]])
    usable = spatial and min(sides) >= 0
    if usable and reader is not None and value is not None and _takes(node, reader, sides, value):
        new_pads = sides + reader.attributes.get_ints("pads", (0, 0, 0, 0))
        if bypass(node):
            reader.attributes["pads"] = ir.AttrInt64s("pads", [int(p) for p in new_pads])
            if reader.op_type == "AveragePool":
                reader.attributes["count_include_pad"] = ir.AttrInt64("count_include_pad", 1)
            return True
    if operand(node, 3) is None:
        return False
    pads = add_constant(graph, f"{node.name}/pads", np.asarray(amounts, np.int64))  # Case 5
    mode = node.attributes.get_string("mode", "constant")
    rewrite(node, "Pad", [node.inputs[0], pads, *node.inputs[2:3]], {"mode": mode})
    return True


def _amounts(node: ir.Node) -> list[int] | None:
    """Pads of all four axes, begins before ends; None if they are unknown."""
    shape, pads = static_shape(node.inputs[0]), constant(operand(node, 1))
    if shape is None or len(shape) != 4 or pads is None:
        return None
    axes = operand(node, 3)
    order = range(4) if axes is None else constant(axes)
    if order is None:
        return None
    amounts = [0] * 8
    count = len(order)
    for position, axis in enumerate(order):
        amounts[int(axis) % 4] = int(pads[position])
        amounts[4 + int(axis) % 4] = int(pads[count + position])
    return amounts


def _cut(graph: ir.Graph, node: ir.Node, amounts: np.ndarray) -> bool:
    x, mode = node.inputs[0], node.attributes.get_string("mode", "constant")
    shape = static_shape(x)
    if x is None or shape is None or amounts.min() >= 0 or mode != "constant":
        return False
    starts, ends = np.maximum(0, -amounts).reshape(2, 4)[:, 2:]
    size = np.asarray(shape[2:])
    if np.any(starts + ends >= size):
        return False
    slice_operands = {"starts": starts, "ends": size - ends, "axes": np.array([2, 3])}
    operands = [add_constant(graph, f"{node.name}/{n}", v) for n, v in slice_operands.items()]
    positive = np.maximum(0, amounts)
    if not positive.any():
        rewrite(node, "Slice", [x, *operands])
        return True
    cropped_shape = (*shape[:2], *(size - starts - ends).tolist())
    cropped = move_before(
        node, "Slice", [x, *operands], name=f"{node.name}/cut", shape=cropped_shape
    )
    pads = add_constant(graph, f"{node.name}/pads", positive)
    rewrite(node, "Pad", [cropped, pads, *node.inputs[2:3]], {"mode": mode})
    return True


def _value(node: ir.Node, reader: ir.Node | None) -> float | None:
    """The fill value as its reader sees it; None if it is no single number."""
    mode = node.attributes.get_string("mode", "constant")
    if mode == "edge" and reader is not None and is_standard(reader, "MaxPool"):
        return None if set(reader.attributes.get_ints("dilations", ())) - {1} else -math.inf
    if mode != "constant":
        return None
    value = operand(node, 2)
    if value is None:
        return 0.0
    data = constant(value)
    return None if data is None or data.size != 1 else float(data.reshape(()))


def _takes(node: ir.Node, reader: ir.Node, sides: np.ndarray, value: float) -> bool:
    if reader.inputs[0] is not node.outputs[0] or _automatic(reader):
        return False
    old = np.asarray(reader.attributes.get_ints("pads", (0, 0, 0, 0)))
    if is_standard(reader, "Conv"):
        return value == 0.0 and len(old) == 4 and constant(operand(reader, 1)) is not None
    if not is_standard(reader, "MaxPool", "AveragePool"):
        return False
    kernel = np.asarray(reader.attributes.get_ints("kernel_shape"))
    if reader.attributes.get_int("ceil_mode", 0) or np.any(sides + old >= np.tile(kernel, 2)):
        return False
    if reader.op_type == "AveragePool":
        counts = bool(reader.attributes.get_int("count_include_pad", 0))
        return value == 0.0 and (counts or not np.any(old))
    lowest = float(np.finfo(np.float32).min)
    return value <= lowest or (value == 0.0 and _never_negative(node.inputs[0]))


def _automatic(node: ir.Node) -> bool:
    return node.attributes.get_string("auto_pad", "NOTSET") not in {"NOTSET", ""}


def _never_negative(value: ir.Value | None) -> bool:
    producer = None if value is None else value.producer()
    if producer is None:
        return False
    if is_standard(producer, "Clip"):
        low = constant(operand(producer, 1))
        return low is not None and bool(np.all(low >= 0.0))
    return is_standard(producer, "Relu", "Sigmoid", "Softmax")
