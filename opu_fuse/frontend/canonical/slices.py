"""Slices in words that machines know.

1. One that takes everything is removed.
2. One that takes every n-th row or column from the first on is a MaxPool over one element.
3. Those of the channels of one map become one Split: machines read its parts where they lie.
   Exporters write the halves of a map so whose size they do not know. Parts that overlap, and those
   with steps, stay.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    bypass,
    detach,
    is_standard,
    merge_sources,
    quant_of,
    replace_value,
    rewrite,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.composites import slice_ranges

_CHANNELS = 1
_RANKS = {2, 4}
Parts = list[tuple[int, int, ir.Node]]
"""From where to where, of which Slice."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    found: dict[ir.Value, Parts] = defaultdict(list)
    changed = False
    for node in standard_nodes(model.graph, "Slice"):
        shape, taken = static_shape(node.inputs[0]), slice_ranges(node)
        if node.inputs[0] is None or shape is None or taken is None:
            continue
        whole = [range(size) for size in shape]
        if taken == whole:
            changed |= bypass(node)  # Case 1
        elif len(shape) == 4 and taken[:2] == whole[:2]:
            changed |= _stride(node, shape[2:], taken[2:])  # Case 2
        elif len(shape) in _RANKS and _is_part(taken, whole):
            found[node.inputs[0]].append((taken[_CHANNELS].start, taken[_CHANNELS].stop, node))
    for value, parts in reversed(found.items()):  # Case 3; a part of a part before its whole
        ordered = sorted(parts, key=lambda part: part[0])
        if all(a[1] <= b[0] for a, b in pairwise(ordered)):
            _split(model.graph, value, parts)
            changed = True
    return changed


def _stride(node: ir.Node, size: Sequence[int], taken: Sequence[range]) -> bool:
    steps = [places.step for places in taken]
    wanted = [range(n)[::step] if step > 0 else None for n, step in zip(size, steps, strict=True)]
    if wanted != [*taken]:
        return False
    attributes = {"kernel_shape": [1, 1], "strides": steps}
    rewrite(node, "MaxPool", node.inputs[:1], attributes)
    return True


def _is_part(taken: Sequence[range], whole: Sequence[range]) -> bool:
    """Some channels in a row, and everything else."""
    rest = [
        (a, b) for axis, (a, b) in enumerate(zip(taken, whole, strict=True)) if axis != _CHANNELS
    ]
    return taken[_CHANNELS].step == 1 and len(taken[_CHANNELS]) > 0 and all(a == b for a, b in rest)


def _split(graph: ir.Graph, value: ir.Value, parts: Parts) -> None:
    """parts: in the graph's order."""
    shape, nodes = static_shape(value), [node for _, _, node in parts]
    assert shape is not None
    ends = sorted(
        {0, shape[_CHANNELS], *(end for first, last, _ in parts for end in (first, last))}
    )
    places = {first: node for first, _, node in parts}
    name = nodes[0].name or ""
    sizes = add_constant(graph, f"{name}/split", np.diff(ends))
    attributes = [ir.AttrInt64("axis", _CHANNELS)]
    split = ir.Node("", "Split", [value, sizes], attributes, num_outputs=len(ends) - 1, name=name)
    merge_sources(split, nodes)
    graph.insert_before(nodes[0], split)
    for part, (first, last) in zip(split.outputs, pairwise(ends), strict=True):
        part.type = value.type
        part.shape = ir.Shape((*shape[:_CHANNELS], last - first, *shape[_CHANNELS + 1 :]))
        if first not in places:
            part.name = f"{name}/{first}"
            continue
        old = places[first].outputs[0]
        part.meta.update(old.meta)
        part.name = old.name
        replace_value(old, part)
        detach(places[first])


def every_nth(value: ir.Value | None) -> tuple[ir.Value | None, int, tuple[int, int]]:
    """Of which map a value is every n-th pixel, which n, and from which row and column on; no map,
    else. The value may be taken in several steps; nothing is rounded between.
    """
    nothing, source = (None, 1, (0, 0)), value
    starts, steps = [0, 0], [1, 1]
    while source is not None and (taken := _every(source)) is not None:
        starts = [t.start + t.step * s for t, s in zip(taken, starts, strict=True)]
        steps = [t.step * s for t, s in zip(taken, steps, strict=True)]
        rounded, node = quant_of(source), source.producer()
        source = None if node is None else node.inputs[0]
        if source is None or quant_of(source) != rounded:
            return nothing
    shape, given = static_shape(source), static_shape(value)
    if shape is None or given is None or steps[0] != steps[1] or max(starts) >= steps[0]:
        return nothing
    whole = [math.ceil((n - s) / steps[0]) for n, s in zip(shape[2:], starts, strict=True)]
    return (source, steps[0], (starts[0], starts[1])) if [*given[2:]] == whole else nothing


def _every(value: ir.Value) -> list[range] | None:
    """Which rows and columns of its operand a Slice, or a MaxPool over one element, takes."""
    node = value.producer()
    shape = None if node is None else static_shape(node.inputs[0])
    if (
        node is None
        or shape is None
        or len(shape) != 4
        or not is_standard(node, "MaxPool", "Slice")
    ):
        return None
    if node.op_type == "MaxPool":
        ints = node.attributes.get_ints
        single = {*ints("kernel_shape", ())} == {1} and not any(ints("pads", ()))
        steps = ints("strides", (1, 1))
        return [range(n)[::s] for n, s in zip(shape[2:], steps, strict=True)] if single else None
    taken = slice_ranges(node)
    if taken is None or taken[:2] != [range(n) for n in shape[:2]] or 0 in map(len, taken):
        return None
    return taken[2:] if min(t.step for t in taken) > 0 else None
