"""Convolutions along channels become dense layers.

Efficient channel attention views the means of a map, (1, n, 1, 1), as a line of n pixels, convolves
it, and views the result as channels again. A machine moves no channels to pixels, but a dense layer
with the taps of the convolution in a band of its matrix computes the same. So does each of several
such convolutions, with functions between them.

This rewrite replaces an operator of the user's graph, so only strategies that ask for it run it
(`REWRITES`).
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.joined_heads import size_of
from opu_fuse.frontend.editing import (
    add_constant,
    bypass,
    constant,
    is_standard,
    operand,
    quant_of,
    rewrite,
    sole_reader,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.operator_sets import UNARY
from opu_fuse.quant import PRODUCTS_KEY, REWRITE_KEY

_WHY = "a convolution along channels as a dense layer, whose matrix has its taps in a band"
_MOST = 1 << 20
"""Largest number of weights of such a layer."""
_KEEP_PLACES = UNARY | {"Relu", "Clip", "LeakyRelu"}


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_to_dense(model.graph, node) for node in standard_nodes(model.graph, "Reshape")]
    return any(changed)


def _to_dense(graph: ir.Graph, first: ir.Node) -> bool:
    """Rewrite the operators from a Reshape of channels to pixels to the one back."""
    x = first.inputs[0]
    before, line = static_shape(x), static_shape(first.outputs[0])
    if x is None or before is None or line is None or quant_of(x) is not None:
        return False
    if len(before) != 4 or line != (1, 1, 1, before[1]) or before[1] == 1:
        return False
    nodes = _chain(first)
    if nodes is None:
        return False
    *inner, last = nodes
    columns = before[1]
    for node in inner:
        _, channels, _, count = size_of(node.outputs[0])
        if is_standard(node, "Conv"):
            _widen(graph, node, columns, count)
        node.outputs[0].shape = ir.Shape((1, channels * count, 1, 1))
        columns = count
    inner[0].replace_input_with(0, x)
    return bypass(last)


def _chain(first: ir.Node) -> list[ir.Node] | None:
    """The readers of a line up to the Reshape to channels; None if it is another graph."""
    nodes: list[ir.Node] = []
    node: ir.Node | None = first
    while (node := sole_reader(node.outputs[0])) is not None:
        nodes.append(node)
        shape = static_shape(node.outputs[0])
        if shape is None or len(shape) != 4:
            return None
        if is_standard(node, "Reshape"):
            whole = (1, size_of(node.inputs[0])[3], 1, 1)
            return nodes if len(nodes) > 1 and shape == whole else None
        if not is_standard(node, *_KEEP_PLACES) and not _is_along(node):
            return None
    return None


def _is_along(node: ir.Node) -> bool:
    """Whether a node is a Conv with constants along a line, small enough as a dense layer."""
    shapes = [static_shape(v) for v in (node.inputs[0], node.outputs[0])]
    if not is_standard(node, "Conv") or None in shapes or node.attributes.get_int("group", 1) != 1:
        return False
    weight, bias = constant(operand(node, 1)), operand(node, 2)
    if weight is None or weight.dtype != np.float32 or weight.shape[2] != 1:
        return False
    sizes = [np.prod(shape) for shape in shapes if shape is not None and shape[2] == 1]
    known = bias is None or constant(bias) is not None
    return known and len(sizes) == 2 and int(np.prod(sizes)) <= _MOST


def _widen(graph: ir.Graph, node: ir.Node, columns: int, count: int) -> None:
    """A Conv along a line, of `columns` to `count`, as one with channels for all of them."""
    weight, bias = constant(node.inputs[1]), constant(operand(node, 2))
    assert weight is not None
    filters, channels, _, taps = weight.shape
    ints = node.attributes.get_ints
    stride, dilation = ints("strides", (1, 1))[1], ints("dilations", (1, 1))[1]
    written = np.arange(count)
    matrix = np.zeros((filters, count, channels, columns), np.float32)
    for tap in range(taps):
        read = written * stride + tap * dilation - ints("pads", (0,) * 4)[1]
        inside = (read >= 0) & (read < columns)
        matrix[:, written[inside], :, read[inside]] = weight[None, :, :, 0, tap]
    rows = matrix.reshape(filters * count, channels * columns, 1, 1)
    constants = [add_constant(graph, f"{node.name}/band", rows)]
    if bias is not None:
        constants.append(add_constant(graph, f"{node.name}/biases", np.repeat(bias, count)))
    one = {name: [1, 1] for name in ("kernel_shape", "strides", "dilations")}
    rewrite(node, "Conv", [node.inputs[0], *constants], {**one, "pads": [0] * 4, "group": 1})
    products = filters * count * channels * taps
    node.metadata_props.update({REWRITE_KEY: _WHY, PRODUCTS_KEY: str(products)})
