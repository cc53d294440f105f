"""Maps stacked along an axis of their own, (1, r, c, h, w), become one map of their channels.

Networks with split attention (ResNeSt, SKNet) stack r branches, weight each channel of each branch,
and add the branches. Of values that a Reshape makes of maps (1, r c, h, w):

1. A Concat of stacks joins the channels of the maps; a product or sum is one of the maps. A Reshape
   follows.
2. A ReduceSum of branches adds parts of the map. Parts that are no whole words of a machine are
   added by a convolution with ones.
3. A Softmax of two branches is the Sigmoid of their difference, which the convolution before it
   computes.

This rewrite replaces operators of the user's graph, so only strategies that ask for it run it
(`REWRITES`). Values that are quantised already are left alone.
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.gather_as_conv import convolve
from opu_fuse.frontend.canonical.joined_heads import size_of
from opu_fuse.frontend.canonical.pools import reduced_axes
from opu_fuse.frontend.canonical.turned_layers import WORD
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    is_point_convolution,
    is_standard,
    operand,
    quant_of,
    restore_shape,
    rewrite,
    sole_reader,
    standard_nodes,
    static_shape,
)
from opu_fuse.quant import REWRITE_KEY

_WHY = "stacked maps as one map of their channels"
_KINDS = ("Concat", "Mul", "Add", "Sub", "ReduceSum", "Softmax")


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_rewrite(model.graph, node) for node in standard_nodes(model.graph, *_KINDS)]
    return any(changed)


def _rewrite(graph: ir.Graph, node: ir.Node) -> bool:
    shape = static_shape(node.outputs[0])
    if shape is None or any(quant_of(v) is not None for v in (*node.inputs, *node.outputs) if v):
        return False
    match node.op_type:
        case "Softmax":
            return _of_two(graph, node, shape)
        case "ReduceSum":
            return _sum(graph, node)
        case _:
            return _of_maps(graph, node, shape)


def _map(value: ir.Value | None) -> ir.Value | None:
    """The map of which a Reshape makes a stack, else None."""
    node = None if value is None else value.producer()
    source = None if node is None or not is_standard(node, "Reshape") else node.inputs[0]
    stack, shape = static_shape(value), static_shape(source)
    if stack is None or shape is None or len(stack) != 5 or stack[0] != 1:
        return None
    return source if shape == (1, stack[1] * stack[2], *stack[3:]) else None


def _of_maps(graph: ir.Graph, node: ir.Node, shape: tuple[int, ...]) -> bool:  # Case 1
    maps = [_map(v) for v in node.inputs]
    sizes = [static_shape(v) or () for v in node.inputs]
    joins = node.op_type == "Concat"
    if any(v is None for v in maps) or (joins and node.attributes.get_int("axis", 0) % 5 != 1):
        return False
    if not joins and len({size[1:3] for size in sizes}) > 1:
        return False  # one branch or channel for all
    restore_shape(graph, node, (1, shape[1] * shape[2], *shape[3:]))
    rewrite(node, node.op_type, maps, {"axis": 1} if joins else None)
    node.metadata_props[REWRITE_KEY] = _WHY
    return True


def _sum(graph: ir.Graph, node: ir.Node) -> bool:  # Case 2
    x = _map(node.inputs[0])
    if x is None or reduced_axes(node) != frozenset({1}):
        return False
    _, branches, channels, *size = size_of(node.inputs[0])
    whole = (1, channels, *size)
    restore_shape(graph, node, whole)
    if channels % WORD:
        ones = np.tile(np.eye(channels, dtype=np.int8), branches)
        convolve(graph, node, "Conv", x, ones[:, :, None, None], 1)
    else:
        total, *rest = [_branch(graph, node, x, n, whole) for n in range(branches)]
        for number, part in enumerate(rest[:-1]):
            name = f"{node.name}/sum{number}"
            total = insert_before(node, "Add", [total, part], name=name, shape=whole)
        rewrite(node, "Add", [total, *rest[-1:]])
    node.metadata_props[REWRITE_KEY] = _WHY
    return True


def _branch(
    graph: ir.Graph, node: ir.Node, x: ir.Value, number: int, shape: tuple[int, ...]
) -> ir.Value:
    name, channels = f"{node.name}/branch{number}", shape[1]
    ends = {"starts": number * channels, "ends": (number + 1) * channels, "axes": 1}
    constants = [add_constant(graph, f"{name}/{k}", np.array([n])) for k, n in ends.items()]
    return insert_before(node, "Slice", [x, *constants], name=name, shape=shape)


def _of_two(graph: ir.Graph, node: ir.Node, shape: tuple[int, ...]) -> bool:  # Case 3
    x = node.inputs[0]
    view = None if x is None else x.producer()
    if x is None or view is None or not is_standard(view, "Reshape") or shape[:2] != (1, 2):
        return False
    source = view.inputs[0]
    layer = None if source is None else source.producer()
    if source is None or layer is None or sole_reader(x) is not node:
        return False
    if sole_reader(source) is not view or node.attributes.get_int("axis", -1) % len(shape) != 1:
        return False
    if size_of(source)[0] != 1 or not _subtract(graph, layer):
        return False
    restore_shape(graph, node, size_of(source))
    rewrite(node, "Sigmoid", [source])
    node.metadata_props[REWRITE_KEY] = "a softmax of two branches as a function of their difference"
    return True


def _subtract(graph: ir.Graph, layer: ir.Node) -> bool:
    """Let a layer compute the difference of the two halves of its channels, either way."""
    weight, bias = (constant(operand(layer, index)) for index in (1, 2))
    if not is_point_convolution(layer) or weight is None or len(weight) % 2:
        return False
    if layer.attributes.get_int("group", 1) != 1 or (bias is None and operand(layer, 2)):
        return False
    for index, data in ((1, weight), (2, bias)):
        if data is not None:
            first, second = np.split(data, 2)
            between = np.concatenate([first - second, second - first])
            value = add_constant(graph, f"{layer.name}/difference{index}", between)
            layer.replace_input_with(index, value)
    layer.metadata_props[REWRITE_KEY] = "the difference of two branches instead of both"
    return True
