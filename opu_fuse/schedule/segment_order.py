"""Segments: runs of machine groups and of host operators, as few as the dependencies allow."""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.group_order import Step, execution_order, producers
from opu_fuse.fuse.partition import Partition
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.lowering.pass_geometry import Geometry
from opu_fuse.tiling.tile import ceil_div


class SegmentSteps(Struct, frozen=True, kw_only=True):
    """Steps of one segment in execution order; machine: all are groups."""

    machine: bool
    steps: tuple[Step, ...]


def order_segments(
    dfg: Dfg, partition: Partition, free: Collection[int] = ()
) -> tuple[SegmentSteps, ...]:
    """All steps, each after what it reads, in segments that alternate between machine and host: the
    fewest there can be.

    free: changes of view on the host that nobody needs to run, since their bytes lie in the
    machine's memory already; they are left out.
    """
    order = execution_order(dfg, partition)
    # With nothing to begin with on one side, that start has an empty segment more than the other.
    starts = (_segments(dfg, partition, order, free, machine_first=m) for m in (True, False))
    return min(starts, key=len)


def _segments(
    dfg: Dfg,
    partition: Partition,
    order: Sequence[Step],
    free: Collection[int],
    *,
    machine_first: bool,
) -> tuple[SegmentSteps, ...]:
    """Every step in the earliest segment of its side that is not before anything it reads: no order
    that begins on this side has fewer.
    """
    segment_of: dict[int, int] = {}
    found: list[list[Step]] = []
    for step in order:
        nodes = _nodes(partition, step)
        read = {p for node in nodes for p in producers(dfg, node)}
        number = max((segment_of[p] for p in read if p in segment_of), default=0)
        if step.node not in free:
            number += (number % 2 == 0) != ((step.group is not None) == machine_first)
            found += [[] for _ in range(len(found), number + 1)]
            found[number].append(step)
        segment_of.update(dict.fromkeys(nodes, number))
    return tuple(
        SegmentSteps(machine=(number % 2 == 0) == machine_first, steps=tuple(steps))
        for number, steps in enumerate(found)
    )


def _nodes(partition: Partition, step: Step) -> list[int]:
    if step.group is not None:
        return [m.node for m in partition.groups[step.group].matches]
    assert step.node is not None
    return [step.node]


def in_front_of_readers(
    segment: SegmentSteps, layers: Mapping[int, Geometry], hw: HwSpec
) -> SegmentSteps:
    """Move groups directly before the reader of their map, where only the reader's other operand is
    in between and the map can be resident then.
    """
    if not hw.post.keep:
        return segment
    steps = list(segment.steps)
    made = [None if t.group is None else layers.get(t.group) for t in steps]
    for at, (ours, beside, reader) in enumerate(zip(made, made[1:], made[2:], strict=False)):
        if ours is None or beside is None or reader is None or reader.source != ours.output:
            continue
        free = beside.output in reader.operands and ours.output not in beside.operands
        if free and _in_banks(ours.shape, hw):
            steps[at : at + 2] = steps[at + 1], steps[at]
    return replace(segment, steps=tuple(steps))


def _in_banks(shape: Shape, hw: HwSpec) -> bool:
    """Whether a feature bank holds the map that a layer reads, one what it makes."""
    read = shape.in_rows * shape.in_cols * ceil_div(shape.in_channels, hw.word_channels)
    made = shape.out_rows * shape.out_cols * ceil_div(shape.pre_pool_channels, hw.word_channels)
    return max(read, made) <= hw.buffers.feature.bank_words


def side_by_side(segment: SegmentSteps, beside: Mapping[int, int]) -> SegmentSteps:
    """The segment with every co-scheduled group directly after its partner."""
    co_scheduled = set(beside.values())
    steps = []
    for step in segment.steps:
        if step.group in co_scheduled:
            continue
        steps.append(step)
        if step.group is not None and step.group in beside:
            steps.append(Step(group=beside[step.group]))
    return replace(segment, steps=tuple(steps))
