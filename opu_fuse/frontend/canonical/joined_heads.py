"""Operators after products of several heads.

`products.py` joins the results of heads by channels, and gives them the order that the model asks
for. Whatever is computed of them element by element, or a Softmax of each pixel, is computed for
each head before; so are sums with a computed mask that all heads share. A chain that only moves
joined heads, and ends in their order, disappears.
"""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.element_order import Source, sources
from opu_fuse.frontend.canonical.token_images import CHANNELS_FIRST
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    is_standard,
    move_before,
    quant_of,
    reshape_before,
    rewrite,
    static_shape,
    values_of,
)

Joined = dict[ir.Value, tuple[ir.Value, ...]]
"""Map of all heads -> the maps of the heads, joined by channels."""


def for_each_head(graph: ir.Graph, node: ir.Node, joined: Joined) -> bool:
    """Let a Softmax or elementwise operator read each head before they are joined. Returns whether
    it could.
    """
    computed = [v for v in node.inputs if v is not None and constant(v) is None]
    found = ((v, s) for v in computed for s in sources(v) if s.value in joined)
    scores, source = next(found, (None, None))
    result = node.outputs[0]
    if source is None or static_shape(result) != source.elements.shape:
        return False
    if any(link.op_type == "Split" for link in source.links) or not source.links:
        return False
    softmax = is_standard(node, "Softmax")
    parts = joined[source.value]
    if source.elements.size != sum(math.prod(size_of(p)) for p in parts):
        return False
    if softmax and not _sums_heads(node, source, parts):
        return False
    masks = [v for v in computed if v is not scores]
    is_masked = len(masks) == 1 and is_standard(node, "Add")
    mask = _for_all_heads(node, masks[0], source, parts) if is_masked else None
    if len(computed) > 1 and mask is None:
        return False
    others = [mask if v in masks else _in_place(graph, v, source) for v in node.inputs]
    attributes = values_of(node) | ({"axis": 1} if softmax else {})
    parts_made, first = [], 0
    for number, part in enumerate(parts):
        shape = size_of(part)
        span = slice(first, first + shape[1])
        inputs = [
            part if v is scores else _sliced(graph, other, span, f"{node.name}/{number}")
            for v, other in zip(node.inputs, others, strict=True)
        ]
        name = f"{node.name}/{number}"
        parts_made.append(
            insert_before(
                node,
                node.op_type,
                inputs,
                attributes,
                name=name,
                shape=shape,
                quant=quant_of(result),
            )
        )
        first += shape[1]
    arrange(node, concatenated(node, parts_made, joined), source.links)
    return True


def arrange(node: ir.Node, value: ir.Value, links: Sequence[ir.Node]) -> None:
    """Let a node move a map as these links moved its operand."""
    *before, last = links
    for number, link in enumerate(before):
        value = insert_before(
            node,
            link.op_type,
            [value, *link.inputs[1:]],
            values_of(link),
            name=f"{node.name}/link{number}",
            shape=size_of(link.outputs[0]),
            quant=quant_of(node.outputs[0]),
        )
    rewrite(node, last.op_type, [value, *last.inputs[1:]], values_of(last))


def _sums_heads(node: ir.Node, source: Source, parts: Sequence[ir.Value]) -> bool:
    """Whether a Softmax sums the channels of each head."""
    rank = source.elements.ndim
    rows = np.moveaxis(source.elements, node.attributes.get_int("axis", -1) % rank, -1)
    shape = size_of(parts[0])
    count, pixels = shape[1], math.prod(shape[2:])
    if rows.shape[-1] != count or any(static_shape(part) != shape for part in parts):
        return False
    channels = rows.reshape(-1, count) - np.arange(count) * pixels
    first = channels[:, :1]
    return bool(np.all(channels == first) and np.all(first // pixels % count == 0))


def _for_all_heads(
    node: ir.Node, other: ir.Value, source: Source, parts: Sequence[ir.Value]
) -> ir.Value | None:
    """A computed operand, such as a mask, as the second operand of every head: (1, c, 1, 1) if all
    pixels are alike, else a map of all. None if heads differ, or pixels are in another order.
    """
    size = static_shape(other)
    if size is None or any(static_shape(part) != size_of(parts[0]) for part in parts):
        return None
    numbers = np.arange(math.prod(size)).reshape(size)
    heads = np.split(_in_order_of(source, numbers), len(parts), axis=1)
    one = heads[0]
    if any(not np.array_equal(one, head) for head in heads):
        return None
    if np.all(one == one[:, :, :1, :1]):
        one = one[:, :, :1, :1]
    pixels = one.transpose(0, 2, 3, 1)
    if not np.array_equal(pixels.reshape(-1), numbers.reshape(-1)):
        return None
    name = f"{node.name}/mask"
    if one.shape[2:] == (1, 1):
        return reshape_before(node, other, one.shape, name=name)
    rows = reshape_before(node, other, pixels.shape, name=f"{name}/rows")
    perm = {"perm": CHANNELS_FIRST}
    return move_before(node, "Transpose", [rows], perm, name=name, shape=one.shape)


def _in_order_of(source: Source, data: np.ndarray) -> np.ndarray:
    """Values of an operand, broadcast, in the order of the joined map."""
    shape = size_of(source.value)
    whole = np.empty(math.prod(shape), data.dtype)
    whole[source.elements.reshape(-1)] = np.broadcast_to(data, source.elements.shape).reshape(-1)
    return whole.reshape(shape)


def _in_place(graph: ir.Graph, value: ir.Value | None, source: Source) -> ir.Value | None:
    """A constant operand in the order of the joined map; scalars and computed ones as they are."""
    data = constant(value)
    if data is None or value is None or data.size == 1:
        return value
    return add_constant(graph, f"{value.name}/maps", _in_order_of(source, data), quant_of(value))


def _sliced(graph: ir.Graph, value: ir.Value | None, span: slice, name: str) -> ir.Value | None:
    """The channels of a constant for one head, one number if they are alike; scalars and computed
    operands as they are.
    """
    data = constant(value)
    if data is None or value is None or data.size == 1:
        return value
    part = np.ascontiguousarray(data[:, span])
    if np.all(part == part.flat[0]) and quant_of(value) is None:
        part = part.flat[0]
    return add_constant(graph, f"{name}/constant", part, quant_of(value))


def in_order(graph: ir.Graph, node: ir.Node, joined: Joined) -> bool:
    """Remove a chain that moves joined heads and ends in their order. Returns whether it did."""
    source = next((s for s in sources(node.outputs[0]) if s.value in joined), None)
    if source is None or len(source.links) < 2:
        return False
    if source.elements.size != math.prod(size_of(source.value)):
        return False  # some of the heads only
    if not np.array_equal(source.elements.reshape(-1), np.arange(source.elements.size)):
        return False
    shape = np.array(source.elements.shape, np.int64)
    rewrite(node, "Reshape", [source.value, add_constant(graph, f"{node.name}/shape", shape)])
    return True


def size_of(value: ir.Value | None) -> tuple[int, ...]:
    """The shape of a value that is known to have one."""
    shape = static_shape(value)
    assert shape is not None
    return shape


def concatenated(node: ir.Node, parts: Sequence[ir.Value], joined: Joined) -> ir.Value:
    """The maps of heads joined by channels."""
    whole = parts[0]
    if len(parts) > 1:
        shapes = [size_of(part) for part in parts]
        size = (1, sum(shape[1] for shape in shapes), *shapes[0][2:])
        name, quant = f"{node.name}/joined", quant_of(node.outputs[0])
        whole = insert_before(
            node, "Concat", list(parts), {"axis": 1}, name=name, shape=size, quant=quant
        )
    joined[whole] = tuple(parts)
    return whole
