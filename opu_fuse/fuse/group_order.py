"""In which order groups and host operators can run, with few changes between machine and host."""

import heapq
from collections.abc import Sequence

from msgspec import Struct

from opu_fuse.dfg.graph import Dfg, Kind
from opu_fuse.fuse.matching.context import leaves
from opu_fuse.fuse.partition import HostOp, Match, Partition

COMPUTED = (Kind.CALL, Kind.TUPLE_GET)


class Step(Struct, frozen=True, kw_only=True):
    """One thing to run: a group (its index) or a host operator (its node); the other is None."""

    group: int | None = None
    node: int | None = None


def producers(dfg: Dfg, index: int) -> tuple[int, ...]:
    """Calls whose results a call reads, tuples and tuple_gets looked through; each once, in operand
    order.
    """
    nodes = dfg.nodes
    found = [
        i if nodes[i].kind is Kind.CALL else nodes[i].operands[0]
        for i in leaves(dfg, nodes[index])
        if nodes[i].kind in COMPUTED
    ]
    return tuple(found) if len(found) < 2 else tuple(dict.fromkeys(found))


def execution_order(dfg: Dfg, partition: Partition) -> tuple[Step, ...]:
    """Groups and host operators, each after what it reads; as many groups as possible in a row,
    then as many host operators.

    Empty of whatever waits for itself in a circle (an illegal partition).
    """
    return tuple(order_units(dfg, [g.matches for g in partition.groups], partition.host)[0])


def order_units(
    dfg: Dfg, groups: Sequence[Sequence[Match]], host: Sequence[HostOp]
) -> tuple[list[Step], list[int]]:
    """(steps in execution order, indices of the groups that wait for each other in a circle).

    Groups are named by their position in `groups`; ties are broken by the node that comes last in a
    group.
    """
    units = [[m.node for m in group] for group in groups] + [[h.node] for h in host]
    unit_of = {node: u for u, nodes in enumerate(units) for node in nodes}
    readers: list[list[int]] = [[] for _ in units]
    waits = [0] * len(units)
    for unit, nodes in enumerate(units):
        sources = {unit_of[p]: None for n in nodes for p in producers(dfg, n) if p in unit_of}
        sources.pop(unit, None)
        waits[unit] = len(sources)
        for source in sources:
            readers[source].append(unit)
    ready: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])  # machine, host
    on_host = [unit >= len(groups) for unit in range(len(units))]
    for unit, nodes in enumerate(units):
        if waits[unit] == 0:
            heapq.heappush(ready[on_host[unit]], (max(nodes), unit))
    steps: list[Step] = []
    side = 0
    while ready[0] or ready[1]:
        side = side if ready[side] else 1 - side
        _, unit = heapq.heappop(ready[side])
        steps.append(Step(node=units[unit][0]) if on_host[unit] else Step(group=unit))
        for reader in readers[unit]:
            waits[reader] -= 1
            if waits[reader] == 0:
                heapq.heappush(ready[on_host[reader]], (max(units[reader]), reader))
    stuck = [unit for unit in range(len(groups)) if waits[unit] > 0]
    return steps, stuck
