"""Matrix products of two computed values become products of maps (`model/products.py`).

1. A MatMul, or a Gemm without bias, of two computed values is a product for each of its heads. A
   head is a part of the channels of a map, and other batch dimensions are its rows
   (`product_operands.py`): (b, h, n, d) are h maps (1, d, b, n), multiplied by rows. The pixels of
   one operand become the channels of the result. An operand whose pixels are summed is turned, and
   read as weights. Operands that are no maps are sliced and transposed as the model says, with all
   batch dimensions as rows if the other one permits.
2. Linear attention with a division: `linear_attention.py`.
3. Values of an attention: `turned_layers.py`.
4. What only moves joined results, or is computed of them element by element or for each pixel:
   `joined_heads.py`. Convolutions of all heads: `mixed_heads.py`.
"""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical import linear_attention
from opu_fuse.frontend.canonical.head_maps import Factor, channels_of, part_of, product
from opu_fuse.frontend.canonical.joined_heads import (
    Joined,
    concatenated,
    for_each_head,
    in_order,
    size_of,
)
from opu_fuse.frontend.canonical.mixed_heads import mix
from opu_fuse.frontend.canonical.product_operands import Heads, Matrices, located, matrices_of
from opu_fuse.frontend.canonical.turned_layers import cut_layers, turned_heads
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    is_standard,
    move_before,
    quant_of,
    reshape_before,
    rewrite,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.operator_sets import ELEMENT_WISE
from opu_fuse.model.products import is_product
from opu_fuse.quant import META_KEY

MOST_HEADS = 256
"""Heads of a product. Each is a pass of its own."""
MOST_CUT = 32
"""The same of operands that are no parts of a map: the host cuts and transposes each head."""
_MOVES = ("Reshape", "Transpose")


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    graph, joined, layers = model.graph, Joined(), list[ir.Node]()
    divided = linear_attention.find(graph)
    inner = {node for found in divided.values() for node in found.products}
    rounded = any(META_KEY in v.meta for node in graph for v in node.outputs)
    changed = False
    for node in list(graph):
        if node in inner:
            continue
        if node in divided:
            found = divided[node]
            whole = linear_attention.joined_quotients(graph, node, found, joined)
            _arranged(graph, node, whole, found.matrices, swapped=found.swapped)
            changed = True
        elif is_standard(node, "MatMul", "Gemm"):
            changed |= _decompose(graph, node, joined, layers, rounded=rounded)
        elif joined and is_standard(node, "Softmax", *ELEMENT_WISE):
            changed |= for_each_head(graph, node, joined)
        elif joined and is_standard(node, "Conv"):
            changed |= mix(graph, node, joined)
        elif joined and is_standard(node, *_MOVES):
            changed |= in_order(graph, node, joined)
    cut_layers(graph, layers)
    return changed


def multiplies_maps(model: ir.Model) -> bool:
    """Whether a model has a matrix product of two computed values."""
    nodes = standard_nodes(model.graph, "MatMul", "Gemm")
    return any(all(constant(v) is None for v in node.inputs[:2]) for node in nodes)


def _decompose(
    graph: ir.Graph, node: ir.Node, joined: Joined, layers: list[ir.Node], *, rounded: bool
) -> bool:
    """Case 1. layers: those of which turned layers compute a part; grows."""
    matrices, result = matrices_of(node), node.outputs[0]
    if matrices is None or result.dtype is not ir.DataType.FLOAT:
        return False
    values = [v for v in node.inputs if v is not None]
    if rounded and any(quant_of(v) is None for v in (*values, result)):
        return False  # the host computes it unchanged
    matrices, found = located(values, matrices)
    most = MOST_CUT if None in found else MOST_HEADS
    if matrices.head_count > most:
        return False
    turned = None if rounded else turned_heads(graph, node, matrices, found, joined)
    known = [
        _as_written(node, matrices, i)
        if heads is None
        else _taken(node, heads, i, matrices.row_count, joined)
        for i, heads in enumerate(found[:1] if turned else found)
    ]
    if turned and found[1] is not None:
        known.append(turned)
        layers += filter(None, [found[1].map.producer()])
    pairs = list(zip(*known, strict=True))
    swapped = _is_swapped(node, *pairs[0])
    parts = []
    for number, pair in enumerate(pairs):
        first, second = reversed(pair) if swapped else pair
        name = str(node.name) if len(pairs) == 1 else f"{node.name}/{number}"
        parts.append(product(node, matrices.row_count, first, second, name))
    _join(graph, node, parts, matrices, joined, swapped=swapped)
    return True


def _taken(node: ir.Node, heads: Heads, index: int, rows: int, joined: Joined) -> list[Factor]:
    """The heads of an operand as maps, with so many rows if these are sequences."""
    name = f"{node.name}/{'ab'[index]}"
    return [part_of(node, heads, part, rows, joined, name) for part in heads.parts]


def _as_written(node: ir.Node, of: Matrices, index: int) -> list[Factor]:
    """Heads of an operand that is no map, by Slice and Transpose."""
    source = node.inputs[index]
    assert source is not None
    shape, name = size_of(source), f"{node.name}/{'ab'[index]}"
    own, (high, wide) = (1,) * (len(of.batch) + 2 - len(shape)) + shape[:-2], shape[-2:]
    order, rows = (*of.heads, *of.sequences), of.row_count
    if order != tuple(sorted(order)):
        source = reshape_before(node, source, (*own, high, wide), name=f"{name}/batch")
        perm = (*order, len(own), len(own) + 1)
        size = [(*own, high, wide)[axis] for axis in perm]
        source = move_before(
            node, "Transpose", [source], {"perm": perm}, name=f"{name}/heads_first", shape=size
        )
    heads = tuple([own[axis] for axis in of.heads])
    count = math.prod(heads)
    whole = reshape_before(node, source, (1, count * rows, high, wide), name=f"{name}/heads")
    numbers = np.broadcast_to(
        np.arange(count).reshape(heads), tuple([of.batch[axis] for axis in of.heads])
    ).reshape(-1)
    swaps = of.transposed[index] != (index == 0)
    known: dict[int, Factor] = {}
    for number in numbers.tolist():
        if number in known:
            continue
        value, part = whole, (1, rows, high, wide)
        if count > 1:
            value = channels_of(node, whole, number * rows, rows, name=name, number=number)
        perm = (0, 3, 1, 2) if swaps else (0, 2, 1, 3)
        size = tuple(part[axis] for axis in perm)
        own_name = f"{name}/{number}/map"
        value = move_before(node, "Transpose", [value], {"perm": perm}, name=own_name, shape=size)
        known[number] = Factor(value=value, turned=False)
    return [known[number] for number in numbers.tolist()]


def _is_swapped(node: ir.Node, first: Factor, second: Factor) -> bool:
    """Whether the columns are the pixels of the result, and the rows its channels.

    What is turned is read as weights, and so is the result of another product, or a Softmax of it
    where channels attend to channels. A Softmax sums the channels.
    """
    if first.turned != second.turned:
        return first.turned
    small = [_is_of_product(factor.value) for factor in (first, second)]
    if small[0] != small[1]:
        return small[0]
    axis, rank = _softmax_axis(node.outputs[0]), len(size_of(node.outputs[0]))
    return axis is not None and axis % rank == rank - 2


def _is_of_product(value: ir.Value) -> bool:
    """Whether a value is a product of two maps, or the Softmax of it or of functions of it."""
    node, links = value.producer(), ("Softmax",)
    while node is not None and is_standard(node, *links):
        read, links = node.inputs[0], (*ELEMENT_WISE,)
        node = None if read is None else read.producer()
    return node is not None and is_product(node)


def _softmax_axis(value: ir.Value) -> int | None:
    """Axis of the Softmax that reads a value, or a scaled or masked form of it."""
    for node in [use.node for use in value.uses()]:
        if is_standard(node, "Softmax"):
            return node.attributes.get_int("axis", -1)
        same = static_shape(node.outputs[0]) == static_shape(value)
        if is_standard(node, *ELEMENT_WISE) and same:
            return _softmax_axis(node.outputs[0])
    return None


def _join(
    graph: ir.Graph,
    node: ir.Node,
    parts: Sequence[ir.Value],
    of: Matrices,
    joined: Joined,
    *,
    swapped: bool,
) -> None:
    """Let a node give the results of its heads the shape that they had."""
    _arranged(graph, node, concatenated(node, parts, joined), of, swapped=swapped)


def _arranged(
    graph: ir.Graph, node: ir.Node, whole: ir.Value, of: Matrices, *, swapped: bool
) -> None:
    """Let a node give joined results the shape that they had."""
    batch = (*of.heads, *of.sequences)
    sizes, at = [of.batch[axis] for axis in batch], [batch.index(axis) for axis in sorted(batch)]
    channels, pixels = (of.rows, of.columns) if swapped else (of.columns, of.rows)
    count, last = len(of.heads), len(batch) + 1
    shape = (*sizes[:count], channels, *sizes[count:], pixels)
    perm = [axis + (axis >= count) for axis in at]
    perm += [count, last] if swapped else [last, count]
    if perm == sorted(perm):
        size = add_constant(graph, f"{node.name}/shape", np.array(shape))
        rewrite(node, "Reshape", [whole, size])
        return
    value = reshape_before(node, whole, shape, name=f"{node.name}/heads")
    rewrite(node, "Transpose", [value], {"perm": perm})
