"""Retile layers where the timed tile schedule finds another tile faster than the closed form does.

The closed form sees one layer. Where memory bounds it, it prefers the tile that moves the fewest
bytes; but transfers also overlap the preceding and following layers, so a tile that keeps the array
busier may hide its traffic. Nor does it count cycles for each transfer, so it takes small tiles
where the memory is the bound. Timed are, with the layers before and after:

1. for a memory slower than its bus, the tiles that the closed form prefers for faster ones;
2. on machines with norms, for layers that lose cycles, high tiles as wide as the map.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace as with_fields

from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.schedule.emitted_units import PlannedUnit, planned_units
from opu_fuse.schedule.fused_stack_choice import RESOLUTION
from opu_fuse.schedule.tile_choice import Tiling, retiled
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tiling.candidates import Fit, candidates, choose_tile
from opu_fuse.tiling.tile import Tile
from opu_fuse.timing.segment_cycles import Known, cycles_by_output, saved
from opu_fuse.units.base import ModuleKind

_LOST = 400, 0.05
"""Cycles, and share of its cycles, that a layer loses at least before other tiles are timed."""

_HEIGHTS = 3
"""Heights that are timed, for each number of channel blocks."""


def with_timed_tiles(tiling: Tiling, hw: HwSpec) -> Tiling:
    """Replace the tile of every layer that is faster with an alternative, layer by layer."""
    for find in (_for_faster_memories, _high):
        tiling = _with_fastest(tiling, find(tiling, hw), hw)
    return tiling


def _with_fastest(tiling: Tiling, others: Mapping[int, Sequence[Tile]], hw: HwSpec) -> Tiling:
    """others: group -> tiles to be timed."""
    if not others:
        return tiling
    taken: dict[int, TiledLayer] = {}
    known: Known = {}
    for units in planned_units(tiling, hw):
        for at, (group, *co_scheduled) in enumerate(unit.groups for unit in units):
            fixed = co_scheduled or units[at].layers[0].partial
            for tile in () if fixed else others.get(group, ()):
                other = replace(units[at], layers=(units[at].layers[0].with_tile(tile, hw),))
                changed = [*units[:at], other, *units[at + 1 :]]
                gain, near = saved(units, changed, hw, known)
                if gain > RESOLUTION * near:
                    units, taken[group] = changed, other.layers[0]
    return retiled(tiling, hw, taken)


def _high(tiling: Tiling, hw: HwSpec) -> Mapping[int, Sequence[Tile]]:
    """Case 2: group -> its widest tiles, the highest of each number of channel blocks.

    Machines without norms keep their programs.
    """
    if not hw.has(ModuleKind.NORM):
        return {}
    by_group: dict[int, Sequence[Tile]] = {}
    known: dict[Shape, Sequence[Tile]] = {}
    for units in planned_units(tiling, hw):
        spent = cycles_by_output(units, hw)
        for unit in units:
            if not _loses(unit, spent, hw):
                continue
            layer = unit.layers[0]
            if layer.shape not in known:
                known[layer.shape] = _highest(layer.shape, hw)
            by_group[unit.groups[0]] = [t for t in known[layer.shape] if t != layer.tile]
    return by_group


def _loses(unit: PlannedUnit, spent: Mapping[int, float], hw: HwSpec) -> bool:
    """Whether the only layer of a unit takes notably longer than its products. spent: cycles."""
    if len(unit.layers) != 1 or unit.layers[0].partial:
        return False
    layer = unit.layers[0].layer
    cycles, (least, share) = spent.get(layer.output, 0.0), _LOST
    return cycles - layer.macs / hw.macs > max(least, share * cycles)


def _highest(shape: Shape, hw: HwSpec) -> list[Tile]:
    """The highest of the widest tiles, for each number of channel blocks; of equal sizes the one
    with the fewest predicted cycles.
    """
    by_size: dict[tuple[int, int, int], Fit] = {}
    for fit in (c for c in candidates(shape, hw) if isinstance(c, Fit)):
        tile = fit.tile
        size = tile.blocks, tile.cols, tile.images * tile.rows
        best = by_size.get(size)
        if best is None or fit.cost.total_cycles < best.cost.total_cycles:
            by_size[size] = fit
    sizes: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for size in sorted(by_size, reverse=True):
        sizes[size[0]].append(size)
    return [
        by_size[size].tile
        for of_blocks in sizes.values()
        for size in of_blocks[:_HEIGHTS]
        if size[1] == of_blocks[0][1]
    ]


def _for_faster_memories(tiling: Tiling, hw: HwSpec) -> Mapping[int, Sequence[Tile]]:
    """Case 1: group -> its tiles for faster memories, where they differ."""
    by_group: dict[int, list[Tile]] = {}
    for rate in _faster(hw):
        fast = with_fields(hw, dram=with_fields(hw.dram, bytes_per_cycle=rate))
        known: dict[Shape, Tile] = {}
        for group, (part, *phases) in tiling.layers.items():
            shape = part.layer.shape
            if phases:
                continue
            if shape not in known:
                known[shape], _ = choose_tile(part.layer.name, shape, fast)
            if known[shape] not in (part.tile, *by_group.get(group, ())):
                by_group.setdefault(group, []).append(known[shape])
    return by_group


def _faster(hw: HwSpec) -> Iterator[float]:
    """Bytes per cycle, doubled each time, up to the bus width."""
    rate = hw.dram.bytes_per_cycle
    while rate < hw.dram.bus_bytes:
        rate = min(2 * rate, hw.dram.bus_bytes)
        yield rate
