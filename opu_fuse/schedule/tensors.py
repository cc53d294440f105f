"""Which values lie in the memory window, in which layout, and from when to when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.views import feature_shape, follow_views
from opu_fuse.hw.layout import Layout
from opu_fuse.hw.spec import HwSpec
from opu_fuse.schedule.layer import Layer
from opu_fuse.schedule.order import SegmentSteps

MIN_SLOT = 4
BEFORE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorUse:
    """A stored value. node: DFG index (never a change of view); first, last: execution steps
    between which its bytes are needed (BEFORE: written before the run).
    """

    node: int
    layout: Layout
    first: int
    last: int


def tensor_uses(
    dfg: Dfg, layers: Mapping[int, Layer], segments: Sequence[SegmentSteps], hw: HwSpec
) -> dict[int, TensorUse]:
    """Every value that a machine group reads or writes, by DFG index. layers: group index ->
    layer.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    slotted = set(dfg.inputs)
    machine: set[int] = set()
    step = 0
    for segment in segments:
        for unit in segment.steps:
            if unit.group is not None and unit.group in layers:
                layer = layers[unit.group]
                reads = [layer.source] + ([] if layer.residual is None else [layer.residual])
                machine.update(reads, (layer.output,))
                first[layer.output] = step
                if not _reads_slots(layer, hw):
                    slotted.discard(layer.source)
                slotted.discard(-1 if layer.residual is None else layer.residual)
            elif unit.node is not None:
                reads = [follow_views(dfg, i) for i in values_read(dfg, unit.node)]
                first[unit.node] = step
            else:
                reads = []
            for node in reads:
                last[node] = step
            step += 1
    for output in dfg.outputs:
        last[follow_views(dfg, output)] = step
    return {
        node: TensorUse(
            node=node,
            layout=layout_of(dfg[node], hw, slotted=node in slotted),
            first=first.get(node, BEFORE),
            last=last.get(node, first.get(node, BEFORE)),
        )
        for node in sorted(machine)
    }


def values_read(dfg: Dfg, node: int) -> list[int]:
    """Non-constant values a call reads, tuples looked through, in operand order."""
    found: list[int] = []
    stack = list(reversed(dfg[node].operands))
    while stack:
        operand = dfg[stack.pop()]
        if operand.kind is Kind.TUPLE:
            stack.extend(reversed(operand.operands))
        elif operand.kind is Kind.TUPLE_GET:
            found.append(operand.operands[0])
        elif operand.kind is not Kind.CONST:
            found.append(operand.index)
    return found


def layout_of(node: Node, hw: HwSpec, *, slotted: bool) -> Layout:
    """Blocks of words; `slotted` images take the smallest slot of at least MIN_SLOT bytes that
    holds their channels.
    """
    channels, rows, cols = feature_shape(node.shape)
    slotted = slotted and hw.word_bytes == hw.word_channels
    slot = max(MIN_SLOT, 1 << (channels - 1).bit_length()) if slotted else hw.word_bytes
    return Layout(
        channels=channels,
        rows=rows,
        cols=cols,
        word=hw.word_bytes,
        lanes=hw.word_channels,
        slot=min(slot, hw.word_bytes),
    )


def _reads_slots(layer: Layer, hw: HwSpec) -> bool:
    """Whether the array can take a layer's pixels from slots: its channels fit one segment of
    some mode.
    """
    return layer.shape.array and layer.shape.in_channels <= max(m.ic for m in hw.array.modes)
