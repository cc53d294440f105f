"""How few DRAM bytes a grouping can do with, as long as every group's result goes to memory."""

import math
from collections.abc import Collection, Iterable

from opu_fuse.cost.geometry import moves_nothing
from opu_fuse.dfg.graph import Dfg, Node
from opu_fuse.dfg.views import elements, follow_views
from opu_fuse.layout.lanes import LAYOUT


def bound_bytes(dfg: Dfg, groups: Iterable[Collection[int]]) -> int:
    """Bytes of every group's operands and result once, without padding. groups: DFG indices.

    Maps that stay on chip are not read from memory, so a program can do with less.
    """
    total = 0
    for inside in map(frozenset, groups):
        working = [i for i in inside if not moves_nothing(dfg[i])]
        joins = [i for i in inside if dfg[i].op in LAYOUT]
        if working:
            leaves = (leaf for i in (*working, *joins) for leaf in elements(dfg, i))
            read = {follow_views(dfg, leaf) for leaf in leaves} - inside
            total += sum(_bytes(dfg[i]) for i in read) + _bytes(dfg[max(working)])
    return total


def _bytes(node: Node) -> int:
    return math.prod(node.shape) if node.const is None else node.const.nbytes
