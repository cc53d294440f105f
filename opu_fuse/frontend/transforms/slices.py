"""Slices of the channels of one map become one Split: machines read its parts where they lie.

Exporters write the halves of a map so whose size they do not know. Parts that overlap, and those
with steps, stay.
"""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    detach,
    merge_sources,
    operand,
    replace_value,
    standard_nodes,
    static_shape,
)

_CHANNELS = 1
_RANKS = {2, 4}
Parts = list[tuple[int, int, ir.Node]]
"""From where to where, of which Slice."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    found: dict[ir.Value, Parts] = defaultdict(list)
    for node in standard_nodes(model.graph, "Slice"):
        part = _of_channels(node)
        if part is not None and node.inputs[0] is not None:
            found[node.inputs[0]].append((*part, node))
    changed = False
    for value, parts in found.items():
        ordered = sorted(parts, key=lambda part: part[0])
        if all(a[1] <= b[0] for a, b in pairwise(ordered)):
            _split(model.graph, value, parts)
            changed = True
    return changed


def _of_channels(node: ir.Node) -> tuple[int, int] | None:
    """(first, behind the last) channel, where a Slice takes some and nothing else."""
    shape = static_shape(node.inputs[0])
    starts, ends, axes, steps = (constant(operand(node, i)) for i in range(1, 5))
    count = 0 if starts is None else starts.size
    axes = axes if operand(node, 3) is not None else np.arange(count)
    steps = steps if operand(node, 4) is not None else np.ones(count, np.int64)
    if shape is None or len(shape) not in _RANKS:
        return None
    if starts is None or ends is None or axes is None or steps is None:
        return None
    taken = dict.fromkeys(range(len(shape)), slice(None))
    taken |= {
        int(axis) % len(shape): slice(*map(int, (start, end, step)))
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True)
    }
    ranges = [range(size)[taken[axis]] for axis, size in enumerate(shape)]
    channels = ranges.pop(_CHANNELS)
    others = [range(size) for axis, size in enumerate(shape) if axis != _CHANNELS]
    plain = channels.step == 1 and 0 < len(channels) < shape[_CHANNELS] and ranges == others
    return (channels.start, channels.stop) if plain else None


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
