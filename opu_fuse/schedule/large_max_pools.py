"""Split max pools whose window exceeds every tile into several in a row, and fuse again."""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.split_max_pools import split_window, with_split_pools
from opu_fuse.fuse.partition import Partition
from opu_fuse.fuse.strategies.strategy_names import REWRITING
from opu_fuse.hw.spec.check import largest
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.units.base import ModuleKind

Rest = TypeVar("Rest")
Fused = tuple[Dfg, Partition, Rest]
"""A graph, its groups, and further results of the caller."""
_WHY = "a maximum of maxima: its window has more positions than a tile of the machine"


def fuse_with_split_pools(dfg: Dfg, hw: HwSpec, fuse: Callable[[Dfg], Fused[Rest]]) -> Fused[Rest]:
    """Fuse the graph; split max pools left to the host where all their parts run on the machine.

    The split is described in `dfg/split_max_pools.py`.
    """
    fused = fuse(dfg)
    graph, partition, _ = fused
    if partition.strategy not in REWRITING or not hw.build:
        return fused
    on_host = {graph[op.node].name for op in partition.host}
    large = [node for node in dfg.calls if node.op == "max_pool" and node.name in on_host]
    parts = {}
    for node in large:
        attributes = split_window(node, dfg[node.operands[0]].shape[2:], _most(hw))
        if attributes is not None:
            parts[node.index] = attributes
    while parts:
        graph, names = with_split_pools(dfg, parts)
        tried = fuse(graph)
        left = {tried[0][op.node].name for op in tried[1].host}.intersection(names)
        if not left:
            why = {dfg[index].name: _WHY for index in parts}
            return tried[0], dataclasses.replace(tried[1], rewrites=why), tried[2]
        parts = {
            index: row
            for index, row in parts.items()
            if not any(n == dfg[index].name or n.startswith(f"{dfg[index].name}/") for n in left)
        }
    return fused


def _most(hw: HwSpec) -> int:
    """Positions of the largest window that any tile can hold."""
    pools = [m.limits.window for m in hw.dataflow.modules.values() if m.kind is ModuleKind.POOL]
    reach = min((limit or largest("window") for limit in pools), default=1)
    return min(hw.buffers.psum.bank_words, hw.buffers.feature.bank_words, reach)
