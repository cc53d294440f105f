"""Execution order of groups and host operators, with few switches between machine and host."""

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
    """Calls whose results a call reads, directly or through tuples and tuple_gets.

    Each occurs once, in operand order.
    """
    nodes = dfg.nodes
    calls = [
        i if nodes[i].kind is Kind.CALL else nodes[i].operands[0]
        for i in leaves(dfg, nodes[index])
        if nodes[i].kind in COMPUTED
    ]
    return tuple(calls) if len(calls) < 2 else tuple(dict.fromkeys(calls))


def execution_order(dfg: Dfg, partition: Partition) -> tuple[Step, ...]:
    """Groups and host operators in topological order.

    The order alternates between runs of groups and runs of host operators, each as long as
    possible. It omits units on a cycle (of an illegal partition).
    """
    return tuple(order_units(dfg, [g.matches for g in partition.groups], partition.host)[0])


def order_units(
    dfg: Dfg, groups: Sequence[Sequence[Match]], host: Sequence[HostOp]
) -> tuple[list[Step], list[int]]:
    """(steps in execution order, indices of the groups on a cycle): Kahn's algorithm.

    A group's index is its position in `groups`; ties are broken by the last node of a group.
    """
    units = [[m.node for m in group] for group in groups] + [[h.node] for h in host]
    unit_of = {node: u for u, nodes in enumerate(units) for node in nodes}
    readers: list[list[int]] = [[] for _ in units]
    unmet_inputs = [0] * len(units)
    for unit, nodes in enumerate(units):
        sources = {unit_of[p]: None for n in nodes for p in producers(dfg, n) if p in unit_of}
        sources.pop(unit, None)
        unmet_inputs[unit] = len(sources)
        for source in sources:
            readers[source].append(unit)
    ready: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])  # machine, host
    on_host = [unit >= len(groups) for unit in range(len(units))]
    for unit, nodes in enumerate(units):
        if unmet_inputs[unit] == 0:
            heapq.heappush(ready[on_host[unit]], (max(nodes), unit))
    steps: list[Step] = []
    side = 0  # 0: machine, 1: host; changes only when its queue is empty
    while ready[0] or ready[1]:
        side = side if ready[side] else 1 - side
        _, unit = heapq.heappop(ready[side])
        steps.append(Step(node=units[unit][0]) if on_host[unit] else Step(group=unit))
        for reader in readers[unit]:
            unmet_inputs[reader] -= 1
            if unmet_inputs[reader] == 0:
                heapq.heappush(ready[on_host[reader]], (max(units[reader]), reader))
    stuck = [unit for unit in range(len(groups)) if unmet_inputs[unit] > 0]
    return steps, stuck
