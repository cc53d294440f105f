"""Copies of narrow maps for readers that want several pixels in a word.

A copy is a shuffle that leaves every channel in its place: the array computes it and packs the
pixels, and it forwards its operand's integers.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from opu_fuse.dfg.copy_node import copy_node
from opu_fuse.dfg.graph import Dfg, Node
from opu_fuse.dfg.renumber import renumbered
from opu_fuse.dfg.views import feature_shape


def is_copy(node: Node) -> bool:
    """Whether a shuffle leaves every channel in its place."""
    return node.op == "shuffle" and node.attrs["order"] == _in_place(node)


def _in_place(node: Node) -> tuple[int, ...]:
    """The order in which a shuffle reads channels that remain where they are."""
    return tuple(range(feature_shape(node.shape)[0]))


def copy_name(dfg: Dfg, value: int) -> str:
    """Name of the copy of a value."""
    return f"{dfg[value].name}/packed"


def with_packed_copies(dfg: Dfg, readers: Iterable[tuple[int, int]]) -> Dfg:
    """A graph in which these convolutions read copies: (index of the value, of a convolution)."""
    nodes, copies = list(dfg.nodes), dict[int, int]()
    for value, reader in readers:
        if value not in copies:
            name, index = copy_name(dfg, value), len(nodes)
            order = {"order": _in_place(dfg[value])}
            nodes.append(copy_node(dfg, value, name, "shuffle", order, index=index, reader=reader))
            copies[value] = index
        _, *others = nodes[reader].operands
        nodes[reader] = replace(nodes[reader], operands=(copies[value], *others))
    return renumbered(dfg, nodes)[0]
