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
from opu_fuse.frontend.canonical.pools import reduced_map
from opu_fuse.frontend.canonical.space_depth_as_conv import is_computed
from opu_fuse.frontend.editing import (
    insert_before,
    quant_of,
    restore_shape,
    rewrite,
    standard_nodes,
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
    x, reduced = reduced_map(node) or (None, ())
    if x is None or reduced != frozenset({1}):
        return False
    if quant_of(x) != quant_of(node.outputs[0]) or not is_computed(x):
        return False
    _, channels, *pixels = size_of(x)
    restore_shape(graph, node, (1, 1, *pixels))
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
