"""Split max pools into several in a row where their window exceeds every tile, or where that is
faster, and fuse again.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from opu_fuse.dfg.graph import Dfg, Node
from opu_fuse.dfg.split_max_pools import small_windows, split_window, with_split_pools
from opu_fuse.fuse.strategies.strategy_names import REWRITING
from opu_fuse.hw.spec.check import largest
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.lowering.pool_windows import largest_window
from opu_fuse.schedule.insert_copies import Fused, Tiles
from opu_fuse.units.base import ModuleKind

_LARGE = "a maximum of maxima: its window has more positions than a tile of the machine"
_SLOW = "a maximum of maxima: windows of three columns take one column for each result"
_PASS_CYCLES = 300
"""What another pass costs, whatever its size: fill, drain and the latency of the memory."""


def fuse_with_split_pools(
    dfg: Dfg, hw: HwSpec, fuse: Callable[[Dfg], Fused[Tiles]]
) -> Fused[Tiles]:
    """Fuse the graph; split max pools left to the host where all their parts run on the machine,
    and those that are faster in parts.

    The split is described in `dfg/split_max_pools.py`.
    """
    fused = fuse(dfg)
    if fused.partition.strategy not in REWRITING or not hw.build:
        return fused
    on_host = {fused.dfg[op.node].name for op in fused.partition.host}
    parts, reasons = {}, {}
    for node in (node for node in dfg.calls if node.op == "max_pool"):
        if node.name in on_host:
            attributes = split_window(node, dfg[node.operands[0]].shape[2:], _most(hw))
            reasons[node.index] = _LARGE
        else:
            attributes = _faster(node, hw)
            reasons[node.index] = _SLOW
        if attributes is not None:
            parts[node.index] = attributes
    while parts:
        graph, names = with_split_pools(dfg, parts)
        tried = fuse(graph)
        left = {tried.dfg[op.node].name for op in tried.partition.host}.intersection(names)
        if not left:
            why = {dfg[index].name: reasons[index] for index in parts}
            why |= tried.partition.rewrites
            return tried._replace(partition=dataclasses.replace(tried.partition, rewrites=why))
        parts = {
            index: row
            for index, row in parts.items()
            if not any(n == dfg[index].name or n.startswith(f"{dfg[index].name}/") for n in left)
        }
    return fused


def _faster(node: Node, hw: HwSpec) -> list[dict[str, Any]] | None:
    """The parts of a pool if they take fewer cycles; None if they do not."""
    parts = small_windows(node)
    if parts is None:
        return None
    _, channels, *size = node.shape
    words = math.prod(size) * -(-channels // hw.word_channels) * hw.cycles_per_word
    saved = (math.prod(node.attrs["kernel"]) - sum(part["kernel"][0] for part in parts)) * words
    return parts if saved > _PASS_CYCLES * (len(parts) - 1) else None


def _most(hw: HwSpec) -> int:
    """Positions of the largest window that any tile can hold."""
    pools = [m.limits.window for m in hw.dataflow.modules.values() if m.kind is ModuleKind.POOL]
    reach = min((limit or largest("window") for limit in pools), default=1)
    return min(largest_window(hw), reach)
