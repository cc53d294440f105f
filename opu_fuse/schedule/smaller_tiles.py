"""Retile layers at whose borders the array waits.

The closed form sees one layer. Where the next layer needs all channels or rows of a map, as windows
and norms do, it waits for post of the last tile and its transfers; where a layer has one tile of
all pixels, it waits for the whole map before. Smaller tiles shorten both. The timed tile schedule
decides. Machines without norms keep their programs.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.schedule.emitted_units import PlannedUnit, planned_units
from opu_fuse.schedule.fused_stack_choice import RESOLUTION
from opu_fuse.schedule.tile_choice import Tiling, retiled
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tiling.candidates import Fit, candidates
from opu_fuse.tiling.tile import Tile
from opu_fuse.timing.segment_cycles import Known, cycles_by_output, saved
from opu_fuse.units.base import ModuleKind

LEAST_WAIT = 240
"""Cycles of waiting that are worth the time of a search."""

_Tiles = dict[tuple[Shape, Tile], Sequence[Tile]]
"""Smaller tiles of layers, by their shapes and tiles."""


def with_smaller_tiles(tiling: Tiling, hw: HwSpec) -> Tiling:
    """Replace the tile of every layer that is faster with a smaller one, layer by layer."""
    if not hw.has(ModuleKind.NORM):
        return tiling
    taken: dict[int, TiledLayer] = {}
    known: Known = {}
    smaller: _Tiles = {}
    in_blocks = {group for block in tiling.batch_blocks for group in block.groups}
    for units in planned_units(tiling, hw):
        now: list[PlannedUnit] = [*units]
        for at in _at_waits(units, hw):
            unit = now[at]
            if not _has_one_tile_size(unit) or unit.groups[0] in in_blocks:
                continue
            best, most = unit, RESOLUTION * unit.layers[0].estimate.total_cycles
            for tile in _smaller(unit.layers[0], smaller, hw):
                other = replace(unit, layers=(unit.layers[0].with_tile(tile, hw),))
                gain, _ = saved(now, [*now[:at], other, *now[at + 1 :]], hw, known)
                if gain > most:
                    best, most = other, gain
            if best is not unit:
                now[at], taken[unit.groups[0]] = best, best.layers[0]
    return retiled(tiling, hw, taken) if taken else tiling


def _at_waits(units: Sequence[PlannedUnit], hw: HwSpec) -> list[int]:
    """Positions of the units for which the array waits, and of those before them."""
    spent = cycles_by_output(units, hw)
    found: dict[int, None] = {}
    for at, unit in enumerate(units):
        array = sum(layer.estimate.compute_cycles for layer in unit.layers)
        waits = sum(spent[layer.output] for layer in unit.layers) - array
        if waits > max(RESOLUTION * array, LEAST_WAIT):
            found |= dict.fromkeys(range(max(at - 1, 0), at + 1))
    return list(found)


def _has_one_tile_size(unit: PlannedUnit) -> bool:
    """Whether a unit is one layer on the array that computes all of its map."""
    layer = unit.layers[0]
    alone = unit.stack is None and len(unit.layers) == 1 and not layer.partial
    return alone and layer.shape.array and not layer.tile.undivided


def _smaller(layer: TiledLayer, known: _Tiles, hw: HwSpec) -> Sequence[Tile]:
    key = layer.shape, layer.tile
    if key not in known:
        known[key] = [*dict.fromkeys(_tiles(*key, hw))]
    return known[key]


def _tiles(shape: Shape, tile: Tile, hw: HwSpec) -> Iterator[Tile]:
    """Yield the fastest tiles of at most two thirds of the pixels, and of a quarter of the channel
    blocks, or one. They are as wide, since readers wait for whole rows.
    """
    fits = [each for each in candidates(shape, hw) if isinstance(each, Fit)]
    if shape.out_rows * shape.images > 1:
        fits = [each for each in fits if each.tile.cols >= tile.cols]
    pixels, blocks = _pixels(tile), tile.blocks
    for most in ((2 * pixels // 3, blocks), (pixels, max(blocks // 4, 1))):
        small = (each for each in fits if _pixels(each.tile) <= most[0])
        few = (each for each in small if each.tile.blocks <= most[1])
        best = min(few, key=lambda each: each.cost.total_cycles, default=None)
        if best is not None and best.tile != tile:
            yield best.tile


def _pixels(tile: Tile) -> int:
    return tile.images * tile.rows * tile.cols
