"""SpaceToDepth and DepthToSpace become convolutions with one-hot weights.

A machine reads and writes words that hold all channels of a pixel. Moving single values would fall
to the host; the array can select them instead.

1. SpaceToDepth becomes a Conv with an n by n kernel and stride n. So do its spelling as Reshape,
   Transpose, Reshape and a Concat of strided Slices ("Focus", the first layer of many detectors).
   If one Conv is the only reader, its weights absorb the selection. Of channels-last maps, Reshape,
   Transpose, Reshape (patch merging) becomes such a Concat first.
2. DepthToSpace (pixel shuffle) becomes a ConvTranspose, in both spellings.
3. A strided Slice that does not start at pixel 0 becomes a Conv.
4. A Concat as in case 1 right after an input becomes a SpaceToDepth, which the input port performs,
   and a Gather of channels, which folds into the next weights.

Operators that a port performs do not change. These rewrites replace operators of the user's graph,
so only strategies that ask for them run them (`REWRITES`).
"""

from collections.abc import Mapping, Sequence
from itertools import product

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
from opu_fuse.frontend.canonical.token_images import CHANNELS_FIRST, CHANNELS_LAST
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    detach,
    insert_after,
    is_standard,
    merge_sources,
    move_before,
    operand,
    quant_of,
    reshape_before,
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
from opu_fuse.model.products import is_product
from opu_fuse.quant import NORMS_KEY, REWRITE_KEY

_STRIDES = range(2, 5)
"""Strides that are rewritten; larger ones give weights that are almost all zeros."""
_AT_PORTS = CONVERTS | PERMUTES | {"Reshape"}
_BETWEEN = (
    ELEMENT_WISE
    | AFFINE
    | moving(Moves.SELECT, Moves.JOIN, Moves.PIXELS)
    | (QUANTISED & (POOLS | moving(Moves.PAD, Moves.REPEAT)))
)
_MOVED_BY_ATTENTION = ("Reshape", "Transpose")
_INTO_PIXELS: Mapping[tuple[int, ...], str] = {
    (0, 1, 4, 2, 5, 3): "CRD",
    (0, 3, 4, 1, 5, 2): "DCR",
}
"""Mode of the DepthToSpace that Reshape, Transpose, Reshape spells, by the permutation."""
_INTO_CHANNELS: Mapping[tuple[int, ...], bool] = {
    (0, 3, 5, 1, 2, 4): False,
    (0, 1, 3, 5, 2, 4): True,
}
"""`channels_first` of the SpaceToDepth that Reshape, Transpose, Reshape spells."""
_MERGES: Mapping[tuple[int, ...], bool] = {(0, 1, 3, 2, 4, 5): True, (0, 1, 3, 4, 2, 5): False}
"""Permutations of patch merging of channels-last maps -> whether pixels of a row are neighbours."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    graph, changed = model.graph, False
    nodes = standard_nodes(graph, *_RULES)
    # Concats first: they absorb the Slices that they read.
    for node in sorted(nodes, key=lambda n: n.op_type != "Concat"):
        if _is_image(node.inputs[0]) or node.op_type == "Reshape":
            changed |= _RULES[node.op_type](graph, node)
    return changed


def _space_to_depth(graph: ir.Graph, node: ir.Node) -> bool:
    block_size = node.attributes.get_int("blocksize", 1)
    return _into_channels(graph, node, node.inputs[0], block_size, channels_first=False)


def _depth_to_space(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 2, for a DepthToSpace."""
    x, block_size = node.inputs[0], node.attributes.get_int("blocksize", 1)
    if x is None or quant_of(x) != quant_of(node.outputs[0]):
        return False
    if _move_before(node, x):
        return True
    if not _is_inside(node, x, block_size):
        return False
    channels = static_shape(x)[1]  # type: ignore[index]  # `run` has checked it
    result_channels = channels // block_size**2
    channels_first = node.attributes.get_string("mode", "DCR") == "CRD"
    target = all_pixels(
        result_channels, block_size, channels_first=channels_first
    )  # the inverse mapping
    ones = np.zeros((channels, result_channels, block_size, block_size), np.int8)
    ones[np.arange(channels), target.channels, target.rows, target.columns] = 1
    convolve(graph, node, "ConvTranspose", x, ones, block_size)
    return True


def _move_before(node: ir.Node, x: ir.Value) -> bool:
    """Move an elementwise function between a DepthToSpace and an output before the DepthToSpace.

    The output port then performs the DepthToSpace. Super-resolution networks clip their output.
    """
    shuffled = node.outputs[0]
    reader = sole_reader(shuffled)
    if reader is None or reader.inputs[0] is not shuffled or not is_standard(reader, *ELEMENT_WISE):
        return False
    constants = [constant(v) for v in reader.inputs[1:] if v is not None]
    all_scalars = all(data is not None and data.size == 1 for data in constants)
    if not all_scalars or not _is_at_output(reader.outputs[0]):
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
    """Cases 1 and 2, spelled as Reshape, Transpose, Reshape."""
    transpose = _only_for(node)
    split_view = _only_for(transpose)
    if transpose is None or split_view is None or not is_standard(transpose, "Transpose"):
        return False
    x, split, target = (
        split_view.inputs[0],
        *map(static_shape, (split_view.outputs[0], node.outputs[0])),
    )
    if not is_standard(split_view, "Reshape") or split is None or len(split) != 6:
        return False
    if _merge(graph, node, transpose, split_view):
        return True
    if not _is_image(x):
        return False
    _, channels, rows, columns = static_shape(x)  # type: ignore[misc]  # `_is_image` has checked it
    order = (*transpose.attributes.get_ints("perm", ()),)
    block_size = split[2 if order in _INTO_PIXELS else 3]
    if mode := _INTO_PIXELS.get(order):
        size = (1, channels // block_size**2, rows * block_size, columns * block_size)
        split_sizes = (
            (size[1], block_size, block_size)
            if mode == "CRD"
            else (block_size, block_size, size[1])
        )
        if (split, target) == ((1, *split_sizes, rows, columns), size):
            merge_sources(node, [split_view, transpose])
            rewrite(node, "DepthToSpace", [x], {"blocksize": block_size, "mode": mode})
            return True
    size = (1, channels * block_size**2, rows // block_size, columns // block_size)
    split_sizes = (size[2], block_size, size[3], block_size)
    if order not in _INTO_CHANNELS or (split, target) != ((1, channels, *split_sizes), size):
        return False
    return _into_channels(graph, node, x, block_size, channels_first=_INTO_CHANNELS[order])


def _merge(graph: ir.Graph, node: ir.Node, transpose: ir.Node, split_view: ir.Node) -> bool:
    """Case 1 for channels-last maps: join the pixels of squares along the channels."""
    x, split = split_view.inputs[0], static_shape(split_view.outputs[0])
    by_rows = _MERGES.get((*transpose.attributes.get_ints("perm", ()),))
    target, name = static_shape(node.outputs[0]), node.name
    assert x is not None
    assert split is not None
    _, rows, block, columns, across, channels = split
    if by_rows is None or block != across or not _is_inside(node, x, block):
        return False
    if target is None or target[-1] != block * block * channels:
        return False
    size = rows * block, columns * block
    image = reshape_before(node, x, (1, *size, channels), name=f"{name}/image")
    image = move_before(
        *(node, "Transpose", [image], {"perm": CHANNELS_FIRST}),
        name=f"{name}/first",
        shape=(1, channels, *size),
    )
    ends, axes, steps = (
        add_constant(graph, f"{name}/{what}", np.array(data))
        for what, data in (("ends", size), ("axes", (2, 3)), ("steps", (block, block)))
    )
    parts: list[ir.Value] = []
    for corner in product(range(block), repeat=2):
        own = f"{name}/{len(parts)}"
        start = add_constant(graph, f"{own}/start", np.array(corner if by_rows else corner[::-1]))
        inputs = [image, start, ends, axes, steps]
        parts.append(
            move_before(node, "Slice", inputs, name=own, shape=(1, channels, rows, columns))
        )
    merge_sources(node, [split_view, transpose])
    squares = (1, target[-1], rows, columns)
    value = move_before(node, "Concat", parts, {"axis": 1}, name=f"{name}/squares", shape=squares)
    value = move_before(
        *(node, "Transpose", [value], {"perm": CHANNELS_LAST}),
        name=f"{name}/last",
        shape=(1, rows, columns, target[-1]),
    )
    rewrite(node, "Reshape", [value, add_constant(graph, f"{name}/size", np.array(target))])
    return True


def _only_for(node: ir.Node | None) -> ir.Node | None:
    """The producer of a node's operand, if the node is its only reader and quantised alike."""
    x = None if node is None else node.inputs[0]
    if node is None or x is None or sole_reader(x) is not node:
        return None
    return x.producer() if quant_of(x) in {None, quant_of(node.outputs[0])} else None


def _into_channels(
    graph: ir.Graph, node: ir.Node, x: ir.Value | None, block: int, *, channels_first: bool
) -> bool:
    """Case 1: replace a node by a Conv with stride `block`. channels_first: see `all_pixels`."""
    if x is None or not _is_inside(node, x, block):
        return False
    channels = static_shape(x)[1]  # type: ignore[index]  # callers have checked it
    choose(graph, node, x, all_pixels(channels, block, channels_first=channels_first))
    return True


def _concat(graph: ir.Graph, node: ir.Node) -> bool:
    """Cases 1 and 4, for a Concat of strided Slices."""
    if node.attributes.get_int("axis", 0) not in {1, -3} or len(node.inputs) < 2:
        return False
    slices = [every_nth(value) for value in node.inputs]
    (x, block_size, _), offsets = slices[0], [offset for _, _, offset in slices]
    if x is None or any((source, steps) != (x, block_size) for source, steps, _ in slices):
        return False
    if block_size not in _STRIDES or quant_of(x) != quant_of(node.outputs[0]):
        return False
    _, channels, *size = static_shape(x)  # type: ignore[misc]  # `every_nth` has checked it
    computed = is_computed(x)
    if not computed and (not is_at_input(x) or any(n % block_size for n in size)):
        return False
    merge_sources(node, [p for v in node.inputs if v is not None and (p := v.producer())])
    if computed:
        choose(graph, node, x, whole_pixels(channels, block_size, offsets))
    else:
        _pack_at_input(graph, node, x, block_size, offsets)
    return True


def _pack_at_input(
    graph: ir.Graph, node: ir.Node, x: ir.Value, block: int, offsets: Sequence[tuple[int, int]]
) -> None:
    """Case 4 for a Concat: SpaceToDepth and a Gather of channels."""
    _, channels, *size = static_shape(x)  # type: ignore[misc]  # the caller has checked it
    shape = (1, channels * block**2, *(n // block for n in size))
    attributes = {"blocksize": block}
    name = f"{node.name}/pixels"
    packed = move_before(node, "SpaceToDepth", [x], attributes, name=name, shape=shape)
    first_channels = [(row * block + column) * channels for row, column in offsets]
    order = np.add.outer(first_channels, np.arange(channels)).reshape(-1)
    indices = add_constant(graph, f"{node.name}/order", order.astype(np.int64))
    rewrite(node, "Gather", [packed, indices], {"axis": 1})
    node.metadata_props[REWRITE_KEY] = "pixels put into channels as the input is packed"


def _slice(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 3, for a Slice or MaxPool that selects every n-th pixel."""
    y = node.outputs[0]
    x, stride, offset = every_nth(y)
    if (
        x is None
        or stride not in _STRIDES
        or offset == (0, 0)
        or not (y.uses() or y.is_graph_output())
    ):
        return False
    if quant_of(x) != quant_of(y) or not is_computed(x):
        return False
    channels = static_shape(x)[1]  # type: ignore[index]  # `every_nth` has checked it
    choose(graph, node, x, whole_pixels(channels, stride, [offset]))
    return True


_RULES = {
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Gather": take_order,
    "MaxPool": _slice,  # the form in which `slices` writes strided Slices from pixel 0
    "Reshape": _reshape,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
}


def _is_image(value: ir.Value | None) -> bool:
    shape = static_shape(value)
    return shape is not None and len(shape) == 4 and shape[0] == 1 and 0 not in shape


def _is_inside(node: ir.Node, x: ir.Value, block: int) -> bool:
    """Whether a node moves pixels of a computed map without requantising them.

    Nodes at an output do not count: the port performs them.
    """
    y = node.outputs[0]
    if block not in _STRIDES or quant_of(x) != quant_of(y):
        return False
    return is_computed(x) and not _is_at_output(y)


def is_at_input(value: ir.Value) -> bool:
    """Whether a port computes a value from an input."""
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
    """Whether the array computes a value, possibly followed by operators that machines run.

    A map that the host computes is rearranged by the host. A machine with norms runs attention.
    """
    node = value.producer()
    norms = () if node is None or node.graph is None else node.graph.meta.get(NORMS_KEY, ())
    between = _BETWEEN | {*norms, *(_MOVED_BY_ATTENTION if norms else ())}
    while node is not None and not is_standard(node, *LAYERS):
        source = operand(node, 0)
        if norms and is_product(node):
            return True
        if source is None or not (is_standard(node, *between) or _keeps_pixels(node)):
            return False
        node = source.producer()
    return node is not None


def _keeps_pixels(node: ir.Node) -> bool:
    """Whether a node views a map as one of other rows and columns."""
    before, after = (static_shape(v) or () for v in (node.inputs[0], node.outputs[0]))
    return (
        is_standard(node, "Reshape") and len(before) == len(after) == 4 and before[:2] == after[:2]
    )
