"""Distances as expected bins (YOLO) are computed for each map and side.

    maps (1, sides * bins, h, w) -> Reshape -> Concat (1, sides * bins, n)
    -> Reshape (1, sides, bins, n) -> Transpose -> Softmax of bins
    -> 1x1 convolution (1, 1, sides, n)

Only the host joins maps of several sizes. So machines would get all pixels at once, as a segment of
their own, when no other layer is left that could run next to the Softmax. Each map here is a 1x1
convolution. It becomes one for each side, with the bins as its channels:

    for each map and side: convolution (1, bins, 1, h * w) -> Softmax of channels
    for each map: Concat of channels -> convolution (1, sides, h, w) -> Reshape
    -> Concat (1, sides, n) -> Reshape

Where the machine has a Softmax for each quarter of a word, and a side fills one, all sides of a map
remain one convolution before a Softmax over groups of channels (`model/grouped_softmax.py`).

Each result is the sum of the same products. A channel Slice or Split of joined maps that hold other
channels as well (classes) is read from their parts first. Only for machines that run Softmax and
Concat, and before quantisation: a quantised model rounds joined maps to a common scale.
"""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from msgspec import Struct
from onnx_ir.passes import common

from opu_fuse.frontend.canonical.element_order import Source, sources
from opu_fuse.frontend.canonical.joined_heads import size_of
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    is_point_convolution,
    is_standard,
    merge_sources,
    move_before,
    operand,
    replace_value,
    reshape_before,
    rewrite,
    sole_reader,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.effort import multiplications
from opu_fuse.model.grouped_softmax import of_groups
from opu_fuse.normalisation import QUARTERS
from opu_fuse.quant import GROUPED_KEY, META_KEY, NORMS_KEY, PRODUCTS_KEY, REWRITE_KEY

_WHY = "of each map and side, so that other layers run next to its Softmax"


class _Bins(Struct, frozen=True, kw_only=True):
    """A Softmax of bins, the convolution after it, the convolutions before it, a map each, and what
    moves values between them and the Softmax.
    """

    softmax: ir.Node
    last: ir.Node
    maps: tuple[ir.Node, ...]
    between: tuple[ir.Node, ...]
    sides: int
    bins: int


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    graph, changed = model.graph, False
    if not {"Softmax", "Concat"} <= {*graph.meta.get(NORMS_KEY, ())}:
        return False
    if any(META_KEY in v.meta for node in graph for v in node.outputs):
        return False
    for node in standard_nodes(graph, "Softmax"):
        joined = _joined(node)
        if joined is None:
            continue
        if (parts := _parts(joined)) is not None:
            _read_parts(joined, parts)
            common.RemoveUnusedNodesPass()(model)  # else they read the convolutions as well
            joined, changed = _joined(node), True
        found = None if joined is None else _bins(node, joined)
        if found is not None:
            _compute_each(graph, found)
            changed = True
    return changed


def _joined(softmax: ir.Node) -> Source | None:
    """The Concat of pixels, as source of the bins."""
    x, shape = softmax.inputs[0], static_shape(softmax.inputs[0])
    if x is None or shape is None or len(shape) != 4 or shape[0] != 1:
        return None
    last = sole_reader(softmax.outputs[0])
    if softmax.attributes.get_int("axis", -1) % 4 != 1 or last is None or not _is_sum(last):
        return None
    for source in sources(x):
        size, node = static_shape(source.value), source.value.producer()
        if node is None or size is None or not _is_flat(size) or size[-1] != shape[3]:
            continue
        last_axis = len(size) - 1
        if is_standard(node, "Concat") and node.attributes.get_int("axis") in {-1, last_axis}:
            return source if _first(source) is not None else None
    return None


def _is_flat(shape: Sequence[int]) -> bool:
    """(1, c, n) or (1, c, 1, n)."""
    return len(shape) in {3, 4} and shape[0] == 1 and math.prod(shape[2:]) == shape[-1]


def _first(source: Source) -> int | None:
    """The first channel of the bins; None if channels and pixels have another order."""
    _, bins, sides, pixels = source.elements.shape
    own = np.arange(bins)[:, None] + bins * np.arange(sides)
    first = int(source.elements.reshape(-1)[0]) // pixels
    wanted = (first + own)[..., None] * pixels + np.arange(pixels)
    return first if np.array_equal(source.elements[0], wanted) else None


def _is_sum(node: ir.Node) -> bool:
    """Whether a node is a 1x1 convolution with one result and constant weights."""
    weight, bias = constant(operand(node, 1)), operand(node, 2)
    known = weight is not None and (bias is None or constant(bias) is not None)
    return _is_point(node) and known and weight is not None and len(weight) == 1


def _is_point(node: ir.Node | None) -> bool:
    if node is None or not is_point_convolution(node):
        return False
    return static_shape(node.inputs[0]) is not None and node.attributes.get_int("group", 1) == 1


def _parts(source: Source) -> list[tuple[ir.Value, ...]] | None:
    """For each reader of joined maps the maps that hold its channels; None if the maps are read
    whole, or a reader's channels are not those of one operand of each.
    """
    node = source.value.producer()
    assert node is not None
    spans = [_channels(value) for value in _results(source.value)]
    channels = size_of(source.value)[1]
    if (0, channels) in spans:
        return None
    found: list[tuple[ir.Value, ...]] = []
    for span in spans:
        maps = tuple([_part(v, span) for v in node.inputs if v is not None]) if span else ()
        if not maps or None in maps:
            return None
        found.append(tuple([m for m in maps if m is not None]))
    return found


def _results(value: ir.Value) -> list[ir.Value]:
    """What the readers of a value compute, as far as it is used."""
    readers = dict.fromkeys(use.node for use in value.uses())
    results = [result for reader in readers for result in reader.outputs]
    return [v for v in results if v.uses() or v.is_graph_output()]


def _channels(value: ir.Value) -> tuple[int, int] | None:
    """(first, count) of the channels that a Slice or Split of flattened maps takes; all channels
    for other operators.
    """
    node = value.producer()
    assert node is not None
    channels, pixels = size_of(node.inputs[0])[1], size_of(node.inputs[0])[-1]
    if not is_standard(node, "Slice", "Split"):
        return 0, channels
    near = next((s for s in sources(value) if s.links == (node,)), None)
    if near is None or near.elements.shape[-1] != pixels:
        return None
    first, elements = int(near.elements.flat[0]) // pixels, near.elements.reshape(-1)
    if not np.array_equal(elements, np.arange(elements.size) + first * pixels):
        return None
    return first, elements.size // pixels


def _part(flat: ir.Value, span: tuple[int, int]) -> ir.Value | None:
    """The operand of a channel Concat that has these channels of a flattened map."""
    whole = _map_of(flat)
    node = None if whole is None else whole.producer()
    if whole is None or node is None or not is_standard(node, "Concat"):
        return None
    if node.attributes.get_int("axis", 0) % 4 != 1:
        return None
    first = 0
    for value in node.inputs:
        count = size_of(value)[1]
        if (first, count) == span:
            return value
        first += count
    return None


def _map_of(flat: ir.Value) -> ir.Value | None:
    """The map (1, c, h, w) of which a value is the flattened form, or which it is."""
    node, x = flat.producer(), flat
    if node is not None and is_standard(node, "Reshape") and node.inputs[0] is not None:
        x = node.inputs[0]
    shape = static_shape(x)
    is_map = shape is not None and len(shape) == 4
    return x if is_map and size_of(x)[:2] == size_of(flat)[:2] else None


def _read_parts(source: Source, parts: Sequence[Sequence[ir.Value]]) -> None:
    """Let each reader of joined maps have a Concat of its own."""
    for value, maps in zip(_results(source.value), parts, strict=True):
        node = value.producer()
        assert node is not None
        shape, flat = size_of(value), []
        for number, m in enumerate(maps):
            size = *shape[:-1], math.prod(size_of(m)[2:])
            flat.append(reshape_before(node, m, size, name=f"{value.name}/{number}/flat"))
        attributes, name = {"axis": len(shape) - 1}, f"{value.name}/joined"
        joined = move_before(node, "Concat", flat, attributes, name=name, shape=shape)
        made, before = joined.producer(), source.value.producer()
        assert made is not None
        assert before is not None
        merge_sources(made, [before])
        replace_value(value, joined)


def _bins(softmax: ir.Node, source: Source) -> _Bins | None:
    """The bins of joined maps, all of which are convolutions that nothing else reads."""
    joined, last = source.value.producer(), sole_reader(softmax.outputs[0])
    _, bins, sides, _ = source.elements.shape
    assert joined is not None
    assert last is not None
    chain = [source.value, *(link.outputs[0] for link in source.links[:-1])]
    alone = all(sole_reader(value) is not None for value in chain)
    if not alone or size_of(source.value)[1] != bins * sides:
        return None
    maps: list[ir.Node] = []
    for flat in joined.inputs:
        x = None if flat is None else _map_of(flat)
        node = None if x is None else x.producer()
        if x is None or flat is None or node is None or not _is_point(node):
            return None
        known = all(constant(v) is not None for v in node.inputs[1:] if v is not None)
        unread = sole_reader(x) is not None and sole_reader(flat) is not None
        if not (known and unread):
            return None
        maps.append(node)
    between = (v.producer() for v in (*joined.inputs, *chain) if v is not None)
    return _Bins(
        softmax=softmax,
        last=last,
        maps=tuple(maps),
        between=tuple([node for node in between if node is not None and node not in maps]),
        sides=sides,
        bins=bins,
    )


def _compute_each(graph: ir.Graph, found: _Bins) -> None:
    """Replace the convolution after the Softmax by those of all maps, joined."""
    last, softmax = found.last, found.softmax
    merge_sources(last, [softmax])
    products = multiplications(last)
    pixels = size_of(last.outputs[0])[3]
    flat = []
    for node in found.maps:
        name = f"{last.name}/{node.name}"
        _, channels, rows, cols = size_of(node.inputs[0])
        assert node.inputs[0] is not None
        if found.sides == QUARTERS and of_groups(found.bins) in graph.meta[NORMS_KEY]:
            joined = _of_groups(found, node, node.inputs[0])
        else:
            row = (1, channels, 1, rows * cols)
            x = reshape_before(node, node.inputs[0], row, name=f"{name}/row")
            sides = [_probabilities(graph, found, node, x, side) for side in range(found.sides)]
            shape = (1, found.sides * found.bins, 1, rows * cols)
            axis, own = {"axis": 1}, f"{name}/bins"
            joined = move_before(last, "Concat", sides, axis, name=own, shape=shape)
            joined = reshape_before(last, joined, (*shape[:2], rows, cols), name=f"{name}/map")
        sums = [_of_all_sides(graph, v, found) for v in last.inputs[1:] if v is not None]
        size = (1, found.sides, rows, cols)
        result = _insert_point(last, [joined, *sums], f"{name}/sides", size)
        made = result.producer()
        assert made is not None
        merge_sources(made, [node])
        made.metadata_props[PRODUCTS_KEY] = str(products // pixels * rows * cols)
        row = (1, found.sides, rows * cols)
        flat.append(reshape_before(last, result, row, name=f"{name}/flat"))
    shape = (1, found.sides, pixels)
    whole = move_before(last, "Concat", flat, {"axis": 2}, name=f"{last.name}/joined", shape=shape)
    target = add_constant(graph, f"{last.name}/shape", np.array(size_of(last.outputs[0]), np.int64))
    rewrite(last, "Reshape", [whole, target])
    last.metadata_props.setdefault(REWRITE_KEY, _WHY)


def _probabilities(
    graph: ir.Graph, found: _Bins, node: ir.Node, x: ir.Value, side: int
) -> ir.Value:
    """The Softmax of the bins of one side, (1, bins, 1, h * w)."""
    span = slice(side * found.bins, (side + 1) * found.bins)
    own = [_rows(graph, v, span, side) for v in node.inputs[1:] if v is not None]
    shape = (1, found.bins, *size_of(x)[2:])
    logits = _insert_point(node, [x, *own], f"{node.name}/{side}", shape)
    name = f"{found.softmax.name}/{node.name}/{side}"
    result = insert_before(found.softmax, "Softmax", [logits], {"axis": 1}, name=name, shape=shape)
    made = result.producer()
    assert made is not None
    merge_sources(made, found.between)  # who keeps them in floats means the Softmax, too
    return result


def _of_groups(found: _Bins, node: ir.Node, x: ir.Value) -> ir.Value:
    """The Softmax of the bins of all sides, (1, sides * bins, h, w)."""
    weights = [v for v in node.inputs[1:] if v is not None]
    rows, cols = size_of(x)[2:]
    shape = (1, found.sides * found.bins, rows, cols)
    groups = (1, found.sides, found.bins, rows * cols)
    softmax, name = found.softmax, f"{found.softmax.name}/{node.name}"
    logits = _insert_point(node, [x, *weights], f"{node.name}/logits", shape)
    logits = reshape_before(softmax, logits, groups, name=f"{name}/groups")
    result = insert_before(softmax, "Softmax", [logits], {"axis": 2}, name=name, shape=groups)
    result = reshape_before(softmax, result, shape, name=f"{name}/map")
    made = result.producer()
    assert made is not None
    # Who keeps what is between in floats means the Softmax, too.
    merge_sources(made, [softmax, *found.between])
    made.metadata_props[GROUPED_KEY] = "each fills a quarter of a word"
    return result


def _insert_point(
    node: ir.Node, inputs: Sequence[ir.Value], name: str, shape: Sequence[int]
) -> ir.Value:
    """Insert a 1x1 convolution before a node; return its result."""
    return insert_before(node, "Conv", inputs, {"kernel_shape": [1, 1]}, name=name, shape=shape)


def _rows(graph: ir.Graph, value: ir.Value, span: slice, side: int) -> ir.Value:
    """Weights or biases of some output channels."""
    data = constant(value)
    assert data is not None
    return add_constant(graph, f"{value.name}/{side}", np.ascontiguousarray(data[span]))


def _of_all_sides(graph: ir.Graph, value: ir.Value, found: _Bins) -> ir.Value:
    """The weights (1, bins, 1, 1) for each side, other bins 0; a bias for each side."""
    data = constant(value)
    assert data is not None
    if data.ndim == 1:
        whole = np.repeat(data, found.sides)
    else:
        whole = np.kron(np.eye(found.sides, dtype=data.dtype), data[0, :, 0, 0])[..., None, None]
    return add_constant(graph, f"{value.name}/sides", whole)
