"""Passes with two results: a map and a norm of it, such as a residual stream and its LayerNorm.

A norm of a map that others read too is a group of its own: it loads what the group before stored,
and the array waits until post has normalised it. But post can normalise the partial sums of the
group before while they are on chip, and then compute the map itself from them:

    array │ tile 0                │ tile 1                │ …
    post                          │ norm 0, map 0         │ norm 1, map 1 │ …
    store                                 │ norm 0 │ map 0        │ norm 1 │ map 1

The norm then loads nothing and takes no array cycles; both groups have the same tiles. Post
computes the stages before the norm in every pass. With a second operand these may be slower than
the norm by itself, so the timed tile schedule decides.

An upsample of a map that others read, too, is such a second result: its stores repeat pixels.
"""

from collections.abc import Iterator
from dataclasses import replace as with_fields
from functools import lru_cache
from itertools import islice

from msgspec.structs import replace

from opu_fuse.dfg.graph import Dfg
from opu_fuse.errors import DoesNotFit, ModelError
from opu_fuse.fuse.partition import Group, Partition
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.schedule.emitted_units import PlannedUnit, planned_units
from opu_fuse.schedule.layer import Layer
from opu_fuse.schedule.lower_group import lower_group
from opu_fuse.schedule.segment_order import HostWork, Segment, UnitGroups
from opu_fuse.schedule.tile_choice import Tiling, retiled, stored_layer, with_tile
from opu_fuse.schedule.unit_order import UnitOrder, fastest
from opu_fuse.tiling.candidates import Fit, candidates, equal_chunks
from opu_fuse.tiling.estimate import estimate
from opu_fuse.tiling.kept_weights import with_kept_weights
from opu_fuse.tiling.tile import Tile, ceil_div
from opu_fuse.timing.segment_cycles import Known

_TIMED = 6
"""Tiles of a pair that are timed."""

_CUT, _CHUNKS = 2, 4
"""Tiles that are tried with more chunks of input channels as well, and how many times as many."""

_KEPT = 3
"""Tiles that are tried with such small chunks of weights that most of these stay on chip."""

_SHORT = 0.01
"""Share of the array cycles of what reads a second result up to which a unit runs after it."""

_PARTS = (2, 3, 4)
"""Parts of the columns of a tile that are tried."""


def with_two_results(dfg: Dfg, partition: Partition, tiling: Tiling, hw: HwSpec) -> Tiling:
    """Let passes compute a norm or an upsample of their result, too, where that is faster."""
    known: Known = {}
    chosen: list[PlannedUnit] = []
    for units in planned_units(tiling, hw):
        now = units
        for norm in [unit for unit in units if _is_second(unit)]:
            source = next((u for u in now if u.layers[-1].output == norm.layers[0].source), None)
            if source is None or len(source.layers) != 1 or source.layers[0].partial:
                continue
            both = _both(source, norm, dfg, partition, tiling, hw)
            pairs = () if both is None else _pairs(source, norm, both, hw)
            left = [unit for unit in now if unit is not norm]
            others = ([pair if u is source else u for u in left] for pair in pairs)
            before, now = now, fastest(now, others, hw, known)
            if now is not before:
                chosen += [unit for unit in now if unit.groups[0] == source.groups[0]]
    if not chosen:
        return tiling
    layers = {g: (x,) for unit in chosen for g, x in zip(unit.groups, unit.layers, strict=True)}
    tiling = retiled(replace(tiling, layers={**tiling.layers, **layers}), hw, {})
    tiling = tiling.with_units(UnitGroups(groups=u.groups, two_results=True) for u in chosen)
    return _with_readers_next(tiling, UnitOrder(dfg, partition, tiling, hw))


def _with_readers_next(tiling: Tiling, order: UnitOrder) -> Tiling:
    """What reads a second result right after its unit, before short units such as a copy of a class
    token. These would take a bank of partial sums until post has computed both results, and keep
    the second one from staying on chip.
    """
    segments: list[Segment] = []
    for segment, units in zip(tiling.order, planned_units(tiling, order.hw), strict=True):
        now = [*units]
        for at, unit in enumerate(now[:-2]):
            short, reader = now[at + 1 : at + 3]
            reads = unit.two_results and unit.groups[1] in order.sources(reader)
            is_short = _array_cycles(short) < _SHORT * _array_cycles(reader)
            if reads and is_short and at + 2 in order.between(now, at + 1):
                now[at + 1 : at + 3] = reader, short
        if not isinstance(segment, HostWork):
            own = {groups.groups: groups for groups in segment}
            segment = tuple(own[unit.groups] for unit in now)
        segments.append(segment)
    return replace(tiling, order=tuple(segments))


def _array_cycles(unit: PlannedUnit) -> int:
    return sum(layer.estimate.compute_cycles for layer in unit.layers)


def _is_second(unit: PlannedUnit) -> bool:
    """Whether a unit only normalises or upsamples a map, pixel by pixel."""
    if len(unit.layers) != 1:
        return False
    shape = unit.layers[0].shape
    normalises = bool(shape.passes) and not shape.whole_map
    upsamples = shape.upsample != (1, 1) and shape.pool is None
    return (normalises or upsamples) and not shape.array and not shape.sides


def _pairs(
    source: PlannedUnit, norm: PlannedUnit, both: tuple[Layer, Layer], hw: HwSpec
) -> Iterator[PlannedUnit]:
    """Yield the unit of a norm and the group that computes its operand, in several tiles."""
    (ours,), (theirs,) = source.layers, norm.layers
    maps = ours.maps, ours.maps._replace(writes=theirs.writes, readers=theirs.readers)
    groups = source.groups[0], norm.groups[0]
    for tile in _tiles(both[0].shape, both[1].shape, hw):
        layers = [
            with_tile(layer, each, hw, ours.weights, tile, estimate(layer.shape, hw, tile))
            for layer, each in zip(both, maps, strict=True)
        ]
        yield PlannedUnit(layers=tuple(layers), two_results=True, groups=groups)


def _both(
    source: PlannedUnit,
    norm: PlannedUnit,
    dfg: Dfg,
    partition: Partition,
    tiling: Tiling,
    hw: HwSpec,
) -> tuple[Layer, Layer] | None:
    """The layers of both groups in one pass; None where no pass computes both.

    The first has the second's statistics in its shape, since its tiles hold all channels.
    """
    first = source.layers[0].layer
    if not _can_continue(first.shape):
        return None
    matches = [partition.groups[unit.groups[0]].matches for unit in (source, norm)]
    before = [m for m in matches[0] if dfg[m.node].op != "permute"]
    group = with_fields(partition.groups[norm.groups[0]], matches=(*before, *matches[1]))
    second = _lowered(dfg, group, tiling, hw)
    if second is not None and first.shape.permute is not None:
        second = _permuted(second, first.shape)
    if second is None or not _alike(first.shape, second.shape):
        return None
    if (first.out_pieces, first.residuals) != (second.out_pieces, second.residuals):
        return None
    own = {m.node for m in matches[1]}
    interiors = tuple([each for each in second.interiors if each.node in own])
    name = norm.layers[0].layer.name
    second = replace(second, name=name, macs=0, further=True, interiors=interiors)
    return replace(first, shape=replace(first.shape, passes=second.shape.passes)), second


def _lowered(dfg: Dfg, group: Group, tiling: Tiling, hw: HwSpec) -> Layer | None:
    try:
        (layer,) = lower_group(dfg, group, hw, tiling.layout.lanes)
    except (DoesNotFit, ModelError):
        return None
    return stored_layer(layer, tiling.layout, hw)


def _permuted(second: Layer, first: Shape) -> Layer | None:
    """A norm that reads permuted pixels, computed before its stores permute them in the same way;
    None where it moves pixels, too.
    """
    if second.shape.permute is not None or second.shape.upsample != (1, 1):
        return None
    own = {"permute": first.permute, "out_rows": first.out_rows, "out_cols": first.out_cols}
    return replace(second, shape=replace(second.shape, **own))


def _can_continue(shape: Shape) -> bool:
    """Whether a norm can follow a pass, and its partial sums are pixels that it stores."""
    moves = shape.pool or shape.upsample != (1, 1) or shape.phased
    return not (moves or shape.passes or shape.pre or shape.unit) and shape.px == 1


def _alike(first: Shape, second: Shape) -> bool:
    """Whether two passes differ only in what follows the partial sums of a pixel."""
    names = (
        "passes",
        "param_words",
        "exponentials",
        "permute",
        "tables",
        "needed",
        "further",
        "upsample",
    )
    return first == replace(second, **{name: getattr(first, name) for name in names})


@lru_cache(maxsize=256)
def _tiles(first: Shape, second: Shape, hw: HwSpec) -> tuple[Tile, ...]:
    """Tiles of a pair, those with fewer predicted cycles first. Behind a slow memory the best ones
    are tried with smaller chunks of input channels, too: the array waits for the first of a tile.
    """
    fits = [c.tile for c in candidates(second, hw) if isinstance(c, Fit)]
    if hw.dram.is_slow:
        fits = [equal_chunks(second, tile, hw) for tile in fits]
    tiles = {t: None for tile in fits if not tile.weights_outer for t in (tile, *_narrower(tile))}
    best = sorted(tiles, key=lambda tile: _cycles(first, second, hw, tile))[:_TIMED]
    if hw.dram.is_slow:
        cut = [equal_chunks(second, tile, hw, _CHUNKS) for tile in best]
        each = (tile for pair in zip(best, cut, strict=True) for tile in pair)
        kept = filter(None, (with_kept_weights(second, tile, hw) for tile in each))
        best += [*cut[:_CUT], *islice(kept, _KEPT)]
    return tuple(dict.fromkeys(best))


def _narrower(tile: Tile) -> Iterator[Tile]:
    """The tile in even parts of its columns: the last one, for which the next layer waits, is then
    normalised sooner.
    """
    for parts in _PARTS:
        if tile.cols >= parts and not tile.whole_post:
            yield replace(tile, cols=ceil_div(tile.cols, parts))


def _cycles(first: Shape, second: Shape, hw: HwSpec, tile: Tile) -> float:
    """Cycles of a pair: post computes both results of every tile, and of the last one alone."""
    both, alone = (estimate(x, hw, tile) for x in (second, replace(first, passes=0)))
    post, tiles = both.post_cycles + alone.post_cycles, tile.count(first)
    memory = (both.dram_bytes + alone.dram_bytes) / hw.dram.rate / 2
    return max(both.compute_cycles, post, memory) + post / tiles
