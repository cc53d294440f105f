"""Retile layers for a slow memory: time several tiles that the closed form finds good.

The closed form sees one layer: where memory bounds it, it prefers the tile that moves the fewest
bytes. But transfers also overlap the preceding and following layers, so a tile that keeps the array
busier may hide its traffic. The timed tile schedule decides which tile is fastest.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace as with_fields
from heapq import nsmallest

from msgspec import Struct, field
from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.schedule.emitted_units import PlannedUnit, planned_units
from opu_fuse.schedule.fused_stack_choice import RESOLUTION
from opu_fuse.schedule.tile_choice import Tiling, retiled
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tiling.candidates import Fit, candidates, choose_tile, equal_chunks
from opu_fuse.tiling.estimate import Estimate
from opu_fuse.tiling.tile import Tile
from opu_fuse.timing.segment_cycles import Known, cycles_by_output, neighbourhood, saved

_TIMED = 8
"""Cuts of a layer that are timed, those with the fewest predicted cycles."""

_NEAR = 0.02
"""Share of a layer's cycles that a cut must save if array and memory never wait, to be timed."""


class _Found(Struct, frozen=True):
    """What is found once for layers alike: tiles by shape, with cycles that they
    take at least, the fastest of them by all that it
    depends on, and cycles of units.
    """

    tiles: dict[Shape, Sequence[tuple[Tile, float]]] = field(default_factory=dict)
    fastest: dict[Hashable, Tile] = field(default_factory=dict)
    cycles: Known = field(default_factory=dict)


def with_timed_tiles(tiling: Tiling, hw: HwSpec) -> Tiling:
    """Replace the tile of every layer that is faster with another one, layer by layer."""
    if hw.dram.bytes_per_cycle >= hw.dram.bus_bytes:
        return tiling
    found, taken = _Found(), dict[int, TiledLayer]()
    single = {group for group, phases in tiling.layers.items() if len(phases) == 1}
    for units in planned_units(tiling, hw):
        spent = cycles_by_output(units, hw)
        for at, unit in enumerate(units):
            (group, *co_scheduled), layer = unit.groups, unit.layers[0]
            if co_scheduled or group not in single or layer.partial:
                continue
            tile = _fastest(units, at, (1 - _NEAR) * spent[layer.output], found, hw)
            if tile != layer.tile:
                units[at] = _retiled(unit, tile, hw)
                taken[group] = units[at].layers[0]
    return retiled(tiling, hw, taken)


def _fastest(units: Sequence[PlannedUnit], at: int, most: float, found: _Found, hw: HwSpec) -> Tile:
    """The fastest tile of a layer between its neighbours, its own if none is. most: cycles in which
    array and memory must be able to compute and move a cut.
    """
    key = neighbourhood(units, at)
    if key not in found.fastest:
        shape = units[at].layers[0].shape
        if shape not in found.tiles:
            found.tiles[shape] = [*_alternatives(shape, hw)]
        tiles = dict.fromkeys(tile for tile, cycles in found.tiles[shape] if cycles < most)
        best, gain = _best(units, at, tiles, found.cycles, hw)
        if gain:
            finer, more = _best(units, at, [equal_chunks(shape, best, hw, 2)], found.cycles, hw)
            best = finer if more > gain else best
        found.fastest[key] = best
    return found.fastest[key]


def _best(
    units: Sequence[PlannedUnit], at: int, tiles: Iterable[Tile], known: Known, hw: HwSpec
) -> tuple[Tile, float]:
    """The tile with which most cycles are saved, and these; its own and none if none is faster."""
    best, most = units[at].layers[0].tile, 0.0
    for tile in tiles:
        changed = [*units[:at], _retiled(units[at], tile, hw), *units[at + 1 :]]
        gain, near = saved(units, changed, hw, known)
        if gain > max(most, RESOLUTION * near):
            best, most = tile, gain
    return best, most


def _retiled(unit: PlannedUnit, tile: Tile, hw: HwSpec) -> PlannedUnit:
    return replace(unit, layers=(unit.layers[0].with_tile(tile, hw),))


def _alternatives(shape: Shape, hw: HwSpec) -> Iterator[tuple[Tile, float]]:
    """Yield tiles for faster memories, and the best ones for this memory with equal chunks of input
    channels; and cycles of array or memory, whichever takes longer. Equal tiles may be repeated.
    """
    for rate in _faster(hw):
        fast = with_fields(hw, dram=with_fields(hw.dram, bytes_per_cycle=rate))
        yield _with_bound(*choose_tile("", shape, fast), hw)
    fits = (c for c in candidates(shape, hw) if isinstance(c, Fit))
    for fit in nsmallest(_TIMED, fits, key=lambda c: c.rank(co_scheduled=False)):
        yield _with_bound(equal_chunks(shape, fit.tile, hw), fit.cost, hw)


def _with_bound(tile: Tile, cost: Estimate, hw: HwSpec) -> tuple[Tile, float]:
    return tile, max(cost.compute_cycles, cost.dram_bytes / hw.dram.rate)


def _faster(hw: HwSpec) -> Iterator[float]:
    """Bytes per cycle, doubled each time, up to the bus width."""
    rate = hw.dram.bytes_per_cycle
    while rate < hw.dram.bus_bytes:
        rate = min(2 * rate, hw.dram.bus_bytes)
        yield rate
