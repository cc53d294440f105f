"""Selection of the groups that form fused stacks (`tile_schedule/fused_stack.py`)."""

from collections.abc import Iterator

from msgspec.structs import replace

from opu_fuse.dfg.graph import Dfg
from opu_fuse.hw.isa.table import REGISTER, Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.schedule.choice_names import FusedStackChoice
from opu_fuse.schedule.emitted_units import PlannedUnit, PlannedUnits, planned_units
from opu_fuse.schedule.fused_stack_choice import LONGEST, STRIPS, StackSearch, stack_groups
from opu_fuse.schedule.tile_choice import StackGroups, StackTrial, Tiling, retiled, with_uses
from opu_fuse.tile_schedule.fused_stack import FusedStack, RowStrips
from opu_fuse.tile_schedule.residency import first_blocks
from opu_fuse.timing.segment_cycles import timed

_MOST_STRIPS = 512
"""Row strips of a map above which taller ones are preferred: each strip takes instructions of every
group.
"""
_ROW_PITCH = REGISTER[Engine.POST, "keep_row_pitch"]


def with_fused_stacks(dfg: Dfg, tiling: Tiling, hw: HwSpec, choice: FusedStackChoice) -> Tiling:
    """Add the fused stacks that the choice selects, with their tiles.

    Machines without resident maps have no fused stacks.
    """
    if choice is FusedStackChoice.NEVER or not hw.post.keep:
        return tiling
    alias_roots = {node: use.storage.alias_root for node, use in tiling.uses.items()}
    strips = RowStrips(hw, tiling.layout.images, alias_roots)
    stacks: list[StackGroups] = []
    trials: list[StackTrial] = []
    for units in planned_units(tiling, hw):
        chains = [c for c in _chains(units, tiling.layout.images) if len(c) > 1]
        if choice is FusedStackChoice.ALWAYS:
            for chain in chains:
                stacks += _longest(chain, strips)
        elif chains:
            times = timed(units, hw)
            search = StackSearch(units, times.spent, times.idle, strips)
            for chain in chains:
                trials += search.trials(chain)
    stacks += [trial.fused for trial in trials if trial.chosen]
    tiling = replace(tiling, stack_trials=tuple(trials))
    return apply_tiles(dfg, replace(tiling, fused_stacks=tuple(stacks)), hw) if stacks else tiling


def _longest(chain: PlannedUnits, strips: RowStrips) -> Iterator[StackGroups]:
    """Cut a chain into the longest fused stacks that fit, from its first layer on."""
    at = 0
    while at + 1 < len(chain):
        lengths = range(min(LONGEST, len(chain) - at), 1, -1)
        tried = ((n, _first_fit(chain[at : at + n], strips)) for n in lengths)
        length, best = next(((n, c) for n, c in tried if c is not None), (1, None))
        if best is not None:
            yield stack_groups(chain[at : at + length], best)
        at += length


def _first_fit(units: PlannedUnits, strips: RowStrips) -> FusedStack | None:
    """The fused stack of the narrowest row strips, whose line buffers wrap most often.

    Very tall maps use the first strip height with few enough strips, or the largest.
    """
    best: FusedStack | None = None
    for rows, parts in reversed(STRIPS):
        stack = strips.ordered([unit.layers[0] for unit in units], rows, parts)
        if stack is None:
            continue
        best = stack
        last = stack.layers[-1]
        if last.shape.images * last.shape.out_rows <= last.tile.rows * _MOST_STRIPS:
            break
    return best


def _chains(units: PlannedUnits, images: int) -> Iterator[list[PlannedUnit]]:
    """Chains of groups of a segment, each reading the output of its predecessor."""
    chain: list[PlannedUnit] = []
    for unit in units:
        if chain and not _link(chain[-1], unit, images):
            yield chain
            chain = []
        chain.append(unit)
    yield chain


def _link(producer: PlannedUnit, reader: PlannedUnit, images: int) -> bool:
    """Whether a unit reads the whole output of its predecessor, row by row as it is written.

    images: of the batch; in units that have more, each is a token sequence.
    """
    if len(producer.layers) != 1 or len(reader.layers) != 1:
        return False
    (first,), (second,) = producer.layers, reader.layers
    if first.partial or second.partial:
        return False
    layout = second.reads.layout
    return (
        all(layer.shape.images in {1, images} for layer in (first, second))
        and (images == 1 or not first.shape.unit)  # images have no rows of a unit matrix
        and first.writes.alias_root == first.output
        and first_blocks((first,), second.reads) == [0]
        and layout.blocks * layout.row_words <= _ROW_PITCH.highest
    )


def apply_tiles(dfg: Dfg, tiling: Tiling, hw: HwSpec) -> Tiling:
    """Apply the tiles of fused stacks and batch blocks.

    Constants are packed again, and tensors of their groups are live as long as these run.
    """
    parts = [(stack.groups, stack.stack.layers) for stack in tiling.fused_stacks]
    parts += [(block.groups, block.layers) for block in tiling.batch_blocks]
    by_group = {g: layer for groups, part in parts for g, layer in zip(groups, part, strict=True)}
    return with_uses(dfg, retiled(tiling, hw, by_group), hw)
