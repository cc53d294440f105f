"""Slices as operators that machines support.

1. A Slice of the whole tensor is removed.
2. A Slice of every n-th row or column, starting at 0, becomes a MaxPool with a 1x1 kernel.
3. Channel Slices of one map become one Split, which is zero-copy. Exporters write halves of a map
   of unknown size as Slices. Overlapping Slices and those with steps do not change.
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
from opu_fuse.model.divisions import is_divisor
from opu_fuse.model.known_values import slice_ranges

_CHANNELS = 1
_RANKS = {2, 4}
Parts = list[tuple[int, int, ir.Node]]
"""First channel, last channel + 1, and the Slice."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    parts_of: dict[ir.Value, Parts] = defaultdict(list)
    changed = False
    for node in standard_nodes(model.graph, "Slice"):
        if is_divisor(node):
            continue
        shape, ranges = static_shape(node.inputs[0]), slice_ranges(node)
        if node.inputs[0] is None or shape is None or ranges is None:
            continue
        full_ranges = [range(size) for size in shape]
        if ranges == full_ranges:
            changed |= bypass(node)  # Case 1
        elif len(shape) == 4 and ranges[:2] == full_ranges[:2]:
            changed |= _stride(node, shape[2:], ranges[2:])  # Case 2
        elif len(shape) in _RANKS and _is_part(ranges, full_ranges):
            parts_of[node.inputs[0]].append((ranges[_CHANNELS].start, ranges[_CHANNELS].stop, node))
    for value, parts in reversed(parts_of.items()):  # Case 3; nested Slices from the inside
        ordered = sorted(parts, key=lambda part: part[0])
        if all(a[1] <= b[0] for a, b in pairwise(ordered)):
            _split(model.graph, value, parts)
            changed = True
    return changed


def _stride(node: ir.Node, size: Sequence[int], taken: Sequence[range]) -> bool:
    steps = [indices.step for indices in taken]
    expected = [range(n)[::step] if step > 0 else None for n, step in zip(size, steps, strict=True)]
    if expected != [*taken]:
        return False
    attributes = {"kernel_shape": [1, 1], "strides": steps}
    rewrite(node, "MaxPool", node.inputs[:1], attributes)
    return True


def _is_part(taken: Sequence[range], whole: Sequence[range]) -> bool:
    """Whether a Slice selects consecutive channels and all of the other axes."""
    rest = [
        (a, b) for axis, (a, b) in enumerate(zip(taken, whole, strict=True)) if axis != _CHANNELS
    ]
    return taken[_CHANNELS].step == 1 and len(taken[_CHANNELS]) > 0 and all(a == b for a, b in rest)


def _split(graph: ir.Graph, value: ir.Value, parts: Parts) -> None:
    """Replace the Slices `parts` of a value, in graph order, by one Split."""
    shape, nodes = static_shape(value), [node for _, _, node in parts]
    assert shape is not None
    ends = sorted(
        {0, shape[_CHANNELS], *(end for first, last, _ in parts for end in (first, last))}
    )
    slice_at = {first: node for first, _, node in parts}
    name = nodes[0].name or ""
    sizes = add_constant(graph, f"{name}/split", np.diff(ends))
    attributes = [ir.AttrInt64("axis", _CHANNELS)]
    split = ir.Node("", "Split", [value, sizes], attributes, num_outputs=len(ends) - 1, name=name)
    merge_sources(split, nodes)
    graph.insert_before(nodes[0], split)
    for part, (first, last) in zip(split.outputs, pairwise(ends), strict=True):
        part.type = value.type
        part.shape = ir.Shape((*shape[:_CHANNELS], last - first, *shape[_CHANNELS + 1 :]))
        if first not in slice_at:
            part.name = f"{name}/{first}"
            continue
        old = slice_at[first].outputs[0]
        part.meta.update(old.meta)
        part.name = old.name
        replace_value(old, part)
        detach(slice_at[first])


def every_nth(value: ir.Value | None) -> tuple[ir.Value | None, int, tuple[int, int]]:
    """Source map, stride n and first (row, column) of a value that selects every n-th pixel.

    The selection may have several steps if none requantises. The source is None if the value is no
    such selection.
    """
    no_match, source = (None, 1, (0, 0)), value
    starts, steps = [0, 0], [1, 1]
    while source is not None and (ranges := _every(source)) is not None:
        starts = [t.start + t.step * s for t, s in zip(ranges, starts, strict=True)]
        steps = [t.step * s for t, s in zip(ranges, steps, strict=True)]
        quant, node = quant_of(source), source.producer()
        source = None if node is None else node.inputs[0]
        if source is None or quant_of(source) != quant:
            return no_match
    shape, result_shape = static_shape(source), static_shape(value)
    if shape is None or result_shape is None or steps[0] != steps[1] or max(starts) >= steps[0]:
        return no_match
    size = [math.ceil((n - s) / steps[0]) for n, s in zip(shape[2:], starts, strict=True)]
    return (source, steps[0], (starts[0], starts[1])) if [*result_shape[2:]] == size else no_match


def _every(value: ir.Value) -> list[range] | None:
    """Rows and columns that a Slice, or a MaxPool with a 1x1 kernel, selects; None for others."""
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
        is_1x1 = {*ints("kernel_shape", ())} == {1} and not any(ints("pads", ()))
        steps = ints("strides", (1, 1))
        return [range(n)[::s] for n, s in zip(shape[2:], steps, strict=True)] if is_1x1 else None
    ranges = slice_ranges(node)
    if ranges is None or ranges[:2] != [range(n) for n in shape[:2]] or 0 in map(len, ranges):
        return None
    return ranges[2:] if min(t.step for t in ranges) > 0 else None
