"""Groups that leave the array idle (a pool or an addition on its own) run beside one that keeps it
busy: their tiles come between its tiles, so that copy path, post and memory work while the array
multiplies.

Two groups may run beside each other when neither waits for the other; the memory plan counts both
as one step.
"""

from collections.abc import Mapping, Sequence
from math import ceil

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.group_order import producers
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.tiling.estimate import Estimate

WINDOW = 64
"""Groups looked at on each side of one: a bound on the search, far above what networks need."""


def find_co_scheduled(
    dfg: Dfg,
    groups: Sequence[Sequence[int]],
    order: Sequence[int],
    idle: Mapping[int, Estimate],
    busy: Mapping[int, Estimate],
    hw: HwSpec,
) -> dict[int, int]:
    """Group that keeps the array busy -> group that runs beside it.

    groups: their nodes; order: those of one machine segment as they are executed; idle: those
    without the array; busy: those with it whose work comes in several pieces. Of the groups between
    its last producer and its first reader, a group goes to the one with the most time to spare, and
    alone when none has any.
    """
    at = {m: i for i, group in enumerate(order) for m in groups[group]}
    sources: list[set[int]] = [set() for _ in order]
    readers: list[set[int]] = [set() for _ in order]
    for node, state in at.items():
        made_by = (_behind_views(dfg, p, at) for p in producers(dfg, node))
        for made in {at[p] for p in made_by if p in at} - {state}:
            sources[state].add(made)
            readers[made].add(state)
    found: dict[int, int] = {}
    place = [float(state) for state in range(len(order))]  # a companion's: behind its partner
    for state, group in enumerate(order):
        if group not in idle:
            continue
        after = max((place[i] for i in sources[state]), default=-1)
        before = min((place[i] for i in readers[state]), default=len(order))
        near = range(max(int(after) + 1, state - WINDOW), min(ceil(before), state + WINDOW))
        spare = {i: _spare(busy[order[i]], hw) for i in near if order[i] in busy}
        free = (i for i in spare if spare[i] > 0 and order[i] not in found)
        best = max(free, key=lambda i: spare[i], default=None)
        if best is not None:
            found[order[best]] = group
            place[state] = best + 0.5
    return found


def _behind_views(dfg: Dfg, call: int, at: Mapping[int, int]) -> int:
    """The call that makes what a view shows, when the view is in no group: nobody runs it."""
    while call not in at and dfg[call].is_virtual and (made_by := producers(dfg, call)):
        (call,) = made_by
    return call


def _spare(cost: Estimate, hw: HwSpec) -> float:
    """Cycles in which the array works and neither post nor memory has to."""
    return cost.compute_cycles - max(cost.post_cycles, cost.dram_bytes / hw.dram.rate)
