"""Selection of the groups that form fused stacks (`tile_schedule/fused_stack.py`)."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from opu_fuse.dfg.graph import Dfg
from opu_fuse.hw.isa.table import REGISTER, Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.schedule.choice_names import FusedStackChoice
from opu_fuse.schedule.emitted_units import PlannedUnit, planned_units
from opu_fuse.schedule.fused_stack_choice import LONGEST, STRIPS, together, weigh
from opu_fuse.schedule.tensors import tensor_uses
from opu_fuse.schedule.tile_choice import Tiling, Together, Weighed, retiled
from opu_fuse.tile_schedule.fused_stack import FusedStack, RowStrips, interleaved
from opu_fuse.tile_schedule.residency import first_blocks
from opu_fuse.timing.segment_cycles import cycles_by_output

_MANY_TURNS = 512
"""Of strips that are no narrower for it: each is some instructions of every group."""
_ROW_PITCH = REGISTER[Engine.POST, "keep_row_pitch"]


def with_cascades(dfg: Dfg, tiling: Tiling, hw: HwSpec, cascades: FusedStackChoice) -> Tiling:
    """Add the fused stacks that a mode selects, with their tiles.

    Machines without resident maps have no fused stacks.
    """
    if cascades is FusedStackChoice.NEVER or not hw.post.keep:
        return tiling
    homes = {node: use.place.home for node, use in tiling.uses.items()}
    strips = RowStrips(hw, tiling.layout.images)
    found: list[Together] = []
    tried: list[Weighed] = []
    for units in planned_units(tiling, hw):
        chains = [chain for chain in _chains(units) if len(chain) > 1]
        if cascades is FusedStackChoice.ALWAYS:
            for chain in chains:
                found += _longest(chain, strips, homes)
        elif chains:
            alone = cycles_by_output(units, [unit.keep for unit in units], hw)
            for chain in chains:
                tried += weigh(units, chain, alone, strips, homes)
    found += [weighed.together for weighed in tried if weighed.taken]
    tiling = replace(tiling, weighed=tuple(tried))
    return replaced(dfg, replace(tiling, cascades=tuple(found)), hw) if found else tiling


def _longest(
    chain: Sequence[PlannedUnit], strips: RowStrips, homes: Mapping[int, int]
) -> Iterator[Together]:
    """Cut a chain into the longest fused stacks that fit, from its first layer on."""
    at = 0
    while at + 1 < len(chain):
        lengths = range(min(LONGEST, len(chain) - at), 1, -1)
        tried = ((n, _first_fit(chain[at : at + n], strips, homes)) for n in lengths)
        length, best = next(((n, c) for n, c in tried if c is not None), (1, None))
        if best is not None:
            yield together(chain[at : at + length], best)
        at += length


def _first_fit(
    units: Sequence[PlannedUnit], strips: RowStrips, homes: Mapping[int, int]
) -> FusedStack | None:
    """The fused stack of the narrowest row strips, whose line buffers wrap most often.

    Very tall maps use the first strip height with few enough strips, or the largest.
    """
    best: FusedStack | None = None
    for rows, parts in reversed(STRIPS):
        sized = strips.size([unit.works[0] for unit in units], rows, parts)
        found = sized if isinstance(sized, str) else interleaved(sized, homes, strips.hw)
        if isinstance(found, str):
            continue
        best = found
        last = found.works[-1]
        if last.shape.images * last.shape.out_rows <= last.tile.rows * _MANY_TURNS:
            break
    return best


def _chains(units: Sequence[PlannedUnit]) -> Iterator[list[PlannedUnit]]:
    """Chains of groups of a segment, each reading the output of its predecessor."""
    chain: list[PlannedUnit] = []
    for unit in units:
        if chain and not _link(chain[-1], unit):
            yield chain
            chain = []
        chain.append(unit)
    yield chain


def _link(maker: PlannedUnit, reader: PlannedUnit) -> bool:
    """Whether a unit reads the whole output of its predecessor, row by row as it is written."""
    if len(maker.works) != 1 or len(reader.works) != 1:
        return False
    (made,), (read,) = maker.works, reader.works
    layout = read.reads.layout
    return (
        made.writes.home == made.output
        and first_blocks((made,), read.reads) == [0]
        and layout.blocks * layout.row_words <= _ROW_PITCH.highest
    )


def replaced(dfg: Dfg, tiling: Tiling, hw: HwSpec) -> Tiling:
    """Apply the tiles of fused stacks and batch blocks.

    Constants are packed again, and tensors of their groups are live as long as these run.
    """
    parts = [(found.groups, found.stack.works) for found in tiling.cascades]
    parts += [(found.groups, found.works) for found in tiling.rounds]
    works = {g: work for groups, found in parts for g, work in zip(groups, found, strict=True)}
    tiling = retiled(tiling, hw, works)
    layers = {group: layer.layer for group, (layer, *_) in tiling.layers.items()}
    uses = tensor_uses(dfg, layers, tiling.segments, hw, tiling.layout, tiling.same_step)
    return replace(tiling, uses=uses)
