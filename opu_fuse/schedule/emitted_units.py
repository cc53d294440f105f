"""Units of emission in execution order: single layers, co-scheduled ones, fused stacks."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.schedule.tile_choice import BatchBlock, PlannedLayer, StackGroups, Tiling
from opu_fuse.tile_schedule.fused_heads import FusedHeads
from opu_fuse.tile_schedule.unit import Unit, with_residents


class PlannedUnit(Unit[PlannedLayer], frozen=True, kw_only=True):
    """A unit with its groups."""

    groups: tuple[int, ...]

    @property
    def not_stored(self) -> tuple[int, ...]:
        """Values (DFG indices) that it computes and does not store to DRAM."""
        if self.stack is not None:
            pairs = zip(self.layers, self.stack.stored, strict=True)
            return tuple(layer.writes.alias_root for layer, stored in pairs if not stored)
        if self.heads is not None:
            scores = () if self.heads.stored else self.layers[: 2 * self.heads.count : 2]
            return tuple(layer.writes.alias_root for layer in scores)
        if self.resident is None or self.resident.stored:
            return ()
        return (self.layers[self.two_results].writes.alias_root,)


PlannedUnits = Sequence[PlannedUnit]
"""The units of a machine segment, in execution order."""


def planned_units(
    tiling: Tiling, hw: HwSpec, *, store_all: bool = False
) -> list[list[PlannedUnit]]:
    """Units of every segment, in execution order; none for host segments."""
    begun = tiling.layers.keys() - tiling.same_step
    stacks = {stack.groups[0]: stack for stack in tiling.fused_stacks}
    blocks = {block.groups[0]: block for block in tiling.batch_blocks}
    by_segment: list[list[PlannedUnit]] = []
    for segment in tiling.order:
        units: list[PlannedUnit] = []
        for group in (t.group for t in segment.steps if t.group in begun):
            if group in blocks:
                units += _batch_blocked(tiling, blocks[group])
            elif group in stacks:
                units.append(_fused_stack(tiling, stacks[group], store_all=store_all))
            else:
                units += _units_of(tiling, group, store_all=store_all)
        units = with_residents(units, hw)
        if store_all:
            stored = [unit.resident and replace(unit.resident, stored=True) for unit in units]
            units = [replace(u, resident=x) for u, x in zip(units, stored, strict=True)]
        by_segment.append(units)
    return by_segment


def _units_of(tiling: Tiling, group: int, *, store_all: bool) -> Iterator[PlannedUnit]:
    """Yield the units that begin with a group, neither of a block of images nor of a stack."""
    groups = tiling.together(group)
    parts = tuple(part for g in groups for part in tiling.layers[g])
    if group in tiling.two_results:
        yield PlannedUnit(layers=parts, two_results=True, groups=groups)
    elif group in tiling.fused_heads:
        heads = FusedHeads(count=tiling.fused_heads[group], stored=store_all)
        yield PlannedUnit(layers=parts, heads=heads, groups=groups)
    else:
        if group in tiling.first_ranges:
            first, rest = parts[0].split(tiling.first_ranges[group])
            yield PlannedUnit(layers=(first,), groups=(group,))
            parts = rest, *parts[1:]
        yield PlannedUnit(layers=parts, interleaved=len(groups) > 1, groups=groups)


def in_batch_blocks(
    units: PlannedUnits, layers: Sequence[PlannedLayer], images: int
) -> Iterator[PlannedUnit]:
    """Yield the units of some layers, batch block by batch block.

    layers: the layers with all images; images: images per block.
    """
    for first in range(0, layers[0].shape.images, images):
        for unit, layer in zip(units, layers, strict=True):
            yield replace(unit, layers=(replace(layer, images=(first, images)),), resident=None)


def _batch_blocked(tiling: Tiling, block: BatchBlock) -> Iterator[PlannedUnit]:
    layers = [part for group in block.groups for part in tiling.layers[group]]
    pairs = zip(block.groups, layers, strict=True)
    units = [PlannedUnit(layers=(layer,), groups=(group,)) for group, layer in pairs]
    return in_batch_blocks(units, layers, block.images)


def _fused_stack(tiling: Tiling, fused: StackGroups, *, store_all: bool) -> PlannedUnit:
    layers = tuple(tiling.layers[group][0] for group in fused.groups)
    stored = (True,) * len(layers) if store_all else fused.stack.stored
    stack = replace(fused.stack, layers=layers, stored=stored)
    return PlannedUnit(layers=layers, stack=stack, groups=fused.groups)
