"""Selection of the groups that form fused stacks (`tile_schedule/fused_stack.py`)."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import Storage
from opu_fuse.schedule.choice_names import FusedStackChoice
from opu_fuse.schedule.emitted_units import PlannedUnit, PlannedUnits, planned_units
from opu_fuse.schedule.fused_stack_choice import LONGEST, STRIPS, StackSearch, stack_groups
from opu_fuse.schedule.segment_order import UnitGroups
from opu_fuse.schedule.tile_choice import StackTrial, Tiling, retiled
from opu_fuse.tile_schedule.fused_stack import FusedStack, RowStrips
from opu_fuse.tile_schedule.stack_wiring import may_join
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.timing.segment_cycles import timed

_MOST_STRIPS = 512
"""Row strips of a map above which taller ones are preferred: each strip takes instructions of every
group.
"""


def with_fused_stacks(
    tiling: Tiling, hw: HwSpec, choice: FusedStackChoice, storages: Mapping[int, Storage]
) -> Tiling:
    """Add the fused stacks that the choice selects, with their tiles. storages: of all values.

    Machines without resident maps have no fused stacks.
    """
    if choice is FusedStackChoice.NEVER or not hw.post.keep:
        return tiling
    # Behind a fast memory branches gain little, and their search takes time.
    branches = hw.dram.is_slow or choice is FusedStackChoice.ALWAYS
    images = tiling.layout.images
    strips = RowStrips(hw, images, storages, branches=branches and images == 1)
    stacks: list[UnitGroups] = []
    trials: list[StackTrial] = []
    for units in planned_units(tiling, hw):
        chains = [c for c in _chains(units, images, strips.branches) if len(c) > 1]
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
    new: dict[int, TiledLayer] = {}
    for each in stacks:
        new |= zip(each.groups, each.stack.layers if each.stack else (), strict=True)
    return retiled(tiling, hw, new).with_units(stacks) if stacks else tiling


def _longest(chain: PlannedUnits, strips: RowStrips) -> Iterator[UnitGroups]:
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


def _chains(units: PlannedUnits, images: int, branches: bool) -> Iterator[list[PlannedUnit]]:
    """Groups of a segment one after the other, each reading what its predecessor computes; with
    branches, what one before it computes, or the same map as one before it.
    """
    span = LONGEST - 1 if branches else 1
    chain: list[PlannedUnit] = []
    for unit in units:
        alone = not _is_plain(unit, images)
        near = [before.layers[0] for before in chain[-span:]]
        if alone or not may_join(near, unit.layers[0]):
            yield chain
            chain = []
        if not alone:
            chain.append(unit)
    yield chain


def _is_plain(unit: PlannedUnit, images: int) -> bool:
    """Whether a unit is one layer that computes a map row by row.

    images: of the batch; in units that have more, each is a token sequence.
    """
    layer = unit.layers[0]
    return (
        len(unit.layers) == 1
        and not layer.partial
        and layer.shape.images in {1, images}
        and (images == 1 or not layer.shape.unit)  # images have no rows of a unit matrix
    )
