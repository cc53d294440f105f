"""Values in the memory window and their live ranges."""

from collections.abc import Mapping

from msgspec import Struct

from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.views import values_read
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.isa.table import REGISTER, Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import Storage
from opu_fuse.schedule.segment_order import HostWork
from opu_fuse.schedule.tile_choice import Tiling

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


def tensor_uses(dfg: Dfg, tiling: Tiling, hw: HwSpec) -> dict[int, TensorUse]:
    """Every value that a machine group reads or writes, by DFG index (never a change of view).

    A unit is a step, whatever its groups, and so is a host operator.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    machine = set(tiling.layout.sharers)
    step = BEFORE
    for segment in tiling.order:
        for work in segment.nodes if isinstance(segment, HostWork) else segment:
            step += 1
            if isinstance(work, int):
                first[work] = step
                last |= dict.fromkeys((dfg.base(i) for i in values_read(dfg, work)), step)
                continue
            for layer in (tiling.layers[group][0].layer for group in work.groups):
                machine.update(layer.operands, (layer.output,))
                first[layer.output] = step
                last |= dict.fromkeys(layer.operands, step)
    for output in dfg.outputs:
        last[dfg.base(output)] = step + 1
    return {
        node: TensorUse(
            storage=tiling.layout.storage(dfg, hw, node),
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
