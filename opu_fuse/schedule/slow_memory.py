"""Retile layers for a slow memory: try the tiles that the closed form prefers for a faster one.

The closed form sees one layer: where memory bounds it, it prefers the tile that moves the fewest
bytes. But transfers also overlap the preceding and following layers, so a tile that keeps the array
busier may hide its traffic. The timed tile schedule decides which tile is fastest.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace as with_fields

from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.schedule.emitted_units import planned_units
from opu_fuse.schedule.fused_stack_choice import RESOLUTION
from opu_fuse.schedule.tile_choice import Tiling, retiled
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tiling.candidates import choose_tile
from opu_fuse.tiling.tile import Tile
from opu_fuse.timing.segment_cycles import saved


def with_timed_tiles(tiling: Tiling, hw: HwSpec) -> Tiling:
    """Replace the tile of every layer that is faster with the alternative, layer by layer."""
    others = _alternatives(tiling, hw)
    if not others:
        return tiling
    taken: dict[int, TiledLayer] = {}
    for units in planned_units(tiling, hw):
        for at, (group, *co_scheduled) in enumerate(unit.groups for unit in units):
            fixed = co_scheduled or units[at].layers[0].partial
            for tile in () if fixed else others.get(group, ()):
                other = replace(units[at], layers=(units[at].layers[0].with_tile(tile, hw),))
                changed = [*units[:at], other, *units[at + 1 :]]
                gain, near = saved(units, changed, hw)
                if gain > RESOLUTION * near:
                    units, taken[group] = changed, other.layers[0]
    return retiled(tiling, hw, taken)


def _alternatives(tiling: Tiling, hw: HwSpec) -> Mapping[int, Sequence[Tile]]:
    """Group -> its tiles for faster memories, where they differ."""
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
