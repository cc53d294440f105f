"""1x1 convolutions next to a layer with windows read and write its rows of pixels.

A transformer whose MLP has a depthwise convolution (SegFormer, PVT) computes the layers before and
after it for tokens, a map of one row, with Reshapes between. These move away from the windows:

1. Conv 1x1, Reshape (1, c, 1, n) to (1, c, h, w), layers with windows: before the Conv 1x1.
2. Layer with windows, function, Reshape (1, c, h, w) to (1, c, 1, n), Conv 1x1: after the Conv 1x1.
3. Then an Add of other tokens: after the Add, and the tokens get a Reshape.

Each value is stored as before. But the layers have the same rows, so that they can be a fused stack
(`schedule/fused_stacks.py`). Only strategies that ask for it run this rewrite (`REWRITES`).
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    bypass,
    constant,
    insert_after,
    is_point_convolution,
    is_standard,
    operand,
    quant_of,
    reshape_before,
    sole_reader,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.operator_sets import ELEMENT_WISE

_Shape = tuple[int, int, int, int]
_MOST = 8
"""Operators of a function (GELU of an exporter has five)."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_before_layer(node) for node in standard_nodes(model.graph, "Reshape")]
    changed += [_after_layer(model.graph, n) for n in standard_nodes(model.graph, "Conv")]
    changed += [_after_sum(model.graph, node) for node in standard_nodes(model.graph, "Add")]
    return any(changed)


def _before_layer(node: ir.Node) -> bool:  # Case 1
    x, result = node.inputs[0], node.outputs[0]
    layer = None if x is None else x.producer()
    size, row = _image(result), _image(x)
    if x is None or layer is None or size is None or row is None or row[2] != 1:
        return False
    source = layer.inputs[0]
    shape = _image(source)
    if source is None or shape is None or not _is_point(layer) or sole_reader(x) is not node:
        return False
    if size[1] != row[1] or not all(_has_window(use.node) for use in result.uses()):
        return False
    name = f"{layer.name}/map"
    image = reshape_before(layer, source, (1, shape[1], *size[2:]), name=name)
    layer.replace_input_with(0, image)
    x.shape = ir.Shape(size)
    return bypass(node)


def _after_layer(graph: ir.Graph, node: ir.Node) -> bool:  # Case 2
    source = _map_of(node.inputs[0], node)
    if source is None or not _is_point(node) or not _follows_window(source):
        return False
    _restore(graph, node, source)
    node.replace_input_with(0, source)
    return True


def _after_sum(graph: ir.Graph, node: ir.Node) -> bool:  # Case 3
    row = _image(node.outputs[0])
    if row is None or any(_image(x) != row or constant(x) is not None for x in node.inputs):
        return False
    for index, x in enumerate(node.inputs):
        source, other = _map_of(x, node), node.inputs[1 - index]
        layer, size = None if source is None else source.producer(), _image(source)
        if layer is None or size is None or source is None or other is None:
            continue
        if not _is_point(layer):
            continue
        _restore(graph, node, source)
        node.replace_input_with(index, source)
        image = reshape_before(node, other, size, name=f"{node.name}/map")
        node.replace_input_with(1 - index, image)
        return True
    return False


def _restore(graph: ir.Graph, node: ir.Node, source: ir.Value) -> None:
    """Let a node's result have the rows of the map `source`, and put them into one after it."""
    row, size = _image(node.outputs[0]), _image(source)
    assert row is not None
    assert size is not None
    name = f"{node.name}/row"
    shape = add_constant(graph, f"{name}_shape", np.asarray(row, np.int64))
    inner = (*row[:2], *size[2:])
    insert_after(node, node.outputs[0], "Reshape", (shape,), name=name, shape=inner)


def _map_of(x: ir.Value | None, reader: ir.Node) -> ir.Value | None:
    """The map of several rows that a Reshape puts into one for this reader alone."""
    node, row = None if x is None else x.producer(), _image(x)
    if x is None or node is None or row is None or not is_standard(node, "Reshape"):
        return None
    source, size = node.inputs[0], _image(node.inputs[0])
    if source is None or size is None or sole_reader(x) is not reader:
        return None
    puts = row[2] == 1 < size[2] and row[1] == size[1] and row[3] == size[2] * size[3]
    return source if puts and quant_of(x) in {None, quant_of(source)} else None


def _image(x: ir.Value | None) -> _Shape | None:
    """The shape of a map (1, c, h, w)."""
    shape = static_shape(x)
    return shape if shape is not None and len(shape) == 4 and shape[0] == 1 else None


def _is_point(node: ir.Node) -> bool:
    """Whether a node is a convolution of single pixels with constant weights."""
    return is_point_convolution(node) and constant(operand(node, 1)) is not None


def _has_window(node: ir.Node) -> bool:
    return is_standard(node, "Conv") and max(node.attributes.get_ints("kernel_shape", (1,))) > 1


def _follows_window(value: ir.Value) -> bool:
    """Whether a layer with windows computes a value, or a function of its result."""
    node = value.producer()
    for _ in range(_MOST):
        if node is None or _has_window(node) or not is_standard(node, *ELEMENT_WISE):
            break
        computed = [x for x in node.inputs if x is not None and constant(x) is None]
        node = computed[0].producer() if computed else None
    return node is not None and _has_window(node)
