"""A 1x1 convolution that mixes the heads of products (talking heads) becomes one for each head.

Its operand (1, heads, n, m) has a head in each channel. The joined map (1, heads * m, rows, cols)
has one in every m channels (`products.py`). A weight for each pair of heads becomes m weights, one
for each pair of equal channels; the others are zero, so sums do not change.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from msgspec.structs import replace

from opu_fuse.frontend.canonical.element_order import Source, sources
from opu_fuse.frontend.canonical.joined_heads import (
    Joined,
    arrange,
    concatenated,
    size_of,
)
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    operand,
    quant_of,
    static_shape,
    values_of,
)
from opu_fuse.model.effort import multiplications
from opu_fuse.quant import PRODUCTS_KEY

MOST_CHANNELS = 4096
"""Channels of the joined map, whose weights are a square matrix of them."""


def mix(graph: ir.Graph, node: ir.Node, joined: Joined) -> bool:
    """Let a convolution of heads be one for each head. Returns whether it could."""
    x, weights, bias = (operand(node, index) for index in range(3))
    data, result = constant(weights), node.outputs[0]
    if x is None or weights is None or data is None or (bias and constant(bias) is None):
        return False
    source = next((s for s in sources(x) if s.value in joined and s.links), None)
    plain = data.shape[2:] == (1, 1) and static_shape(x) == static_shape(result)
    if source is None or not plain or node.attributes.get_int("group", 1) != 1:
        return False
    heads = joined[source.value]
    if len(heads) * size_of(heads[0])[1] > MOST_CHANNELS or not _is_head_first(source, heads):
        return False
    shape, products = size_of(heads[0]), str(multiplications(node) // len(heads))
    attributes = values_of(node) | {"kernel_shape": [1, 1]}
    parts = []
    for number in range(len(heads)):
        name = f"{node.name}/{number}"
        own = [_of_head(graph, v, number, shape[1]) for v in (weights, bias) if v is not None]
        inputs, quant = [source.value, *own], quant_of(result)
        part = insert_before(node, "Conv", inputs, attributes, name=name, shape=shape, quant=quant)
        made = part.producer()
        assert made is not None
        made.metadata_props[PRODUCTS_KEY] = products
        parts.append(part)
    arrange(node, concatenated(node, parts, joined), source.links)
    return True


def _is_head_first(source: Source, heads: Sequence[ir.Value]) -> bool:
    """Whether the channels of a value are the heads, whose elements all have the same order."""
    elements, shape = source.elements, size_of(heads[0])
    if elements.ndim != 4 or elements.shape[:2] != (1, len(heads)):
        return False
    if any(size_of(head) != shape for head in heads):
        return False
    first = elements[0, :1]
    steps = np.arange(len(heads)).reshape(-1, 1, 1) * first.size
    return first.max() < first.size == np.prod(shape) and bool((elements[0] == first + steps).all())


def _of_head(graph: ir.Graph, value: ir.Value, number: int, channels: int) -> ir.Value:
    """Weights or biases of one result head: of each of its channels."""
    data, quant = constant(value), quant_of(value)
    assert data is not None
    own = data[number : number + 1]
    if data.ndim == 1:
        whole = np.repeat(own, channels)
    else:
        whole = np.kron(own[:, :, 0, 0], np.eye(channels, dtype=data.dtype))[..., None, None]
    if quant is not None and quant.axis is not None:
        quant = replace(quant, scale=quant.scale[number : number + 1] * channels)
    return add_constant(graph, f"{value.name}/{number}", whole, quant)
