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
from opu_fuse.tiling.tile import ceil_div, output_blocks


class SegmentSteps(Struct, frozen=True, kw_only=True):
    """Steps of one segment in execution order; machine: all are groups."""

    machine: bool
    steps: tuple[Step, ...]


def order_segments(
    dfg: Dfg, partition: Partition, aliases: Collection[int] = ()
) -> tuple[SegmentSteps, ...]:
    """Order all steps topologically, in the fewest segments alternating between machine and host.

    aliases: host views that need no execution, since they alias maps in the machine's memory; they
    are left out.
    """
    order = execution_order(dfg, partition)
    # If no step of one side can run first, the order that begins there has one more, empty segment.
    starts = (_segments(dfg, partition, order, aliases, machine_first=m) for m in (True, False))
    return min(starts, key=len)


def _segments(
    dfg: Dfg,
    partition: Partition,
    order: Sequence[Step],
    aliases: Collection[int],
    *,
    machine_first: bool,
) -> tuple[SegmentSteps, ...]:
    """Put every step into the earliest segment of its side that is not before its producers.

    No order that begins on this side has fewer segments.
    """
    segment_of: dict[int, int] = {}
    segments: list[list[Step]] = []
    for step in order:
        nodes = _nodes(partition, step)
        read = {p for node in nodes for p in producers(dfg, node)}
        number = max((segment_of[p] for p in read if p in segment_of), default=0)
        if step.node not in aliases:
            number += (number % 2 == 0) != ((step.group is not None) == machine_first)
            segments += [[] for _ in range(len(segments), number + 1)]
            segments[number].append(step)
        segment_of.update(dict.fromkeys(nodes, number))
    return tuple(
        SegmentSteps(machine=(number % 2 == 0) == machine_first, steps=tuple(steps))
        for number, steps in enumerate(segments)
    )


def _nodes(partition: Partition, step: Step) -> list[int]:
    if step.group is not None:
        return [m.node for m in partition.groups[step.group].matches]
    assert step.node is not None
    return [step.node]


def move_before_readers(
    segment: SegmentSteps, layers: Mapping[int, Geometry], hw: HwSpec
) -> SegmentSteps:
    """Move groups directly before the reader of their map, so that the map can be resident.

    Only one group may be in between: the one that produces the reader's other operand.
    """
    if not hw.post.keep:
        return segment
    steps = list(segment.steps)
    passes = [None if t.group is None else layers.get(t.group) for t in steps]
    triples = zip(passes, passes[1:], passes[2:], strict=False)
    for at, (ours, other, reader) in enumerate(triples):
        if ours is None or other is None or reader is None or reader.source != ours.output:
            continue
        can_move = other.output in reader.operands and ours.output not in other.operands
        if can_move and _fits_banks(ours.shape, hw):
            steps[at : at + 2] = steps[at + 1], steps[at]
    return replace(segment, steps=tuple(steps))


def _fits_banks(shape: Shape, hw: HwSpec) -> bool:
    """Whether the input and the output of a layer each fit one feature bank."""
    read = shape.in_rows * shape.in_cols * ceil_div(shape.in_channels, hw.word_channels)
    written = shape.out_rows * shape.out_cols * output_blocks(shape, hw)
    return max(read, written) <= hw.buffers.feature.bank_words


def pair_co_scheduled(segment: SegmentSteps, fillers: Mapping[int, int]) -> SegmentSteps:
    """Put every co-scheduled group directly after its partner. fillers: partner -> group."""
    co_scheduled = set(fillers.values())
    steps = []
    for step in segment.steps:
        if step.group in co_scheduled:
            continue
        steps.append(step)
        if step.group is not None and step.group in fillers:
            steps.append(Step(group=fillers[step.group]))
    return replace(segment, steps=tuple(steps))
