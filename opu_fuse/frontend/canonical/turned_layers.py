"""Values of an attention that are computed turned, instead of being turned after their layer.

A product of probabilities and values reads the values turned: pixels as channels. A 1x1 convolution
W of a map X computes W·X. As a *turned layer* (`model/products.py`) the array multiplies the
weights, which it reads as pixels, by the pixels of X, which it reads as weights. That is the result
of convolution and turn at once. Weights have one scale then, and biases would be those of pixels:

1. The probabilities of a Softmax have the sum one, so a bias of the values is one of the product.
   It is added to the bias of the convolution that reads the heads.
2. A convolution computes no longer what nobody reads: the last channels are cut off.
"""

from collections.abc import Collection, Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.element_order import sources
from opu_fuse.frontend.canonical.head_maps import Factor
from opu_fuse.frontend.canonical.joined_heads import Joined, size_of
from opu_fuse.frontend.canonical.product_operands import Heads, Matrices
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    is_point_convolution,
    is_standard,
    merge_sources,
    operand,
    quant_of,
    reshape_before,
    sole_reader,
)
from opu_fuse.model.known_values import slice_ranges
from opu_fuse.model.products import TURNED_LAYER
from opu_fuse.quant import EQUALISED_KEY, NORMS_KEY

WORD, _GROUP = 64, 16
"""Channels of a word and pixels of a weight row of the machines that are reckoned with."""
_LEAST = 0.5
"""Share of the multiplications of turns that turned layers have to save."""
_MOST_BYTES = 1 << 17
"""Size of a sequence, which every head reads as weights: a buffer of these machines holds it."""


def turned_heads(
    graph: ir.Graph, node: ir.Node, of: Matrices, found: Sequence[Heads | None], joined: Joined
) -> list[Factor] | None:
    """The heads of the second operand of a product as turned layers; None where they are no values
    of an attention, or turning what a convolution computes takes fewer multiplications.

    found: the heads of both operands.
    """
    factors, heads = found
    if "Softmax" not in graph.meta.get(NORMS_KEY, ()) or graph.meta.get(EQUALISED_KEY):
        return None
    if factors is None or heads is None:
        return None
    conv = heads.map.producer()
    if conv is None or not all(turned for *_, turned in heads.parts) or not _is_dense(conv):
        return None
    if heads.functions or not all(_is_softmax(v) for v in joined.get(factors.map, (factors.map,))):
        return None
    weight, bias = constant(conv.inputs[1]), constant(operand(conv, 2))
    assert weight is not None
    source = conv.inputs[0]
    assert source is not None
    _, summed, *size = size_of(source)
    rows = of.row_count
    pixels = size[0] * size[1] // rows
    gains = all(_gains(count, summed, pixels) for _, count, _ in heads.parts)
    own = np.concatenate([np.arange(first, first + count) for first, count, _ in heads.parts])
    if not gains or not _moved_bias(graph, node, of, None if bias is None else bias[own]):
        return None
    value = reshape_before(node, source, (1, summed, rows, pixels), name=f"{node.name}/tokens")
    result = []
    for first, count, _ in heads.parts:
        name = f"{node.name}/{first}/turned"
        matrix = add_constant(graph, f"{name}/weight", weight[first : first + count, :, 0, 0])
        made = insert_before(
            node,
            "Einsum",
            [value, matrix],
            {"equation": TURNED_LAYER},
            name=name,
            shape=(1, pixels, rows, count),
            quant=quant_of(heads.map),
        )
        layer = made.producer()
        assert layer is not None
        merge_sources(layer, [conv])
        result.append(Factor(value=made, turned=True))
    return result


def _gains(count: int, summed: int, pixels: int) -> bool:
    """Whether a turned layer multiplies less often than a layer and the turn of its result."""
    words = _padded(summed, WORD), _padded(pixels, _GROUP)
    turn = count * words[1] * WORD
    fits = words[0] * words[1] <= _MOST_BYTES
    return fits and count * (pixels * summed - words[0] * words[1]) + turn >= _LEAST * turn


def _padded(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def _is_dense(node: ir.Node) -> bool:
    """Whether a node is a 1x1 convolution of one group, with constants."""
    bias = operand(node, 2)
    known = constant(operand(node, 1)) is not None and (bias is None or constant(bias) is not None)
    return known and is_point_convolution(node) and node.attributes.get_int("group", 1) == 1


def _is_softmax(value: ir.Value) -> bool:
    node = value.producer()
    return node is not None and is_standard(node, "Softmax")


def _moved_bias(graph: ir.Graph, node: ir.Node, of: Matrices, bias: np.ndarray | None) -> bool:
    """Case 1. Returns whether there was no bias, or the reader of a product took it."""
    if bias is None or not bias.any():
        return True
    value = node.outputs[0]
    reader = sole_reader(value)
    while reader is not None and is_standard(reader, "Reshape", "Transpose"):
        value = reader.outputs[0]
        reader = sole_reader(value)
    if reader is None or not _is_dense(reader) or reader.inputs[0] is not value:
        return False
    found = next((s for s in sources(value) if s.value is node.outputs[0]), None)
    if found is None:
        return False
    sizes = [size if axis in of.heads else 1 for axis, size in enumerate(of.batch)]
    first = np.arange(of.head_count).reshape(*sizes, 1, 1) * of.columns
    every = np.broadcast_to(first + np.arange(of.columns), size_of(node.outputs[0]))
    numbers = every.reshape(-1)[found.elements].reshape(size_of(value)[1], -1)
    if bias.size != of.head_count * of.columns or (numbers != numbers[:, :1]).any():
        return False
    weight, old = constant(reader.inputs[1]), constant(operand(reader, 2))
    assert weight is not None
    added = weight[:, :, 0, 0] @ bias[numbers[:, 0]] + (0 if old is None else old)
    made = add_constant(graph, f"{reader.name}/bias/values", added.astype(np.float32))
    reader.resize_inputs(3)
    reader.replace_input_with(2, made)
    return True


def cut_layers(graph: ir.Graph, layers: Collection[ir.Node]) -> None:
    """Case 2, for these layers. What nobody reads any more is left out."""
    needed: set[ir.Node] = set()
    stack = [v.producer() for v in graph.outputs] if layers else []
    while stack:
        node = stack.pop()
        if node is not None and node not in needed:
            needed.add(node)
            stack += [v.producer() for v in node.inputs if v is not None]
    for conv in dict.fromkeys(layers):
        result = conv.outputs[0]
        readers = [use.node for use in result.uses() if use.node in needed]
        ranges = [_channels(node) for node in readers]
        if not readers or None in ranges or result.is_graph_output():
            continue
        end, (_, channels, *size) = max(r for r in ranges if r), size_of(result)
        if end == channels:
            continue
        for number in (1, 2):
            data = constant(operand(conv, number))
            if data is not None:
                name = f"{conv.name}/read{number}"
                conv.replace_input_with(number, add_constant(graph, name, data[:end]))
        result.shape = ir.Shape((1, end, *size))


def _channels(node: ir.Node) -> int | None:
    """The end of the channels that a Slice reads; None where it cuts others or is none."""
    ranges = slice_ranges(node) if is_standard(node, "Slice") else None
    return None if ranges is None else int(np.max(np.asarray(ranges[1]))) + 1
