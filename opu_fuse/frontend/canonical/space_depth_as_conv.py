"""Pixels that go into channels, and channels into pixels, are convolutions with ones.

A machine reads and writes words of all channels of a pixel; what puts single values elsewhere is
the host's. Its array can choose them.

1. SpaceToDepth, the same in a Reshape, Transpose, Reshape, and a Concat of every n-th pixel from
   several places on (the first step of many detectors, "Focus") are a Conv over n by n pixels, n
   apart; the weights of a Conv that alone reads them do it, too.
2. DepthToSpace (a pixel shuffle), likewise, is a ConvTranspose.
3. A Slice of every n-th pixel from another than the first on is a Conv.
4. Right behind an input a Concat as above is a SpaceToDepth, which a port does, and a choice of
   channels: the order of the weights behind it.

What a port does is left to it. The user's graph has one operator there: only strategies that ask
for it see these.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.gather_as_conv import (
    all_pixels,
    choose,
    convolve,
    take_order,
    whole_pixels,
)
from opu_fuse.frontend.canonical.slices import every_nth
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    detach,
    insert_after,
    insert_before,
    is_standard,
    merge_sources,
    operand,
    quant_of,
    rewrite,
    sole_reader,
    standard_nodes,
    static_shape,
    values_of,
)
from opu_fuse.model.operator_record import Moves
from opu_fuse.model.operator_sets import (
    AFFINE,
    CONVERTS,
    ELEMENT_WISE,
    LAYERS,
    PERMUTES,
    POOLS,
    QUANTISED,
    moving,
)
from opu_fuse.quant import META_KEY, REWRITE_KEY

_APART = range(2, 5)
"""Pixels from one to the next; more make weights that are almost all zeros."""
_AT_PORTS = CONVERTS | PERMUTES | {"Reshape"}
_BETWEEN = (
    ELEMENT_WISE
    | AFFINE
    | moving(Moves.SELECT, Moves.JOIN, Moves.PIXELS)
    | (QUANTISED & (POOLS | moving(Moves.PAD, Moves.REPEAT)))
)
_INTO_PIXELS: Mapping[tuple[int, ...], str] = {
    (0, 1, 4, 2, 5, 3): "CRD",
    (0, 3, 4, 1, 5, 2): "DCR",
}
"""The mode of the DepthToSpace that a Transpose between two Reshapes is."""
_INTO_CHANNELS: Mapping[tuple[int, ...], bool] = {
    (0, 3, 5, 1, 2, 4): False,
    (0, 1, 3, 5, 2, 4): True,
}
"""`channels_first` of what such a Transpose chooses."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    graph, changed = model.graph, False
    nodes = standard_nodes(graph, *_RULES)
    for node in sorted(nodes, key=lambda n: n.op_type != "Concat"):  # Slices of one go with it
        if _is_image(node.inputs[0]) or node.op_type == "Reshape":
            changed |= _RULES[node.op_type](graph, node)
    return changed


def _space_to_depth(graph: ir.Graph, node: ir.Node) -> bool:
    apart = node.attributes.get_int("blocksize", 1)
    return _into_channels(graph, node, node.inputs[0], apart, channels_first=False)


def _depth_to_space(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 2."""
    x, apart = node.inputs[0], node.attributes.get_int("blocksize", 1)
    if x is None or quant_of(x) != quant_of(node.outputs[0]):
        return False
    if _behind(node, x):
        return True
    if not _is_inside(node, x, apart):
        return False
    channels = static_shape(x)[1]  # type: ignore[index]  # `run` has looked at it
    few = channels // apart**2
    channels_first = node.attributes.get_string("mode", "DCR") == "CRD"
    to = all_pixels(few, apart, channels_first=channels_first)  # what goes where, the other way
    ones = np.zeros((channels, few, apart, apart), np.int8)
    ones[np.arange(channels), to.channels, to.rows, to.columns] = 1
    convolve(graph, node, "ConvTranspose", x, ones, apart)
    return True


def _behind(node: ir.Node, x: ir.Value) -> bool:
    """A function of one number between a turn of pixels and an output goes in front, so that a
    port does the turn: networks for super-resolution clip what they give.
    """
    turned = node.outputs[0]
    reader = sole_reader(turned)
    if reader is None or reader.inputs[0] is not turned or not is_standard(reader, *ELEMENT_WISE):
        return False
    numbers = [constant(v) for v in reader.inputs[1:] if v is not None]
    single = all(data is not None and data.size == 1 for data in numbers)
    if not single or not _is_at_output(reader.outputs[0]):
        return False
    name, attributes = node.name or "", values_of(node)
    reader.replace_input_with(0, x)
    merge_sources(reader, [node])
    detach(node)
    insert_after(
        reader,
        reader.outputs[0],
        node.op_type,
        attributes=attributes,
        name=name,
        shape=static_shape(x) or (),
    )
    return True


def _reshape(graph: ir.Graph, node: ir.Node) -> bool:
    """Cases 1 and 2 in views and one turn."""
    turn = _only_for(node)
    first = _only_for(turn)
    if turn is None or first is None or not is_standard(turn, "Transpose"):
        return False
    x, split, target = first.inputs[0], *map(static_shape, (first.outputs[0], node.outputs[0]))
    if not is_standard(first, "Reshape") or not _is_image(x) or split is None or len(split) != 6:
        return False
    _, channels, rows, columns = static_shape(x)  # type: ignore[misc]  # `_is_image` has looked
    order = (*turn.attributes.get_ints("perm", ()),)
    apart = split[2 if order in _INTO_PIXELS else 3]
    if mode := _INTO_PIXELS.get(order):
        size = (1, channels // apart**2, rows * apart, columns * apart)
        inner = (size[1], apart, apart) if mode == "CRD" else (apart, apart, size[1])
        if (split, target) == ((1, *inner, rows, columns), size):
            merge_sources(node, [first, turn])
            rewrite(node, "DepthToSpace", [x], {"blocksize": apart, "mode": mode})
            return True
    size = (1, channels * apart**2, rows // apart, columns // apart)
    inner = (size[2], apart, size[3], apart)
    if order not in _INTO_CHANNELS or (split, target) != ((1, channels, *inner), size):
        return False
    return _into_channels(graph, node, x, apart, channels_first=_INTO_CHANNELS[order])


def _only_for(node: ir.Node | None) -> ir.Node | None:
    """What makes the operand of a node, for nobody else and rounded no otherwise than the node."""
    x = None if node is None else node.inputs[0]
    if node is None or x is None or sole_reader(x) is not node:
        return None
    return x.producer() if quant_of(x) in {None, quant_of(node.outputs[0])} else None


def _into_channels(
    graph: ir.Graph, node: ir.Node, x: ir.Value | None, apart: int, *, channels_first: bool
) -> bool:
    """Case 1. channels_first: as `all_pixels` has it."""
    if x is None or not _is_inside(node, x, apart):
        return False
    channels = static_shape(x)[1]  # type: ignore[index]  # callers have looked at it
    choose(graph, node, x, all_pixels(channels, apart, channels_first=channels_first))
    return True


def _concat(graph: ir.Graph, node: ir.Node) -> bool:
    """Cases 1 and 4."""
    if node.attributes.get_int("axis", 0) not in {1, -3} or len(node.inputs) < 2:
        return False
    taken = [every_nth(value) for value in node.inputs]
    (x, apart, _), places = taken[0], [place for _, _, place in taken]
    if x is None or any((source, steps) != (x, apart) for source, steps, _ in taken):
        return False
    if apart not in _APART or quant_of(x) != quant_of(node.outputs[0]):
        return False
    _, channels, *size = static_shape(x)  # type: ignore[misc]  # `every_nth` has looked at it
    computed = is_computed(x)
    if not computed and (not _is_at_input(x) or any(n % apart for n in size)):
        return False
    merge_sources(node, [p for v in node.inputs if v is not None and (p := v.producer())])
    if computed:
        choose(graph, node, x, whole_pixels(channels, apart, places))
    else:
        _turn(graph, node, x, apart, places)
    return True


def _turn(
    graph: ir.Graph, node: ir.Node, x: ir.Value, apart: int, places: Sequence[tuple[int, int]]
) -> None:
    """Case 4, of a Concat."""
    _, channels, *size = static_shape(x)  # type: ignore[misc]  # the caller has looked at it
    shape = (1, channels * apart**2, *(n // apart for n in size))
    attributes = {"blocksize": apart}
    name = f"{node.name}/pixels"
    turned = insert_before(node, "SpaceToDepth", [x], attributes, name=name, shape=shape)
    if (rounded := quant_of(x)) is not None:
        turned.meta[META_KEY] = rounded
    first = [(row * apart + column) * channels for row, column in places]
    order = np.add.outer(first, np.arange(channels)).reshape(-1)
    indices = add_constant(graph, f"{node.name}/order", order.astype(np.int64))
    rewrite(node, "Gather", [turned, indices], {"axis": 1})
    node.metadata_props[REWRITE_KEY] = "pixels put into channels as the input is packed"


def _slice(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 3."""
    y = node.outputs[0]
    x, apart, place = every_nth(y)
    if x is None or apart not in _APART or place == (0, 0) or not (y.uses() or y.is_graph_output()):
        return False
    if quant_of(x) != quant_of(y) or not is_computed(x):
        return False
    channels = static_shape(x)[1]  # type: ignore[index]  # `every_nth` has looked at it
    choose(graph, node, x, whole_pixels(channels, apart, [place]))
    return True


_RULES = {
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Gather": take_order,
    "MaxPool": _slice,  # what `slices` makes of the first pixels of others
    "Reshape": _reshape,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
}


def _is_image(value: ir.Value | None) -> bool:
    shape = static_shape(value)
    return shape is not None and len(shape) == 4 and shape[0] == 1 and 0 not in shape


def _is_inside(node: ir.Node, x: ir.Value, apart: int) -> bool:
    """Whether a node turns the pixels of a map of the network, where no port does it, and rounds
    nothing.
    """
    y = node.outputs[0]
    if apart not in _APART or quant_of(x) != quant_of(y):
        return False
    return is_computed(x) and not _is_at_output(y)


def _is_at_input(value: ir.Value) -> bool:
    node = value.producer()
    while node is not None and is_standard(node, *_AT_PORTS) and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value.is_graph_input()


def _is_at_output(value: ir.Value) -> bool:
    while not value.is_graph_output():
        node = sole_reader(value)
        if node is None or not is_standard(node, *_AT_PORTS):
            return False
        value = node.outputs[0]
    return not value.uses()


def is_computed(value: ir.Value) -> bool:
    """Whether it comes from the array, through what machines run: a map that the host has is moved
    there.
    """
    node = value.producer()
    while node is not None and not is_standard(node, *LAYERS):
        above = operand(node, 0)
        if above is None or not is_standard(node, *_BETWEEN):
            return False
        node = above.producer()
    return node is not None
