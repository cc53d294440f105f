"""Segments: runs of machine groups and of host operators, as few as the dependencies allow."""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.group_order import Step, execution_order, producers
from opu_fuse.fuse.partition import Partition
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.lowering.pass_geometry import Geometry
from opu_fuse.tile_schedule.fused_heads import FusedHeads
from opu_fuse.tile_schedule.fused_stack import FusedStack
from opu_fuse.tiling.tile import ceil_div, output_blocks


class UnitGroups(Struct, frozen=True, kw_only=True):
    """Groups that run as one unit, in execution order.

    first_ranges: output ranges that the first group computes before, in a unit of its own;
    two_results: a group, and that of a norm of its result, which is computed in the same passes;
    heads, stack: they are fused heads, or a fused stack;
    images: they run batch block by batch block, of so many images each; 0: they do not.
    """

    groups: tuple[int, ...]
    first_ranges: int = 0
    two_results: bool = False
    heads: FusedHeads | None = None
    stack: FusedStack | None = None
    images: int = 0

    @property
    def interleaved(self) -> bool:
        """Whether there are several groups whose tiles are interleaved."""
        other = self.two_results or self.heads or self.stack or self.images
        return len(self.groups) > 1 and not other


class HostWork(Struct, frozen=True, kw_only=True):
    """One host segment: DFG nodes in order."""

    nodes: tuple[int, ...]


Segment = tuple[UnitGroups, ...] | HostWork
"""The units of a machine segment, without groups of views only; or a host segment."""

SegmentGroups = tuple[int, ...] | HostWork
"""Likewise the groups, with those of views."""


def order_segments(
    dfg: Dfg, partition: Partition, aliases: Collection[int] = ()
) -> tuple[SegmentGroups, ...]:
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
) -> tuple[SegmentGroups, ...]:
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
        tuple(step.group for step in steps if step.group is not None)
        if (number % 2 == 0) == machine_first
        else HostWork(nodes=tuple(step.node for step in steps if step.node is not None))
        for number, steps in enumerate(segments)
    )


def _nodes(partition: Partition, step: Step) -> list[int]:
    if step.group is not None:
        return [m.node for m in partition.groups[step.group].matches]
    assert step.node is not None
    return [step.node]


def move_before_readers(
    segment: SegmentGroups, layers: Mapping[int, Geometry], hw: HwSpec
) -> SegmentGroups:
    """Move groups directly before the reader of their map, so that the map can be resident.

    Only one group may be in between: the one that produces the reader's other operand.
    """
    if not hw.post.keep or isinstance(segment, HostWork):
        return segment
    groups = list(segment)
    passes = [layers.get(group) for group in groups]
    triples = zip(passes, passes[1:], passes[2:], strict=False)
    for at, (ours, other, reader) in enumerate(triples):
        if ours is None or other is None or reader is None or reader.source != ours.output:
            continue
        can_move = other.output in reader.operands and ours.output not in other.operands
        if can_move and _fits_banks(ours.shape, hw):
            groups[at : at + 2] = groups[at + 1], groups[at]
    return tuple(groups)


def _fits_banks(shape: Shape, hw: HwSpec) -> bool:
    """Whether the input and the output of a layer each fit one feature bank."""
    read = shape.in_rows * shape.in_cols * ceil_div(shape.in_channels, hw.word_channels)
    written = shape.out_rows * shape.out_cols * output_blocks(shape, hw)
    return max(read, written) <= hw.buffers.feature.bank_words


def segment_of(segment: SegmentGroups, layers: Collection[int]) -> Segment:
    """A segment whose groups are units of their own. layers: groups that are no views only."""
    if isinstance(segment, HostWork):
        return segment
    return tuple(UnitGroups(groups=(group,)) for group in segment if group in layers)
