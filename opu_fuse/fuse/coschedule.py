"""Co-schedules array-idle groups (a lone pool or addition) with array-bound ones.

The scheduler interleaves the tiles of both groups, so copy path, post pipeline and memory are in
use while the array multiplies. Two groups may be co-scheduled when neither depends on the other.
The memory plan treats both as one step.
"""

from collections.abc import Mapping, Sequence
from math import ceil

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.group_order import producers
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.tiling.estimate import Estimate

WINDOW = 64
"""Candidates considered on each side of a group: a search bound far above what networks need."""


def find_co_scheduled(
    dfg: Dfg,
    groups: Sequence[Sequence[int]],
    order: Sequence[int],
    idle: Mapping[int, Estimate],
    busy: Mapping[int, Estimate],
    hw: HwSpec,
) -> dict[int, int]:
    """Array-bound group -> array-idle group that is co-scheduled with it.

    groups: their nodes.
    order: groups of one machine segment in execution order.
    idle: estimates of groups that do not use the array.
    busy: estimates of array groups with several tiles.

    Each idle group is paired with the array group between its last producer and its first reader
    that has the most spare cycles. It runs alone when none has spare cycles.
    """
    sources, readers = dependences(dfg, [groups[group] for group in order])
    co_scheduled: dict[int, int] = {}
    slot = [float(position) for position in range(len(order))]
    for position, group in enumerate(order):
        if group not in idle:
            continue
        after = max((slot[i] for i in sources[position]), default=-1)
        before = min((slot[i] for i in readers[position]), default=len(order))
        first, end = max(int(after) + 1, position - WINDOW), min(ceil(before), position + WINDOW)
        window = range(first, end)
        spare = {i: busy[order[i]].spare(hw) for i in window if order[i] in busy}
        candidates = (i for i in spare if spare[i] > 0 and order[i] not in co_scheduled)
        best = max(candidates, key=lambda i: spare[i], default=None)
        if best is not None:
            co_scheduled[order[best]] = group
            # Later dependencies see it between its partner and the next.
            slot[position] = best + 0.5
    return co_scheduled


def dependences(dfg: Dfg, units: Sequence[Sequence[int]]) -> tuple[list[set[int]], list[set[int]]]:
    """Positions of the units that each unit reads from, and of those that read from it. units:
    their nodes.
    """
    at = {m: i for i, nodes in enumerate(units) for m in nodes}
    sources: list[set[int]] = [set() for _ in units]
    readers: list[set[int]] = [set() for _ in units]
    for node, unit in at.items():
        calls = (_call_of_view(dfg, p, at) for p in producers(dfg, node))
        for producer in {at[p] for p in calls if p in at} - {unit}:
            sources[unit].add(producer)
            readers[producer].add(unit)
    return sources, readers


def _call_of_view(dfg: Dfg, call: int, at: Mapping[int, int]) -> int:
    """The call whose result a view shows, if no group contains (and so runs) the view."""
    while call not in at and dfg[call].is_virtual and (made_by := producers(dfg, call)):
        (call,) = made_by
    return call
