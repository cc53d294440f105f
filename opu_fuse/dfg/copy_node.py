"""Nodes that the compiler adds to copy a value."""

from collections.abc import Mapping
from typing import Any

from opu_fuse.dfg.graph import Access, Dfg, Kind, Node


def copy_node(
    dfg: Dfg, value: int, name: str, op: str, attrs: Mapping[str, Any], *, index: int, reader: int
) -> Node:
    """A copy of a value for a reader, by an operator that forwards integers with these attributes.

    index: that the node will have; value, reader: indices in the graph.
    """
    node = dfg[value]
    return Node(
        index=index,
        kind=Kind.CALL,
        name=name,
        op=op,
        operands=(value,),
        access=(Access.FULL,),
        shape=node.shape,
        type=node.type,
        value=name,
        quant=node.quant,
        attrs=attrs,
        source=dfg[reader].source,
    )
