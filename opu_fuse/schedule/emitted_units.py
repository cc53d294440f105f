"""Units of emission in execution order: single layers, co-scheduled ones, fused stacks."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import Storage
from opu_fuse.schedule.segment_order import HostWork, UnitGroups
from opu_fuse.schedule.tile_choice import PlannedLayer, Tiling
from opu_fuse.tile_schedule.unit import Unit, with_residents


class PlannedUnit(Unit[PlannedLayer], frozen=True, kw_only=True):
    """A unit with its groups."""

    groups: tuple[int, ...]

    @property
    def not_stored(self) -> tuple[Storage, ...]:
        """Where the values would be that it computes and does not store to DRAM."""
        if self.stack is not None:
            pairs = zip(self.layers, self.stack.stored, strict=True)
            return tuple(layer.writes for layer, stored in pairs if not stored)
        if self.heads is not None:
            scores = () if self.heads.stored else self.layers[: 2 * self.heads.count : 2]
            return tuple(layer.writes for layer in scores)
        if self.resident is None or self.resident.stored:
            return ()
        return (self.layers[self.two_results].writes,)


PlannedUnits = Sequence[PlannedUnit]
"""The units of a machine segment, in execution order."""


def planned_units(
    tiling: Tiling, hw: HwSpec, *, store_all: bool = False
) -> list[list[PlannedUnit]]:
    """Units of every segment, in execution order; none for host segments."""
    by_segment: list[list[PlannedUnit]] = []
    for segment in tiling.order:
        groups = () if isinstance(segment, HostWork) else segment
        units = [unit for each in groups for unit in _units_of(tiling, each, store_all=store_all)]
        units = with_residents(units, hw)
        if store_all:
            stored = [unit.resident and replace(unit.resident, stored=True) for unit in units]
            units = [replace(u, resident=x) for u, x in zip(units, stored, strict=True)]
        by_segment.append(units)
    return by_segment


def _units_of(tiling: Tiling, unit: UnitGroups, *, store_all: bool) -> Iterator[PlannedUnit]:
    groups, stack, heads = unit.groups, unit.stack, unit.heads
    layers = tuple(part for group in groups for part in tiling.layers[group])
    if unit.images:
        pairs = zip(groups, layers, strict=True)
        units = [PlannedUnit(layers=(layer,), groups=(group,)) for group, layer in pairs]
        yield from in_batch_blocks(units, layers, unit.images)
        return
    if unit.first_ranges:
        first, rest = layers[0].split(unit.first_ranges)
        yield PlannedUnit(layers=(first,), groups=groups[:1])
        layers = rest, *layers[1:]
    if stack is not None:
        stored = (True,) * len(layers) if store_all else stack.stored
        stack = replace(stack, layers=layers, stored=stored)
    yield PlannedUnit(
        layers=layers,
        interleaved=unit.interleaved,
        two_results=unit.two_results,
        stack=stack,
        heads=heads and replace(heads, stored=store_all),
        groups=groups,
    )


def in_batch_blocks(
    units: PlannedUnits, layers: Sequence[PlannedLayer], images: int
) -> Iterator[PlannedUnit]:
    """Yield the units of some layers, batch block by batch block.

    layers: the layers with all images; images: images per block.
    """
    for first in range(0, layers[0].shape.images, images):
        for unit, layer in zip(units, layers, strict=True):
            yield replace(unit, layers=(replace(layer, images=(first, images)),), resident=None)
