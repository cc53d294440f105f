"""Copies of narrow maps for readers that want several pixels in a word.

A copy is a shuffle that leaves every channel in its place: the array computes it and packs the
pixels, and it forwards its operand's integers.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from opu_fuse.dfg.graph import Access, Dfg, Kind, Node
from opu_fuse.dfg.renumber import renumbered
from opu_fuse.dfg.views import feature_shape


def is_copy(node: Node) -> bool:
    """Whether a shuffle leaves every channel in its place."""
    return node.op == "shuffle" and node.attrs["order"] == tuple(range(node.shape[1]))


def copy_name(dfg: Dfg, value: int) -> str:
    """Name of the copy of a value."""
    return f"{dfg[value].name}/packed"


def with_packed_copies(dfg: Dfg, readers: Iterable[tuple[int, int]]) -> Dfg:
    """A graph in which these convolutions read copies: (index of the value, of a convolution)."""
    nodes, copies = list(dfg.nodes), dict[int, int]()
    for value, reader in readers:
        if value not in copies:
            copies[value] = len(nodes)
            nodes.append(_copy(dfg, value, len(nodes)))
        _, *others = nodes[reader].operands
        nodes[reader] = replace(nodes[reader], operands=(copies[value], *others))
    return renumbered(dfg, nodes)[0]


def _copy(dfg: Dfg, value: int, index: int) -> Node:
    node, name = dfg[value], copy_name(dfg, value)
    return Node(
        index=index,
        kind=Kind.CALL,
        name=name,
        op="shuffle",
        operands=(value,),
        access=(Access.FULL,),
        shape=node.shape,
        type=node.type,
        value=name,
        quant=node.quant,
        attrs={"order": tuple(range(feature_shape(node.shape)[0]))},
        source=node.source,
    )
