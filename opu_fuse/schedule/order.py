"""Segments: runs of machine groups and of host operators, in execution order."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import groupby

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.order import Step, execution_order
from opu_fuse.fuse.partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSteps:
    """Steps of one segment in execution order; machine: all are groups."""

    machine: bool
    steps: tuple[Step, ...]


def order_segments(
    dfg: Dfg, partition: Partition, free: Collection[int] = ()
) -> tuple[SegmentSteps, ...]:
    """The execution order cut where it changes between machine and host.

    free: changes of view on the host that nobody needs to run, since their bytes lie in the
    machine's memory already.
    """
    steps = [s for s in execution_order(dfg, partition) if s.node not in free]
    return tuple(
        SegmentSteps(machine=machine, steps=tuple(found))
        for machine, found in groupby(steps, key=lambda s: s.group is not None)
    )
