"""Matrix products of two computed values become products of maps (`model/products.py`).

1. A MatMul, or a Gemm without bias, of two computed values is a product for each of its heads (all
   batch dimensions together). A head is a part of the channels of a map, however Reshape,
   Transpose, Split, Slice and Gather have put it in place: these are evaluated on element indices.
   The pixels of one operand become the channels of the result. An operand whose pixels are summed
   is turned, and read as weights. Other operands are sliced and transposed as the model says.
2. What only moves joined results, or is computed of them element by element or for each pixel:
   `joined_heads.py`.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir
from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.frontend.canonical.element_order import Source, sources
from opu_fuse.frontend.canonical.joined_heads import (
    Joined,
    concatenated,
    for_each_head,
    in_order,
    size_of,
)
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
from opu_fuse.model.operator_sets import ELEMENT_WISE
from opu_fuse.model.products import PRODUCT, TURN, is_product
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


class _Heads(Struct, frozen=True, kw_only=True):
    """Heads of an operand in a map: of each the first channel, channels, and whether its pixels are
    summed. functions: of single elements, which the operand is of the map.
    """

    map: ir.Value
    parts: tuple[tuple[int, int, bool], ...]
    functions: tuple[ir.Node, ...]


class _Matrices(Struct, frozen=True, kw_only=True):
    """A product of `heads` matrices (n, k) and (k, m), and its operands."""

    batch: tuple[int, ...]
    rows: int
    summed: int
    columns: int
    transposed: tuple[bool, bool] = (False, False)

    @property
    def heads(self) -> int:
        return math.prod(self.batch)


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
        elif joined and is_standard(node, *_MOVES):
            changed |= in_order(graph, node, joined)
    return changed


def _decompose(graph: ir.Graph, node: ir.Node, joined: Joined, *, rounded: bool) -> bool:
    """Case 1."""
    matrices, result = _matrices(node), node.outputs[0]
    if matrices is None or matrices.heads > MOST_HEADS or result.dtype is not ir.DataType.FLOAT:
        return False
    values = [v for v in node.inputs if v is not None]
    if rounded and any(quant_of(v) is None for v in (*values, result)):
        return False  # the host computes it unchanged
    found = [_located(value, matrices, i) for i, value in enumerate(values)]
    if None in found and matrices.heads > MOST_CUT:
        return False
    known = [
        _as_written(graph, node, matrices, i) if heads is None else _taken(node, heads, i, joined)
        for i, heads in enumerate(found)
    ]
    pairs = list(zip(*known, strict=True))
    swapped = _is_swapped(node, *pairs[0])
    parts = []
    for number, pair in enumerate(pairs):
        first, second = reversed(pair) if swapped else pair
        name = node.name if len(pairs) == 1 else f"{node.name}/{number}"
        parts.append(_product(node, first, second, f"{name}"))
    _join(graph, node, parts, matrices, joined, swapped=swapped)
    return True


def _matrices(node: ir.Node) -> _Matrices | None:
    """The matrices of a MatMul or Gemm of two computed values; None for others."""
    shapes = [static_shape(v) for v in node.inputs]
    if len(shapes) != 2 or any(constant(v) is not None for v in node.inputs):
        return None
    first, second = shapes
    if first is None or second is None or min(len(first), len(second)) < 2 or 0 in first + second:
        return None
    attrs = node.attributes
    if attrs.get_float("alpha", 1.0) != 1.0:
        return None
    turns = (bool(attrs.get_int("transA", 0)), bool(attrs.get_int("transB", 0)))
    n, k = first[:-3:-1] if turns[0] else first[-2:]
    m = second[-2 if turns[1] else -1]
    batch = np.broadcast_shapes(first[:-2], second[:-2])
    return _Matrices(batch=batch, rows=n, summed=k, columns=m, transposed=turns)


def _located(value: ir.Value, of: _Matrices, index: int) -> _Heads | None:
    """Where the heads of an operand are in a map; None where they are no parts of one."""
    for source, functions in _origins(value):
        parts = [_part_of(source, block) for block in _blocks(source.elements, of, index)]
        known = tuple(part for part in parts if part is not None)
        if len(known) == len(parts):
            return _Heads(map=source.value, parts=known, functions=functions)
    return None


def _origins(value: ir.Value) -> Iterator[tuple[Source, tuple[ir.Node, ...]]]:
    """Sources of a value, and functions of single elements that are computed on the way from it."""
    found = sources(value)
    yield from ((source, ()) for source in found)
    function = found[0].value.producer() if found else None
    read = None if function is None else _argument(function)
    if function is None or read is None:
        return
    for source, functions in _origins(read):
        elements = source.elements.reshape(-1)[found[0].elements]
        yield replace(source, elements=elements), (*functions, function)


def _argument(node: ir.Node) -> ir.Value | None:
    """What an elementwise operator with scalar constants reads; None for others."""
    computed = [v for v in node.inputs if v is not None and constant(v) is None]
    scalars = all(data.size == 1 for v in node.inputs if (data := constant(v)) is not None)
    if not is_standard(node, *ELEMENT_WISE) or len(computed) != 1 or not scalars:
        return None
    same = static_shape(computed[0]) == static_shape(node.outputs[0])
    return computed[0] if same else None


def _blocks(elements: np.ndarray, of: _Matrices, index: int) -> Iterator[np.ndarray]:
    """Of every head the element numbers (summed, pixels)."""
    turned = of.transposed[index] != (index == 0)
    whole = np.broadcast_to(elements, (*of.batch, *elements.shape[-2:]))
    for block in whole.reshape(-1, *elements.shape[-2:]):
        yield block.T if turned else block


def _part_of(source: Source, block: np.ndarray) -> tuple[int, int, bool] | None:
    """(first channel, channels, whether the pixels are summed) of a map that a block is; None for
    other blocks.
    """
    shape = size_of(source.value)
    if len(shape) not in {2, 3, 4} or shape[0] != 1:
        return None
    pixels = math.prod(shape[2:])
    for turned in (False, True)[: 2 if len(shape) == 4 else 1]:
        grid = block.T if turned else block
        first, offset = divmod(int(grid[0, 0]), pixels)
        whole = grid.shape[1] == pixels and not offset
        if whole and np.array_equal(grid.reshape(-1), np.arange(grid.size) + grid[0, 0]):
            return first, grid.shape[0], turned
    return None


def _taken(node: ir.Node, heads: _Heads, index: int, joined: Joined) -> list[_Factor]:
    """The heads of an operand as maps."""
    assert node.graph is not None
    name = f"{node.name}/{'ab'[index]}"
    return [_part(node.graph, node, heads, part, joined, name) for part in heads.parts]


def _part(
    graph: ir.Graph,
    node: ir.Node,
    heads: _Heads,
    part: tuple[int, int, bool],
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
        ends = (np.array([first]), np.array([first + count]), np.array([1]))
        numbers = [add_constant(graph, f"{name}/slice", end) for end in ends]
        shape = (1, count, *size)
        value = move_before(node, "Slice", [value, *numbers], name=f"{name}/{first}", shape=shape)
    for number, function in enumerate(heads.functions):
        inputs = [v if constant(v) is not None else value for v in function.inputs]
        attributes, quant = values_of(function), quant_of(function.outputs[0])
        own, shape = f"{name}/{first}/function{number}", size_of(value)
        value = insert_before(
            node, function.op_type, inputs, attributes, name=own, shape=shape, quant=quant
        )
    if turned:
        value = reshape_before(
            node, value, (1, count, 1, math.prod(size)), name=f"{name}/{first}/row"
        )
        shape = (1, math.prod(size), 1, count)
        perm, name = {"perm": TURN}, f"{name}/{first}/turned"
        value = move_before(node, "Transpose", [value], perm, name=name, shape=shape)
    return _Factor(value=value, turned=turned)


def _as_written(graph: ir.Graph, node: ir.Node, of: _Matrices, index: int) -> list[_Factor]:
    """Heads of an operand that is no map, by Slice and Transpose."""
    source = node.inputs[index]
    assert source is not None
    shape, name = size_of(source), f"{node.name}/{'ab'[index]}"
    own, (high, wide) = shape[:-2], shape[-2:]
    whole = reshape_before(node, source, (1, math.prod(own), high, wide), name=f"{name}/heads")
    numbers = np.broadcast_to(np.arange(math.prod(own)).reshape(own), of.batch).reshape(-1)
    swaps = of.transposed[index] != (index == 0)
    known: dict[int, _Factor] = {}
    for number in numbers.tolist():
        if number in known:
            continue
        value = whole
        if math.prod(own) > 1:
            ends = (np.array([number]), np.array([number + 1]), np.array([1]))
            slices = [add_constant(graph, f"{name}/slice", end) for end in ends]
            part = (1, 1, high, wide)
            value = move_before(
                node, "Slice", [whole, *slices], name=f"{name}/{number}", shape=part
            )
        perm = (0, 3, 1, 2) if swaps else (0, 2, 1, 3)
        size = tuple((1, 1, high, wide)[axis] for axis in perm)
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


def _product(node: ir.Node, maps: _Factor, second: _Factor, name: str) -> ir.Value:
    size = size_of(second.value)
    row = (1, size[1], 1, math.prod(size[2:]))
    weights = reshape_before(node, second.value, row, name=f"{name}/weights")
    shape, equation = (1, row[3], *maps.pixels), {"equation": PRODUCT}
    inputs = [maps.value, weights]
    return insert_before(
        node,
        "Einsum",
        inputs,
        equation,
        name=f"{name}/map",
        shape=shape,
        quant=quant_of(node.outputs[0]),
    )


def _join(
    graph: ir.Graph,
    node: ir.Node,
    parts: Sequence[ir.Value],
    of: _Matrices,
    joined: Joined,
    *,
    swapped: bool,
) -> None:
    """Let a node give the results of its heads the shape that they had."""
    whole = concatenated(node, parts, joined)
    if swapped:
        shape = np.array((*of.batch, of.rows, of.columns), np.int64)
        rewrite(node, "Reshape", [whole, add_constant(graph, f"{node.name}/shape", shape)])
        return
    shape = (*of.batch, of.columns, of.rows)
    value = reshape_before(node, whole, shape, name=f"{node.name}/heads")
    axes = [*range(len(shape))]
    rewrite(node, "Transpose", [value], {"perm": [*axes[:-2], axes[-1], axes[-2]]})
