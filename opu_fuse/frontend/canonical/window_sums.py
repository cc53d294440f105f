"""Sums of a residual stream with what windows compute run in the order of the windows.

A transformer with windows (Swin) normalises a map, permutes its pixels into windows, and puts them
back after the attention, before the sum:

    x ─┬─ norm ─ windows ─ attention ─ back ─ +        x ─ windows ─┬─ norm ─ attention ─ + ─ back
       └──────────────────────────────────────┘   →                 └────────────────────┘

On the left the last layer of the attention stores a map that a pass of its own adds to x. On the
right the layer adds x itself, and its stores put the pixels back. The windows are stored by the
pass that computes x. All values are the same. It needs a machine whose stores permute pixels.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.token_images import CHANNELS_LAST
from opu_fuse.frontend.editing import (
    TENSOR_KEY,
    is_standard,
    quant_of,
    replace_value,
    sole_reader,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.composites import Composite, norm_between, rolled_permutation
from opu_fuse.model.rolls import roll_of, rolls
from opu_fuse.quant import META_KEY

_NORMS = "LayerNormalization", "RMSNormalization"
_AXES = CHANNELS_LAST, (0, 1, 2, 3)
_MOST_STEPS = 8
"""Operators of a permutation with rolls along both axes."""


class _Branch(NamedTuple):
    """What is between the two readers of a map and their sum.

    norm: nodes of the norm; windows, back: the permutations after the norm and before the sum.
    """

    norm: tuple[ir.Node, ...]
    windows: Composite
    back: Composite


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    graph, changed = model.graph, False
    for node in standard_nodes(graph, "Add") if rolls(graph) else ():
        first, second = node.inputs
        assert first is not None
        assert second is not None
        for x, moved in ((first, second), (second, first)):
            branch = _branch(node, x, moved)
            if branch is not None:
                _reorder(graph, node, x, moved, branch)
                changed = True
                break
    return changed


def _branch(node: ir.Node, x: ir.Value, moved: ir.Value) -> _Branch | None:
    """The branch whose result `moved` a sum adds to x."""
    source, last = x.producer(), moved.producer()
    if source is None or last is None or x.is_graph_output() or sole_reader(moved) is not node:
        return None
    back = rolled_permutation(last)
    readers = [use.node for use in x.uses() if use.node is not node]
    if back is None or len(readers) != 1 or node.outputs[0].is_graph_output():
        return None
    (first,) = readers
    inner = sole_reader(first.outputs[0])
    end = None if inner is None else sole_reader(inner.outputs[0])
    found = norm_between(end) if inner and end and is_standard(inner, *_NORMS) else None
    if found is None or found.source is not x:
        return None
    windows = _permutation_of(found.nodes[-1].outputs[0])
    if windows is None or not _cancel(windows, back) or not _keeps(windows) or not _keeps(back):
        return None
    return _Branch(norm=found.nodes, windows=windows, back=back)


def _permutation_of(value: ir.Value) -> Composite | None:
    """The permutation, with its rolls, that alone reads a value."""
    found, at = None, value
    for _ in range(_MOST_STEPS):
        reader = _next(at)
        if reader is None:
            break
        at = reader.outputs[0]
        whole = rolled_permutation(reader)
        if whole is not None and whole.source is value:
            found = whole
    return found


def _next(value: ir.Value) -> ir.Node | None:
    """The last node of the step of a permutation that alone reads a value."""
    readers = {use.node for use in value.uses()}
    if value.is_graph_output() or not readers:
        return None
    first = readers.pop()
    if not readers:
        return first if is_standard(first, "Reshape", "Transpose") else None
    join = sole_reader(first.outputs[0])
    roll = None if join is None else roll_of(join)
    return join if roll is not None and {*roll.nodes} == {first, *readers, join} else None


def _cancel(windows: Composite, back: Composite) -> bool:
    """Whether one permutation restores the order of pixels that the other one changes."""
    both = _order(windows), _order(back)
    if both[0] is None or both[1] is None or both[0].size != both[1].size:
        return False
    return bool((both[0][both[1]] == np.arange(both[0].size)).all())


def _order(of: Composite) -> np.ndarray | None:
    """For each pixel of a permutation's result its number in the source."""
    shapes = static_shape(of.source), static_shape(of.nodes[-1].outputs[0])
    if shapes[0] is None or shapes[1] is None:
        return None
    attrs: Mapping[str, Any] = {"before": (0, 0), "after": (0, 0), **of.attrs}
    pixels = _rolled(np.arange(np.prod(shapes[0][2:])).reshape(shapes[0][2:]), attrs["before"])
    moved = pixels.reshape(attrs["extents"]).transpose(attrs["order"]).reshape(shapes[1][2:])
    return _rolled(moved, attrs["after"]).reshape(-1)


def _rolled(pixels: np.ndarray, back: tuple[int, int]) -> np.ndarray:
    return np.roll(pixels, (-back[0], -back[1]), (0, 1))


def _keeps(of: Composite) -> bool:
    """Whether a permutation rounds nothing anew."""
    return all(quant_of(v) in {None, quant_of(of.source)} for n in of.nodes for v in n.outputs)


def _reorder(graph: ir.Graph, node: ir.Node, x: ir.Value, moved: ir.Value, branch: _Branch) -> None:
    norm, windows, back = branch
    normal, ordered = windows.source, windows.nodes[-1].outputs[0]
    layer, total = back.source, node.outputs[0]
    sizes = static_shape(ordered), static_shape(layer)
    assert sizes[0] is not None
    assert sizes[1] is not None

    # The windows of x are normalised, instead of windows of the norm. All keep their names.
    replace_value(ordered, normal)
    _feed(windows, normal, x)
    norm[0].replace_input_with(0, ordered)
    normal.name, ordered.name = ordered.name, f"{x.name}/{normal.name}"
    for inner in norm:
        value = inner.outputs[0]
        value.shape = ir.Shape([sizes[0][axis] for axis in _AXES[value is normal]])
        value.meta.pop(TENSOR_KEY, None)
    if (tensor := ordered.meta.get(TENSOR_KEY)) is not None:
        normal.meta[TENSOR_KEY] = tensor
    _annotate(windows, x)
    graph.insert_before(norm[0], windows.nodes)

    # The sum is that of windows, and is put back.
    replace_value(total, moved)
    _feed(back, layer, total)
    node.replace_input_with([*node.inputs].index(x), ordered)
    node.replace_input_with([*node.inputs].index(moved), layer)
    total.name, moved.name = f"{total.name}/{moved.name}", total.name
    total.shape = ir.Shape(sizes[1])
    _annotate(back, total)
    moved.meta.update(total.meta)
    total.meta.pop(TENSOR_KEY, None)
    graph.insert_after(node, back.nodes)


def _feed(of: Composite, old: ir.Value, new: ir.Value) -> None:
    """Let a permutation read another map."""
    for node in of.nodes:
        for index, value in enumerate(node.inputs):
            if value is old:
                node.replace_input_with(index, new)


def _annotate(of: Composite, source: ir.Value) -> None:
    """Give what a permutation computes the rounding of the map that it reads now."""
    for value in (v for node in of.nodes for v in node.outputs):
        value.meta.pop(TENSOR_KEY, None)
        if quant_of(value) is not None and (quant := quant_of(source)) is not None:
            value.meta[META_KEY] = quant
