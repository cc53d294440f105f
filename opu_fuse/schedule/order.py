"""Execution order: machine groups and host operators as alternating segments, as few as the
dependencies allow.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from opu_fuse.dfg.graph import Dfg, Kind
from opu_fuse.errors import InternalError
from opu_fuse.fuse.partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A group (its index) or a host operator (its DFG node), exactly one of them set."""

    group: int | None = None
    host: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentUnits:
    """Units of one segment in execution order; machine: all are groups."""

    machine: bool
    units: tuple[Unit, ...]


def order_segments(
    dfg: Dfg, partition: Partition, free: Collection[int] = ()
) -> tuple[SegmentUnits, ...]:
    """Run everything of one kind that is ready, then everything of the other; the kind that
    begins is the one with which fewer segments result; within a segment the order is that of the
    DFG.

    free: changes of view on the host that nobody needs to run, since their bytes lie in the
    machine's memory already.
    """
    machine_first = _segments(dfg, partition, free, machine=True)
    host_first = _segments(dfg, partition, free, machine=False)
    return host_first if len(host_first) < len(machine_first) else machine_first


def _segments(
    dfg: Dfg, partition: Partition, free: Collection[int], *, machine: bool
) -> tuple[SegmentUnits, ...]:
    units, unit_of = _units(partition, free)
    users, missing = _edges(dfg, units, unit_of)
    ready: dict[bool, list[int]] = {True: [], False: []}
    for i, count in enumerate(missing):
        if count == 0:
            heappush(ready[units[i].group is not None], i)
    segments: list[SegmentUnits] = []
    done = 0
    while done < len(units):
        chosen: list[int] = []
        while ready[machine]:
            chosen.append(heappop(ready[machine]))
            for user in users[chosen[-1]]:
                missing[user] -= 1
                if missing[user] == 0:
                    heappush(ready[units[user].group is not None], user)
        done += len(chosen)
        if chosen:
            segments.append(SegmentUnits(machine=machine, units=tuple(units[i] for i in chosen)))
        elif not ready[not machine]:
            raise InternalError("ordering segments", "groups wait for each other")
        machine = not machine
    return tuple(segments)


def _units(partition: Partition, free: Collection[int]) -> tuple[list[Unit], dict[int, int]]:
    """All units in DFG order of their last node, and the unit of every call node."""
    members: list[tuple[int, Unit, tuple[int, ...]]] = [
        (group.matches[-1].node, Unit(group=group.index), tuple(m.node for m in group.matches))
        for group in partition.groups
    ]
    members += [
        (op.node, Unit(host=op.node), (op.node,)) for op in partition.host if op.node not in free
    ]
    members.sort(key=lambda row: row[0])
    unit_of = {node: i for i, (_, _, nodes) in enumerate(members) for node in nodes}
    return [unit for _, unit, _ in members], unit_of


def _edges(
    dfg: Dfg, units: Sequence[Unit], unit_of: dict[int, int]
) -> tuple[list[list[int]], list[int]]:
    users: list[set[int]] = [set() for _ in units]
    for node, unit in unit_of.items():
        for source in _call_operands(dfg, node, unit_of):
            if unit_of[source] != unit:
                users[unit_of[source]].add(unit)
    missing = [0] * len(units)
    for found in users:
        for unit in found:
            missing[unit] += 1
    return [sorted(found) for found in users], missing


def _call_operands(dfg: Dfg, node: int, unit_of: Mapping[int, int]) -> list[int]:
    """Calls of units whose results a node reads; tuples and free views looked through."""
    found, stack = [], list(dfg[node].operands)
    while stack:
        operand = dfg[stack.pop()]
        if operand.index in unit_of:
            found.append(operand.index)
        elif operand.kind in (Kind.TUPLE, Kind.TUPLE_GET, Kind.CALL):
            stack.extend(operand.operands)
    return found
