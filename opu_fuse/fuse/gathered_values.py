"""Gathers of the values of all heads become concatenations, which need no pass.

An attention reads parts of a map, cut by a Split: queries, keys and values of each head. What else
reads all values of that map, such as a positional encoding, gathers their channels, which is a pass
of the array. Where the layout stores the values of all heads one after the other, their
concatenation is a part of the map.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.renumber import renumbered
from opu_fuse.dfg.views import elements, readers_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.weight_maps import sets_zeros
from opu_fuse.layout.head_lanes import product_lanes

_Gather = tuple[Node, tuple[int, ...]]
"""A shuffle, and the parts of a split map that it gathers, as indices."""


def with_gathered_values(dfg: Dfg, hw: HwSpec) -> Dfg:
    """The graph with concatenations for gathers of values that follow each other in memory.

    Returns `dfg` itself if it has no such gather.
    """
    if not (sets_zeros(hw) and {"concat", "split"} <= hw.dataflow.operators.keys()):
        return dfg
    gathers = list(_gathers(dfg, hw.word_channels))
    while gathers:
        graph, concats = _joined(dfg, gathers)
        kept = [g for g, i in zip(gathers, concats, strict=True) if _is_part(graph, i, hw)]
        if len(kept) == len(gathers):
            return graph
        gathers = kept
    return dfg


def _gathers(dfg: Dfg, width: int) -> Iterator[_Gather]:
    """Gathers of all parts that are transposed for products. width: lanes of a word; a split whose
    parts are whole words remains as it is.
    """
    splits = {n.operands[0]: n for n in dfg.calls if n.op == "split" and n.attrs["axis"] == 1}
    for node in dfg.calls:
        split = splits.get(node.operands[0]) if node.op == "shuffle" else None
        if split is None or not any(size % width for size in split.attrs["sizes"]):
            continue
        values = [dfg[i] for i in dfg.users[split.index] if _is_value(dfg, i)]
        values.sort(key=lambda v: v.attrs["index"])
        channels = [c for v in values for c in _channels(split, v)]
        if values and tuple(channels) == tuple(node.attrs["order"]):
            yield node, tuple([v.index for v in values])


def _is_value(dfg: Dfg, part: int) -> bool:
    readers = readers_of(dfg, part)
    return bool(readers) and all(r.op == "transpose" for r in readers)


def _channels(split: Node, part: Node) -> range:
    sizes, index = split.attrs["sizes"], part.attrs["index"]
    first = sum(sizes[:index])
    return range(first, first + sizes[index])


def _joined(dfg: Dfg, gathers: Sequence[_Gather]) -> tuple[Dfg, list[int]]:
    """The graph with concatenations for gathers, and their indices in it."""
    nodes = list(dfg.nodes)
    for node, parts in gathers:
        name = f"{node.name}/operands"
        made = Node(index=len(nodes), kind=Kind.TUPLE, name=name, operands=parts)
        nodes.append(made)
        nodes[node.index] = replace(node, op="concat", operands=(made.index,), attrs={"axis": 1})
    graph, moved = renumbered(dfg, nodes)
    return graph, [moved[node.index] for node, _ in gathers]


def _is_part(graph: Dfg, concat: int, hw: HwSpec) -> bool:
    """Whether the lanes of a concatenation's operands follow each other from a word on."""
    parts = [graph[i] for i in elements(graph, concat)]
    (split,) = {part.operands[0] for part in parts}
    pieces = product_lanes(graph, {split}, hw)[split]
    own = [pieces[part.attrs["index"]] for part in parts]
    follows = all(sum(a) == b[0] for a, b in pairwise(own))
    return follows and own[0][0] % hw.word_channels == 0
