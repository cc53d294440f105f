"""Sums and means over channels, and sums over rows and columns, become convolutions with ones.

Only the array accumulates over channels; the post pipeline handles each channel separately. The
weights of a mean are ones with the scale 1 / count, so it is rounded once, like an average. A float
mean over channels and pixels is computed from averages over pixels, which get their own scale.

This rewrite replaces an operator of the user's graph, so only strategies that ask for it run it
(`REWRITES`).
"""

import math

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.joined_heads import size_of
from opu_fuse.frontend.canonical.pools import reduced_map
from opu_fuse.frontend.editing import (
    add_constant,
    insert_before,
    quant_of,
    restore_shape,
    rewrite,
    standard_nodes,
)
from opu_fuse.quant import CHOICE_KEY, REWRITE_KEY, QuantParams

_CHANNELS = 1
_MOST = 1 << 20
"""Largest number of weights of such a convolution."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    nodes = standard_nodes(model.graph, "ReduceMean", "ReduceSum")
    changed = [_sum(model.graph, node) for node in nodes]
    return any(changed)


def _sum(graph: ir.Graph, node: ir.Node) -> bool:
    y = node.outputs[0]
    x, collapsed = reduced_map(node) or (None, frozenset[int]())
    if x is None or (quant_of(x) is None) != (quant_of(y) is None) or x.dtype is not y.dtype:
        return False
    size = size_of(x)
    mean, rounded = node.op_type == "ReduceMean", quant_of(y) is not None
    if mean and _CHANNELS not in collapsed:  # `pools` converts it
        return False
    if mean and not rounded and collapsed & {2, 3}:
        x, size = (
            _averages(node, x, size, collapsed),
            (*size[:2], *(1 if a in collapsed else size[a] for a in (2, 3))),
        )
    kernel = [size[axis] if axis in collapsed else 1 for axis in (2, 3)]
    over_channels = _CHANNELS in collapsed
    count = math.prod(kernel) * (size[1] if over_channels else 1)
    filters = (1, size[1]) if over_channels else (size[1], 1)
    if math.prod(filters) * math.prod(kernel) > _MOST:
        return False
    weight_scale = 1.0 / count if mean else 1.0
    ones = np.ones((*filters, *kernel), np.int8 if rounded else np.float32)
    weight = add_constant(
        graph,
        f"{node.name}/ones",
        ones if rounded else ones * np.float32(weight_scale),
        QuantParams(scale=(weight_scale,)) if rounded else None,
    )
    shape = (1, filters[0], *(n // k for n, k in zip(size[2:], kernel, strict=True)))
    restore_shape(graph, node, shape)
    attributes = {
        "kernel_shape": kernel,
        "strides": [1, 1],
        "dilations": [1, 1],
        "pads": [0] * 4,
        "group": 1 if over_channels else size[1],
    }
    rewrite(node, "Conv", [x, weight], attributes)
    node.metadata_props[REWRITE_KEY] = "summed up by a convolution with ones: the array adds"
    node.metadata_props[CHOICE_KEY] = str(count) if mean and rounded else "ones"
    return True


def _averages(node: ir.Node, x: ir.Value, size: tuple[int, ...], gone: frozenset[int]) -> ir.Value:
    window = [size[axis] if axis in gone else 1 for axis in (2, 3)]
    name = f"{node.name}/averages"
    shape = (*size[:2], *(n // k for n, k in zip(size[2:], window, strict=True)))
    attributes = {
        "kernel_shape": window,
        "strides": [1, 1],
        "pads": [0] * 4,
        "count_include_pad": 0,
    }
    if shape[2:] == (1, 1):
        return insert_before(node, "GlobalAveragePool", [x], name=name, shape=shape)
    return insert_before(node, "AveragePool", [x], attributes, name=name, shape=shape)
