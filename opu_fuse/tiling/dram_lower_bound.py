"""Lower bound of the DRAM bytes of a grouping, if every group's result is stored to DRAM."""

import math
from collections.abc import Collection, Iterable

import numpy as np

from opu_fuse.dfg.graph import Dfg, Node
from opu_fuse.dfg.views import elements
from opu_fuse.layout.lanes import LAYOUT
from opu_fuse.lowering.pass_geometry import moves_nothing


def bound_bytes(dfg: Dfg, groups: Iterable[Collection[int]], images: int = 1) -> int:
    """Bytes of every group's operands and result once, without padding; maps of all images of a
    batch. groups: DFG indices.

    Resident maps are not read from memory, so a program may need fewer.
    """
    total = 0
    for inside in map(frozenset, groups):
        working = [i for i in inside if not moves_nothing(dfg[i])]
        joins = [i for i in inside if dfg[i].op in LAYOUT]
        if working:
            leaves = (leaf for i in (*working, *joins) for leaf in elements(dfg, i))
            read = {dfg.base(leaf) for leaf in leaves} - inside
            total += sum(_bytes(dfg[i], images) for i in (*read, max(working)))
    return total


def _bytes(node: Node, images: int) -> int:
    if node.const is None:
        return images * math.prod(node.shape)
    # Weights of more than 8 bits are several int8, most of which may be zero throughout.
    return node.const.size if node.const.dtype == np.int16 else node.const.nbytes
