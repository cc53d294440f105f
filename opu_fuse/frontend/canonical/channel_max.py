"""The largest channel of every pixel, as the pool finds the largest pixel.

The array writes four channels as a block of two by two pixels, a ConvTranspose with one-hot
weights, and a MaxPool of these blocks leaves a quarter of the channels. So do further pairs until
one channel is left. All values are values of the map, so this is bit-exact.

This rewrite replaces an operator of the user's graph, so only strategies that ask for it run it
(`REWRITES`).
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.gather_as_conv import convolve
from opu_fuse.frontend.canonical.joined_heads import size_of
from opu_fuse.frontend.canonical.pools import before_transpose, reduced_axes
from opu_fuse.frontend.canonical.space_depth_as_conv import is_computed
from opu_fuse.frontend.editing import (
    add_constant,
    insert_after,
    insert_before,
    quant_of,
    rewrite,
    standard_nodes,
    static_shape,
)
from opu_fuse.quant import REWRITE_KEY

_WHY = "channels become pixels, of which the pool finds the largest"
_BLOCK = 2
"""Rows and columns of a block: of larger ones more phases of the ConvTranspose compute few channels
each.
"""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_reduce(model.graph, node) for node in standard_nodes(model.graph, "ReduceMax")]
    return any(changed)


def _reduce(graph: ir.Graph, node: ir.Node) -> bool:
    x, y = node.inputs[0], node.outputs[0]
    axes, target = reduced_axes(node), static_shape(y)
    if x is None or not axes or target is None or len(static_shape(x) or ()) != 4:
        return False
    order, x = before_transpose(x)
    size = static_shape(x)
    if size is None or size[0] != 1 or 0 in size or {order[axis] for axis in axes} != {1}:
        return False
    rest = [source for axis, source in enumerate(order) if axis not in axes]
    if rest != sorted(rest) or quant_of(x) != quant_of(y) or not is_computed(x):
        return False
    _, channels, rows, columns = size
    if (1, 1, rows, columns) != target:
        shape = add_constant(graph, f"{node.name}/shape", np.array(target, np.int64))
        name = f"{node.name}/result"
        insert_after(node, y, "Reshape", (shape,), name=name, shape=(1, 1, rows, columns))
    while channels > _BLOCK**2:
        x = _quarter(graph, node, x, channels)
        channels = -(-channels // _BLOCK**2)
    rewrite(node, "MaxPool", [_blocks(graph, node, x, channels)], _POOL)
    node.metadata_props[REWRITE_KEY] = _WHY
    return True


_POOL = {"kernel_shape": [_BLOCK] * 2, "strides": [_BLOCK] * 2, "pads": [0] * 4}


def _quarter(graph: ir.Graph, node: ir.Node, x: ir.Value, channels: int) -> ir.Value:
    """The largest of every four channels of a map."""
    blocks = _blocks(graph, node, x, channels)
    shape = (1, -(-channels // _BLOCK**2), *size_of(x)[2:])
    name = f"{node.name}/of_{channels}"
    return insert_before(
        node, "MaxPool", [blocks], _POOL, name=name, shape=shape, quant=quant_of(x)
    )


def _blocks(graph: ir.Graph, node: ir.Node, x: ir.Value, channels: int) -> ir.Value:
    """A map with every four channels as pixels of a block; the last channel fills the last one."""
    count = -(-channels // _BLOCK**2)
    ones = np.zeros((channels, count * _BLOCK**2), np.int8)
    written = np.arange(count * _BLOCK**2)
    ones[np.minimum(written, channels - 1), written] = 1
    name = f"{node.name}/blocks_of_{channels}"
    shape = (1, count, *[n * _BLOCK for n in size_of(x)[2:]])
    result = insert_before(node, "ConvTranspose", [x], name=name, shape=shape, quant=quant_of(x))
    made = result.producer()
    assert made is not None
    ones = ones.reshape(channels, count, _BLOCK, _BLOCK)
    convolve(graph, made, "ConvTranspose", x, ones, _BLOCK)
    return result
