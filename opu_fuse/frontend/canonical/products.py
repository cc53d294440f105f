"""Matrix products of two computed values become products of maps (`model/products.py`).

1. A MatMul, or a Gemm without bias, of two computed values is a product for each of its heads. A
   head is a part of the channels of a map, and other batch dimensions are its rows
   (`product_operands.py`): (b, h, n, d) are h maps (1, d, b, n), multiplied by rows. The pixels of
   one operand become the channels of the result. An operand whose pixels are summed is turned, and
   read as weights. Operands that are no maps are sliced and transposed as the model says, with all
   batch dimensions as rows if the other one permits.
2. What only moves joined results, or is computed of them element by element or for each pixel:
   `joined_heads.py`. Convolutions of all heads: `mixed_heads.py`.
"""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from msgspec import Struct

from opu_fuse.frontend.canonical.joined_heads import (
    Joined,
    concatenated,
    for_each_head,
    in_order,
    size_of,
)
from opu_fuse.frontend.canonical.mixed_heads import mix
from opu_fuse.frontend.canonical.product_operands import Heads, Matrices, located, matrices_of
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    is_standard,
    move_before,
    quant_of,
    reshape_before,
    rewrite,
    standard_nodes,
    static_shape,
    values_of,
)
from opu_fuse.model.operator_sets import ELEMENT_WISE
from opu_fuse.model.products import PRODUCT, PRODUCT_BY_ROWS, TURN, is_product
from opu_fuse.quant import META_KEY

MOST_HEADS = 256
"""Heads of a product. Each is a pass of its own."""
MOST_CUT = 32
"""The same of operands that are no parts of a map: the host cuts and transposes each head."""
_MOVES = ("Reshape", "Transpose")


class _Factor(Struct, frozen=True, kw_only=True):
    """A head of an operand: map (1, k, h, w) whose channels are summed. turned: its source has them
    as pixels.
    """

    value: ir.Value
    turned: bool

    @property
    def pixels(self) -> tuple[int, int]:
        return self.value.shape[2], self.value.shape[3]  # type: ignore[index,return-value]  # made here


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    graph, joined = model.graph, Joined()
    rounded = any(META_KEY in v.meta for node in graph for v in node.outputs)
    changed = False
    for node in list(graph):
        if is_standard(node, "MatMul", "Gemm"):
            changed |= _decompose(graph, node, joined, rounded=rounded)
        elif joined and is_standard(node, "Softmax", *ELEMENT_WISE):
            changed |= for_each_head(graph, node, joined)
        elif joined and is_standard(node, "Conv"):
            changed |= mix(graph, node, joined)
        elif joined and is_standard(node, *_MOVES):
            changed |= in_order(graph, node, joined)
    return changed


def multiplies_maps(model: ir.Model) -> bool:
    """Whether a model has a matrix product of two computed values."""
    nodes = standard_nodes(model.graph, "MatMul", "Gemm")
    return any(all(constant(v) is None for v in node.inputs[:2]) for node in nodes)


def _decompose(graph: ir.Graph, node: ir.Node, joined: Joined, *, rounded: bool) -> bool:
    """Case 1."""
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
    known = [
        _as_written(node, matrices, i)
        if heads is None
        else _taken(node, heads, i, matrices.row_count, joined)
        for i, heads in enumerate(found)
    ]
    pairs = list(zip(*known, strict=True))
    swapped = _is_swapped(node, *pairs[0])
    parts = []
    for number, pair in enumerate(pairs):
        first, second = reversed(pair) if swapped else pair
        name = str(node.name) if len(pairs) == 1 else f"{node.name}/{number}"
        parts.append(_product(node, matrices.row_count, first, second, name))
    _join(graph, node, parts, matrices, joined, swapped=swapped)
    return True


def _taken(node: ir.Node, heads: Heads, index: int, rows: int, joined: Joined) -> list[_Factor]:
    """The heads of an operand as maps, with so many rows if these are sequences."""
    name = f"{node.name}/{'ab'[index]}"
    return [_part(node, heads, part, rows, joined, name) for part in heads.parts]


def _part(
    node: ir.Node,
    heads: Heads,
    part: tuple[int, int, bool],
    rows: int,
    joined: Joined,
    name: str,
) -> _Factor:
    """Channels of a map, functions of them, turned if need be."""
    source, (first, count, turned) = heads.map, part
    shape = static_shape(source)
    assert shape is not None
    channels, begun = shape[1], 0
    for head in joined.get(source, ()):
        size = size_of(head)[1]
        if (begun, size) == (first, count):
            source, channels, first = head, size, 0
            break
        begun += size
    size = size_of(source)[2:]
    value = reshape_before(node, source, (1, channels, *(1,) * (2 - len(size)), *size), name=name)
    size = size_of(value)[2:]
    if count != channels:
        value = _channels(node, value, first, count, name=name, number=first)
    if rows > 1:  # after the Slice, which cuts a map as it is stored
        size = rows, math.prod(size) // rows
        value = reshape_before(node, value, (1, count, *size), name=f"{name}/{first}/rows")
    for number, function in enumerate(heads.functions):
        inputs = [v if constant(v) is not None else value for v in function.inputs]
        attributes, quant = values_of(function), quant_of(function.outputs[0])
        own, shape = f"{name}/{first}/function{number}", size_of(value)
        value = insert_before(
            node, function.op_type, inputs, attributes, name=own, shape=shape, quant=quant
        )
    if turned:
        value = reshape_before(
            node, value, (1, count, rows, math.prod(size) // rows), name=f"{name}/{first}/row"
        )
        shape = (1, math.prod(size) // rows, rows, count)
        perm, name = {"perm": TURN}, f"{name}/{first}/turned"
        value = move_before(node, "Transpose", [value], perm, name=name, shape=shape)
    return _Factor(value=value, turned=turned)


def _channels(
    node: ir.Node, value: ir.Value, first: int, count: int, *, name: str, number: int
) -> ir.Value:
    """`count` channels of a map from `first` on. number: of the part, for its name."""
    assert node.graph is not None
    ends = (np.array([first]), np.array([first + count]), np.array([1]))
    numbers = [add_constant(node.graph, f"{name}/slice", end) for end in ends]
    shape = (1, count, *size_of(value)[2:])
    return move_before(node, "Slice", [value, *numbers], name=f"{name}/{number}", shape=shape)


def _as_written(node: ir.Node, of: Matrices, index: int) -> list[_Factor]:
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
    known: dict[int, _Factor] = {}
    for number in numbers.tolist():
        if number in known:
            continue
        value, part = whole, (1, rows, high, wide)
        if count > 1:
            value = _channels(node, whole, number * rows, rows, name=name, number=number)
        perm = (0, 3, 1, 2) if swaps else (0, 2, 1, 3)
        size = tuple(part[axis] for axis in perm)
        own_name = f"{name}/{number}/map"
        value = move_before(node, "Transpose", [value], {"perm": perm}, name=own_name, shape=size)
        known[number] = _Factor(value=value, turned=False)
    return [known[number] for number in numbers.tolist()]


def _is_swapped(node: ir.Node, first: _Factor, second: _Factor) -> bool:
    """Whether the columns are the pixels of the result, and the rows its channels.

    What is turned is read as weights, and so is the result of another product. A Softmax sums the
    channels.
    """
    if first.turned != second.turned:
        return first.turned
    producers = [factor.value.producer() for factor in (first, second)]
    small = [node is not None and is_product(node) for node in producers]
    if small[0] != small[1]:
        return small[0]
    axis, rank = _softmax_axis(node.outputs[0]), len(size_of(node.outputs[0]))
    return axis is not None and axis % rank == rank - 2


def _softmax_axis(value: ir.Value) -> int | None:
    """Axis of the Softmax that reads a value, or a scaled or masked form of it."""
    for node in [use.node for use in value.uses()]:
        if is_standard(node, "Softmax"):
            return node.attributes.get_int("axis", -1)
        same = static_shape(node.outputs[0]) == static_shape(value)
        if is_standard(node, *ELEMENT_WISE) and same:
            return _softmax_axis(node.outputs[0])
    return None


def _product(node: ir.Node, rows: int, maps: _Factor, second: _Factor, name: str) -> ir.Value:
    """The product of two maps of one head, by rows if it has several."""
    size, weights, equation = size_of(second.value), second.value, PRODUCT_BY_ROWS
    columns = size[3]
    if rows == 1:
        columns, equation = math.prod(size[2:]), PRODUCT
        row = (1, size[1], 1, columns)
        weights = reshape_before(node, weights, row, name=f"{name}/weights")
    return insert_before(
        node,
        "Einsum",
        [maps.value, weights],
        {"equation": equation},
        name=f"{name}/map",
        shape=(1, columns, *maps.pixels),
        quant=quant_of(node.outputs[0]),
    )


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
    whole = concatenated(node, parts, joined)
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
