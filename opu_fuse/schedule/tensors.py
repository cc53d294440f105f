"""Values in the memory window and their live ranges."""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.views import values_read
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.isa.table import REGISTER, Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import DataLayout, Storage
from opu_fuse.schedule.layer import Layer
from opu_fuse.schedule.segment_order import SegmentSteps

BEFORE = -1
"""Step of values that are written before the run."""
_MOST_WORDS = REGISTER[Engine.LOAD, "block_pitch"].highest


class TensorUse(Struct, frozen=True, kw_only=True):
    """A stored value.

    storage: its layout and base allocation;
    first, last: execution steps between which its bytes are live (BEFORE: written before the run).
    """

    storage: Storage
    first: int
    last: int


def tensor_uses(
    dfg: Dfg,
    layers: Mapping[int, Layer],
    segments: Sequence[SegmentSteps],
    hw: HwSpec,
    layout: DataLayout,
    same_step: Collection[int] = (),
) -> dict[int, TensorUse]:
    """Every value that a machine group reads or writes, by DFG index (never a change of view).

    layers: group index -> layer;
    same_step: groups that run in the same step as the machine group before them. Views between
    them take no step.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    machine = set(layout.sharers)
    joined_steps = set(same_step)
    step = BEFORE
    for segment in segments:
        for unit in segment.steps:
            runs = unit.group in layers
            step += (runs or not segment.machine) and unit.group not in joined_steps
            if unit.group is not None and runs:
                layer = layers[unit.group]
                reads = list(layer.operands)
                machine.update(reads, (layer.output,))
                first[layer.output] = step
            elif unit.node is not None:
                reads = [dfg.base(i) for i in values_read(dfg, unit.node)]
                first[unit.node] = step
            else:
                reads = []
            for node in reads:
                last[node] = step
    for output in dfg.outputs:
        last[dfg.base(output)] = step + 1
    return {
        node: TensorUse(
            storage=layout.storage(dfg, hw, node),
            first=first.get(node, BEFORE),
            last=last.get(node, first.get(node, BEFORE)),
        )
        for node in sorted(machine)
    }


def require_countable(dfg: Dfg, uses: Mapping[int, TensorUse]) -> None:
    """DoesNotFit for a map whose block pitch exceeds the range of the register."""
    for node, use in uses.items():
        words = use.storage.layout.block_words
        if words > _MOST_WORDS:
            raise DoesNotFit(
                dfg[node].name or dfg[node].value,
                f"a channel block of its map has {words} words, instructions count {_MOST_WORDS}",
                "run fewer images together (--batch), or smaller ones",
            )
