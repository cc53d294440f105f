"""Units of emission in execution order: single layers, co-scheduled ones, fused stacks."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.schedule.tile_choice import BatchBlock, PlannedLayer, Tiling, Together
from opu_fuse.tile_schedule.residency import ResidentMap, find_residents
from opu_fuse.tile_schedule.traversal import Unit


class PlannedUnit(Unit[PlannedLayer], frozen=True, kw_only=True):
    """groups: groups of the layers; keep: their resident map, if any."""

    groups: tuple[int, ...]
    keep: ResidentMap | None = None

    @property
    def on_chip(self) -> tuple[int, ...]:
        """Values (DFG indices) that it computes and does not store to DRAM."""
        if self.stack is not None:
            both = zip(self.works, self.stack.stored, strict=True)
            return tuple(work.writes.home for work, stored in both if not stored)
        return (self.works[0].writes.home,) if self.keep and not self.keep.stored else ()


def planned_units(
    tiling: Tiling, hw: HwSpec, *, store_all: bool = False
) -> list[list[PlannedUnit]]:
    """Units of every segment, in execution order; none for host segments."""
    layers = tiling.layers
    together = {t.groups[0]: t for t in tiling.cascades}
    rounds = {found.groups[0]: found for found in tiling.rounds}
    several = (*tiling.cascades, *tiling.rounds)
    behind = {group for found in several for group in found.groups[1:]}
    co_scheduled = set(tiling.beside.values())
    found = []
    for segment in tiling.segments:
        units: list[PlannedUnit] = []
        for group in (t.group for t in segment.steps):
            if group is None or group not in layers or group in co_scheduled or group in behind:
                continue
            if group in rounds:
                units += _rounds(tiling, rounds[group])
                continue
            if group in together:
                units.append(_cascade(tiling, together[group], store_all=store_all))
                continue
            pair = (group, tiling.beside[group]) if group in tiling.beside else (group,)
            works = tuple(part for g in pair for part in layers[g])
            units.append(PlannedUnit(works=works, beside=group in tiling.beside, groups=pair))
        kept = find_residents([() if unit.stack else unit.works for unit in units], hw)
        if store_all:
            kept = [keep and replace(keep, stored=True) for keep in kept]
        found.append([replace(u, keep=keep) for u, keep in zip(units, kept, strict=True)])
    return found


def in_rounds(
    units: Sequence[PlannedUnit], works: Sequence[PlannedLayer], images: int
) -> Iterator[PlannedUnit]:
    """Units of some layers, batch block by batch block (works: of all images)."""
    for first in range(0, works[0].shape.images, images):
        for unit, work in zip(units, works, strict=True):
            yield replace(unit, works=(replace(work, images=(first, images)),), keep=None)


def _rounds(tiling: Tiling, rounds: BatchBlock) -> Iterator[PlannedUnit]:
    works = [part for group in rounds.groups for part in tiling.layers[group]]
    both = zip(rounds.groups, works, strict=True)
    units = [PlannedUnit(works=(work,), groups=(group,)) for group, work in both]
    return in_rounds(units, works, rounds.images)


def _cascade(tiling: Tiling, together: Together, *, store_all: bool) -> PlannedUnit:
    works = tuple(tiling.layers[group][0] for group in together.groups)
    stored = (True,) * len(works) if store_all else together.stack.stored
    stack = replace(together.stack, works=works, stored=stored)
    return PlannedUnit(works=works, stack=stack, groups=together.groups)
