"""Retile layers where the timed tile schedule finds another tile faster than the closed form does.

The closed form sees one layer. It prefers the tile that moves the fewest bytes where memory bounds
the layer, and counts no waits. But transfers overlap the layers before and after, and these wait
for each other. So other tiles are timed with their neighbours:

1. `with_tiles_for_slow_memory`: those with the fewest predicted cycles, and those that the closed
   form prefers for faster memories;
2. `with_tiles_without_waits`: higher ones, for layers that wait for post or for each transfer, and
   smaller ones, for layers at whose borders the array waits: the next layer may need all channels
   or rows of a map, as windows and norms do. Layers of fused stacks keep their tiles.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace as with_fields
from functools import cache
from heapq import nsmallest

from msgspec import Struct, field
from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.schedule.emitted_units import PlannedUnit, PlannedUnits, planned_units
from opu_fuse.schedule.tile_choice import Tiling, retiled
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tiling.candidates import (
    Fit,
    candidates,
    choose_tile,
    equal_chunks,
    has_many_loads,
)
from opu_fuse.tiling.estimate import estimate, kept_bytes
from opu_fuse.tiling.kept_weights import with_kept_weights
from opu_fuse.tiling.tile import Tile
from opu_fuse.timing.segment_cycles import MARGIN, RESOLUTION, Trials, neighbourhood, timed

_TIMED = 8
"""Tiles of a layer that are timed for a slow memory, those with the fewest predicted cycles."""

_NEAR = 0.02
"""Share of a layer's cycles that such a tile must save if array and memory never wait."""

_NEAR_UNITS = 0.01
"""The same share for a layer next to a unit of several groups."""

_TRAFFIC = 0.1
"""Cycles that such a tile must save for each cycle of more transfers: bytes cost energy."""

_LEAST_IDLE, _IDLE_SHARE = 160, 0.002
"""Idle cycles that are worth the time of a search, and share of the cycles of the layer and its
neighbours, whose time it takes.
"""

_MOST_STEPS = 1000
"""Instructions of a layer and its neighbours that are timed for each tile. In more, waits between
layers are a small share: dense layers of VGG-16, networks for large images on small machines.
"""

_PIECES = 4
"""Chunks of weights that a bank holds, where the first layer of a segment begins with small
ones.
"""

_HEIGHTS = 3
"""Heights that are timed with as many channel blocks as before; with others, only the highest."""


class _Search(Struct, frozen=True):
    """What is found once for layers alike: the fastest tile by all that it depends on.

    tiles: those to be timed instead of a layer's;
    traffic: cycles that a tile must save for each cycle in which memory moves more bytes.
    """

    hw: HwSpec
    tiles: Callable[[TiledLayer], Iterable[Tile]]
    traffic: float = 0.0
    fastest: dict[Hashable, Tile] = field(default_factory=dict)
    taken: dict[int, TiledLayer] = field(default_factory=dict)

    def retile(self, units: list[PlannedUnit], at: int) -> None:
        """Give the layer of a unit its fastest tile between its neighbours."""
        key = neighbourhood(units, at)
        if key not in self.fastest:
            self.fastest[key] = self._fastest(units, at)
        tile = self.fastest[key]
        if tile != units[at].layers[0].tile:
            units[at] = self._with(units[at], tile)
            self.taken[units[at].groups[0]] = units[at].layers[0]

    def _fastest(self, units: PlannedUnits, at: int) -> Tile:
        own, first = units[at].layers[0], max(at - MARGIN, 0)
        most = RESOLUTION * own.estimate.total_cycles
        best, near = own.tile, [*units[first : at + MARGIN + 1]]
        trials = Trials(self.hw)
        before = trials.cycles(near, at - first)
        for tile in dict.fromkeys(self.tiles(own)):
            if tile == own.tile or has_many_loads(own.shape, self.hw, tile):
                continue
            near[at - first] = self._with(units[at], tile)
            start = before - self._cost_of_traffic(own, tile)
            gain = start - trials.cycles(near, at - first, start - most)
            if gain > most:
                best, most = tile, gain
        return best

    def _cost_of_traffic(self, own: TiledLayer, tile: Tile) -> float:
        moved, before = (estimate(own.shape, self.hw, t).dram_bytes for t in (tile, own.tile))
        return self.traffic * max(moved - before, 0) / self.hw.dram.rate

    def _with(self, unit: PlannedUnit, tile: Tile) -> PlannedUnit:
        return replace(unit, layers=(unit.layers[0].with_tile(tile, self.hw),))


def with_tiles_for_slow_memory(
    tiling: Tiling, hw: HwSpec, *, next_to_units: bool = False
) -> Tiling:
    """Time other tiles of every layer if the memory is slower than its bus.

    To be called before groups are co-scheduled: units of several groups keep their tiles.
    next_to_units: only of layers next to such units, where array and memory are both idle. The
    units were not known before: norms that post computes with their operands leave the next layer
    waiting for other tiles than norms by themselves.
    The first layer of a segment has other tiles, too, since nothing runs while it is loaded.
    """
    if not hw.dram.is_slow:
        return tiling
    spent: dict[int, float] = {}
    near = _NEAR_UNITS if next_to_units else _NEAR

    @cache
    def of_shape(shape: Shape) -> Sequence[tuple[Tile, float]]:
        return [*_for_slow_memory(shape, hw)]

    def others(layer: TiledLayer) -> Iterator[Tile]:
        most = (1 - near) * spent[layer.output]
        return (tile for tile, least in of_shape(layer.shape) if least < most)

    search = _Search(hw=hw, tiles=others)
    begin = _Search(hw=hw, tiles=lambda layer: _with_kept_features(layer.shape, hw))
    for units in planned_units(tiling, hw):
        waits = _at_waits(units, hw) & _next_to_units(units) if next_to_units else ()
        spent |= timed(units, hw).spent
        for at in _retilable(units):
            if not next_to_units or at in waits:
                search.retile(units, at)
            if not at:
                begin.retile(units, at)
    return retiled(tiling, hw, search.taken | begin.taken)


def _next_to_units(units: PlannedUnits) -> set[int]:
    """Positions of units next to those of several groups."""
    several = (at for at, unit in enumerate(units) if len(unit.groups) > 1)
    return {at + step for at in several for step in (-1, 1)}


def with_tiles_without_waits(tiling: Tiling, hw: HwSpec) -> Tiling:
    """Time higher and smaller tiles of layers that lose cycles, and of those before them.

    To be called after fused stacks and batch blocks have chosen tiles of their own.
    """

    @cache
    def others(shape: Shape, tile: Tile) -> Sequence[Tile]:
        return [*_of_other_sizes(shape, tile, hw)]

    search = _Search(hw=hw, tiles=lambda layer: others(layer.shape, layer.tile), traffic=_TRAFFIC)
    for units in planned_units(tiling, hw):
        waits = _at_waits(units, hw)
        for at in _retilable(units):
            if at in waits and _steps(units, at) <= _MOST_STEPS:
                search.retile(units, at)
    return retiled(tiling, hw, search.taken)


def _steps(units: PlannedUnits, at: int) -> int:
    near = units[max(at - MARGIN, 0) : at + MARGIN + 1]
    return sum(layer.instructions for unit in near for layer in unit.layers)


def _retilable(units: PlannedUnits) -> Iterator[int]:
    """Yield positions of the units of one layer that computes all of its map, of all images."""
    for at, unit in enumerate(units):
        (first, *others), several = unit.layers, len(unit.groups) > 1
        if not (others or several or first.partial or first.images):
            yield at


def _for_slow_memory(shape: Shape, hw: HwSpec) -> Iterator[tuple[Tile, float]]:
    """Yield tiles, and cycles that array or memory alone takes for each; none for those that are
    best for faster memories, whose gain is in the layers around.

    A slow memory cannot load a large chunk of input channels while the array uses a small one, so
    chunks are equal; twice as many are tried, too, and small ones of which most stay on chip.
    """
    for rate in _faster(hw):
        fast = with_fields(hw, dram=with_fields(hw.dram, bytes_per_cycle=rate))
        yield choose_tile("", shape, fast)[0], 0.0
    for fit in nsmallest(_TIMED, _fits(shape, hw), key=lambda fit: fit.rank(co_scheduled=False)):
        least = max(fit.cost.compute_cycles, fit.cost.dram_bytes / hw.dram.rate)
        tiles = [equal_chunks(shape, fit.tile, hw, times) for times in (1, 2)]
        yield from ((tile, least) for tile in tiles)
        if least > fit.cost.compute_cycles:
            kept = with_kept_weights(shape, tiles[-1], hw)
            if kept is not None:
                yield kept, fit.cost.compute_cycles


def _with_kept_features(shape: Shape, hw: HwSpec) -> Iterator[Tile]:
    """Yield the fastest tiles of which the whole input stays while the weights change; also with
    small chunks of weights, for which the first tile waits less.
    """
    found: list[tuple[float, Tile]] = []
    for fit in _fits(shape, hw):
        if kept := kept_bytes(shape, hw, fit.tile) / hw.dram.rate:
            least = max(fit.cost.compute_cycles, fit.cost.dram_bytes / hw.dram.rate - kept)
            found.append((max(fit.cost.total_cycles - kept, least), fit.tile))
    for _, tile in nsmallest(_TIMED, found, key=lambda each: each[0]):
        rows = hw.buffers.weight.bank_words // hw.mode_row_words(hw.array.modes[tile.mode])
        yield tile
        yield replace(tile, weight_rows=max(rows // _PIECES, 1))


def _faster(hw: HwSpec) -> Iterator[float]:
    """Bytes per cycle, doubled each time, up to the bus width."""
    rate = hw.dram.bytes_per_cycle
    while rate < hw.dram.bus_bytes:
        rate = min(2 * rate, hw.dram.bus_bytes)
        yield rate


def _at_waits(units: PlannedUnits, hw: HwSpec) -> set[int]:
    """Positions of the units in which the machine is idle for long, and of those before them."""
    times = timed(units, hw)
    of_units = [sum(times.spent[layer.output] for layer in unit.layers) for unit in units]
    found: set[int] = set()
    for at, lost in enumerate(times.idle):
        near = sum(of_units[at : at + MARGIN + 1])
        if lost > max(_IDLE_SHARE * near, _LEAST_IDLE):
            found |= {at, max(at - 1, 0)}
    return found


def _of_other_sizes(shape: Shape, tile: Tile, hw: HwSpec) -> Iterator[Tile]:
    """Yield the highest of the widest tiles, and the fastest smaller ones; none for an undivided
    tile, which is taken for its few loads.
    """
    if tile.undivided:
        return
    fits = [*_fits(shape, hw)]
    yield from _highest(fits, tile.blocks)
    if shape.array:
        yield from _smaller(fits, shape, tile)


def _highest(fits: Sequence[Fit], blocks: int) -> Iterator[Tile]:
    """Yield the highest of the widest tiles, for each number of channel blocks, and some lower ones
    for `blocks`; of equal sizes the one with the fewest predicted cycles.
    """
    by_size: dict[tuple[int, int, int], Fit] = {}
    for fit in fits:
        size = fit.tile.blocks, fit.tile.cols, fit.tile.images * fit.tile.rows
        best = by_size.get(size)
        if best is None or fit.cost.total_cycles < best.cost.total_cycles:
            by_size[size] = fit
    sizes: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for size in sorted(by_size, reverse=True):
        sizes[size[0]].append(size)
    for count, of_blocks in sizes.items():
        heights = _HEIGHTS if count == blocks else 1
        widest = [size for size in of_blocks[:heights] if size[1] == of_blocks[0][1]]
        yield from (by_size[size].tile for size in widest)


def _smaller(fits: Sequence[Fit], shape: Shape, tile: Tile) -> Iterator[Tile]:
    """Yield the fastest tiles of at most two thirds of the pixels, and of a quarter of the channel
    blocks, or one. They are as wide, since readers wait for whole rows.
    """
    if shape.out_rows * shape.images > 1:
        fits = [fit for fit in fits if fit.tile.cols >= tile.cols]
    pixels, blocks = _pixels(tile), tile.blocks
    for most in ((2 * pixels // 3, blocks), (pixels, max(blocks // 4, 1))):
        small = (f for f in fits if _pixels(f.tile) <= most[0] and f.tile.blocks <= most[1])
        best = min(small, key=lambda fit: fit.cost.total_cycles, default=None)
        if best is not None:
            yield best.tile


def _fits(shape: Shape, hw: HwSpec) -> Iterator[Fit]:
    return (fit for fit in candidates(shape, hw) if isinstance(fit, Fit))


def _pixels(tile: Tile) -> int:
    return tile.images * tile.rows * tile.cols
