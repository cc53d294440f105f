"""Linear attention with a division (EfficientViT), for machines that divide by a channel.

    y = (Q (K V'))[..., :-1] / ((Q (K V'))[..., -1:] + epsilon),  V' is V with a column of ones

Q and K are results of a Relu, so divisors are not negative. Exporters write matrices as here, or
all transposed. Of n pixels and with the columns in another order:

    x = Q (K [1 | 0 | V] / n),  y = x[2:] / (relu(x[0]) + epsilon / n)

The zeros belong to the machine's division (`model/divisions.py`).
"""

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.frontend.canonical.head_maps import Factor, part_of, product, turned_map
from opu_fuse.frontend.canonical.joined_heads import Joined, size_of
from opu_fuse.frontend.canonical.product_operands import Heads, Matrices, heads_of, matrices_of
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    is_standard,
    move_before,
    operand,
    sole_reader,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.known_values import slice_ranges
from opu_fuse.quant import CHOICE_KEY, DIVISION_KEY, META_KEY, NORMS_KEY, REWRITE_KEY

_WHY = "a head's channels, which share words with others, moved by a convolution with ones"
_ONE_BY_ONE = {
    "kernel_shape": (1, 1),
    "strides": (1, 1),
    "dilations": (1, 1),
    "pads": (0, 0, 0, 0),
    "group": 1,
}
_ADDED = 2
"""Channels before the quotients: divisor and zero."""


class LinearAttention(Struct, frozen=True, kw_only=True):
    """products: both MatMuls. matrices: of the second. swapped: all matrices are transposed.
    queries, keys, values: their heads. epsilon: added to the divisor.
    """

    products: tuple[ir.Node, ir.Node]
    matrices: Matrices
    swapped: bool
    queries: Heads
    keys: Heads
    values: Heads
    epsilon: float


def find(graph: ir.Graph) -> Mapping[ir.Node, LinearAttention]:
    """Linear attention of a float graph, by its Div; none if the machine does not divide."""
    if "Div" not in graph.meta.get(NORMS_KEY, ()):
        return {}
    found = {node: _attention(node) for node in standard_nodes(graph, "Div")}
    return {node: whole for node, whole in found.items() if whole is not None}


def _attention(node: ir.Node) -> LinearAttention | None:
    above, added = (None if v is None else v.producer() for v in node.inputs)
    if added is None or not is_standard(added, "Add"):
        return None
    epsilon = constant(added.inputs[1])
    below = added.inputs[0].producer() if added.inputs[0] is not None else None
    if above is None or below is None:
        return None
    if epsilon is None or epsilon.size != 1 or epsilon.item() <= 0:
        return None
    second, swapped = _halves(above, below)
    if second is None or META_KEY in node.outputs[0].meta:
        return None
    padded = int(not swapped)  # operand with the ones
    first = _producer(second, padded)
    pad = None if first is None else _producer(first, padded)
    if first is None or pad is None or not is_standard(first, "MatMul"):
        return None
    value = _with_ones(pad, -2 if swapped else -1)
    before, after = matrices_of(first), matrices_of(second)
    if value is None or before is None or after is None or not _are_own((first, second, pad)):
        return None
    parts = _parts(first, second, value, padded, before, after)
    if parts is None:
        return None
    narrow = {"rows": after.rows - 1} if swapped else {"columns": after.columns - 1}
    queries, keys, values = parts
    return LinearAttention(
        products=(first, second),
        matrices=replace(after, **narrow),
        swapped=swapped,
        queries=queries,
        keys=keys,
        values=values,
        epsilon=float(epsilon.item()),
    )


def _producer(node: ir.Node, index: int) -> ir.Node | None:
    value = operand(node, index)
    return None if value is None else value.producer()


def _halves(above: ir.Node, below: ir.Node) -> tuple[ir.Node | None, bool]:
    """The MatMul of which two Slices take all but the last row or column, and that one; and whether
    it is a row.
    """
    source, shape = operand(above, 0), static_shape(operand(above, 0))
    product = None if source is None else source.producer()
    if product is None or shape is None or not is_standard(product, "MatMul"):
        return None, False
    if not is_standard(above, "Slice") or not is_standard(below, "Slice"):
        return None, False
    if operand(below, 0) is not source or len(shape) < 2:
        return None, False
    for swapped in (False, True):
        axis = len(shape) - 1 - swapped
        whole, size = [range(n) for n in shape], shape[axis]
        upper, lower = (
            [*whole[:axis], r, *whole[axis + 1 :]] for r in (range(size - 1), range(size - 1, size))
        )
        if slice_ranges(above) == upper and slice_ranges(below) == lower:
            return product, swapped
    return None, False


def _with_ones(pad: ir.Node, axis: int) -> ir.Value | None:
    """What a Pad gives one more row or column of ones at the end; None for others."""
    x, amounts, fill = (operand(pad, i) for i in range(3))
    data, value = constant(amounts), constant(fill)
    if not is_standard(pad, "Pad") or data is None or value is None or value.item() != 1.0:
        return None
    if pad.attributes.get_string("mode", "constant") != "constant" or operand(pad, 3) is not None:
        return None
    wanted = np.zeros(data.size, np.int64)
    wanted[axis] = 1
    return x if np.array_equal(data, wanted) else None


def _are_own(nodes: tuple[ir.Node, ir.Node, ir.Node]) -> bool:
    """Whether results have no other readers: of the second product both Slices."""
    first, second, pad = nodes
    results = first.outputs[0], pad.outputs[0]
    alone = all(sole_reader(v) is not None for v in results)
    return alone and len(second.outputs[0].uses()) == 2 and not second.outputs[0].is_graph_output()


def _parts(
    first: ir.Node,
    second: ir.Node,
    value: ir.Value,
    padded: int,
    before: Matrices,
    after: Matrices,
) -> tuple[Heads, Heads, Heads] | None:
    """Queries, keys and values in maps; None unless they are, the first two results of a Relu."""
    key, query = operand(first, 1 - padded), operand(second, 1 - padded)
    if key is None or query is None:
        return None
    narrow = {"columns": before.columns - 1} if padded else {"rows": before.rows - 1}
    before = replace(before, **narrow)
    queries = heads_of(query, after, 1 - padded)
    keys, values = heads_of(key, before, 1 - padded), heads_of(value, before, padded)
    if queries is None or keys is None or values is None:
        return None
    straight = not any(turned for _, _, turned in queries.parts)
    if not straight or not all(turned for _, _, turned in (*keys.parts, *values.parts)):
        return None
    if not (_is_positive(queries) and _is_positive(keys)):
        return None
    return queries, keys, values


def _is_positive(heads: Heads) -> bool:
    """Whether a Relu computes all values."""
    last = heads.functions[-1] if heads.functions else heads.map.producer()
    return last is not None and is_standard(last, "Relu")


def joined_quotients(
    graph: ir.Graph, node: ir.Node, of: LinearAttention, joined: Joined
) -> ir.Value:
    """The quotients of all heads as a map, computed before `node`."""
    parts = [_quotients(graph, node, of, joined, n) for n in range(of.matrices.head_count)]
    first, size = size_of(parts[0]), [sum(size_of(p)[1] for p in parts)]
    shape = (1, *size, *first[2:])
    whole = insert_before(
        node, "Concat", parts, {"axis": 1}, name=f"{node.name}/joined", shape=shape
    )
    wide = first[1]
    order = np.arange(len(parts) * wide).reshape(-1, wide)[:, _ADDED:].reshape(-1)
    indices = add_constant(graph, f"{node.name}/quotients", order)
    name, shape = f"{node.name}/chosen", (1, order.size, *first[2:])
    chosen = move_before(node, "Gather", [whole, indices], {"axis": 1}, name=name, shape=shape)
    joined[chosen] = (chosen,)
    return chosen


def _quotients(
    graph: ir.Graph, node: ir.Node, of: LinearAttention, joined: Joined, number: int
) -> ir.Value:
    """A head divided by its first channel."""
    name = f"{node.name}/{number}"

    def part(heads: Heads, what: str) -> ir.Value:
        first, count, _ = heads.parts[number]
        return part_of(node, heads, (first, count, False), 1, joined, f"{name}/{what}").value

    def scalar(what: str, number: float) -> ir.Value:
        return add_constant(graph, f"{name}/{what}", np.array(number, np.float32))

    queries = _chosen(graph, node, of.queries, number, f"{name}/q")
    query = part_of(node, queries, queries.parts[0], 1, joined, f"{name}/q").value
    key, value = part(of.keys, "k"), part(of.values, "v")
    pixels = float(math.prod(size_of(key)[2:]))
    turned = [turned_map(node, v, 1, name=f"{name}/{k}") for k, v in (("v", value), ("k", key))]
    turned[0] = _with_sums(graph, node, turned[0], name)
    factors = [Factor(value=v, turned=True) for v in turned]
    weights = product(node, 1, factors[0], factors[1], f"{name}/kv")
    share, shape = scalar("share", 1 / pixels), size_of(weights)
    weights = insert_before(node, "Mul", [weights, share], name=f"{name}/mean", shape=shape)
    maps, second = (Factor(value=v, turned=False) for v in (query, weights))
    x = product(node, 1, maps, second, f"{name}/x")
    below = _divisor(graph, node, x, scalar("epsilon", of.epsilon / pixels), name)
    result = insert_before(node, "Div", [x, below], name=f"{name}/quotients", shape=size_of(x))
    made = result.producer()
    assert made is not None
    made.metadata_props[DIVISION_KEY] = "the second channel is zero"
    return result


def _chosen(graph: ir.Graph, node: ir.Node, heads: Heads, number: int, name: str) -> Heads:
    """A head by a convolution that selects its channels: a product takes whole words, and parts of
    a map share them.
    """
    first, count, _ = heads.parts[number]
    _, channels, *size = size_of(heads.map)
    if count == channels:
        return replace(heads, parts=heads.parts[number : number + 1])
    ones = np.zeros((count, channels, 1, 1), np.float32)
    ones[np.arange(count), first + np.arange(count)] = 1.0
    inputs = [heads.map, add_constant(graph, f"{name}/ones", ones)]
    shape = (1, count, *size)
    value = insert_before(node, "Conv", inputs, _ONE_BY_ONE, name=f"{name}/chosen", shape=shape)
    made = value.producer()
    assert made is not None
    made.metadata_props.update({REWRITE_KEY: _WHY, CHOICE_KEY: "ones"})
    return Heads(map=value, parts=((0, count, False),), functions=heads.functions)


def _with_sums(graph: ir.Graph, node: ir.Node, values: ir.Value, name: str) -> ir.Value:
    """Values (1, n, 1, d) after a column of ones and one of zeros."""
    _, count, _, wide = size_of(values)
    shape = (1, count, 1, wide + _ADDED)
    pads = add_constant(graph, f"{name}/pads", np.array([0, 0, 0, _ADDED, 0, 0, 0, 0]))
    padded = move_before(node, "Pad", [values, pads], name=f"{name}/pad", shape=shape)
    ones = np.zeros(shape, np.float32)
    ones[..., 0] = 1.0
    known = add_constant(graph, f"{name}/ones", ones)
    return insert_before(node, "Add", [padded, known], name=f"{name}/values", shape=shape)


def _divisor(graph: ir.Graph, node: ir.Node, x: ir.Value, epsilon: ir.Value, name: str) -> ir.Value:
    shape = (1, 1, *size_of(x)[2:])
    numbers = [add_constant(graph, f"{name}/first", np.array([end])) for end in (0, 1, 1)]
    first = move_before(node, "Slice", [x, *numbers], name=f"{name}/first", shape=shape)
    positive = insert_before(node, "Relu", [first], name=f"{name}/positive", shape=shape)
    return insert_before(node, "Add", [positive, epsilon], name=f"{name}/divisor", shape=shape)
