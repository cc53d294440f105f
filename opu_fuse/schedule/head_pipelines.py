"""Pipelines of the heads of an attention.

A head is a product of queries and keys with its softmax, a transposition of values, and the product
of probabilities and values. Post bounds the first, the array the others. In a pipeline

1. the layer before the heads computes queries and keys first. Its other output ranges, which are
   values, are computed next to the softmaxes of the first heads;
2. then values are transposed, or next to the first softmax that is left;
3. the other softmaxes have the values' products of earlier heads next to them; the rest follow.

    array │ queries, keys │ scores 0, values │ scores 1, values │ turned │ scores 2, product 0 │ …
    post                  │ queries, keys    │ softmax 0        │ 1      │ turned              │ …

Partners that join a softmax one by one often gain nothing: the first leaves the others between
units. So all heads are arranged at once, and the timed tile schedule decides.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.schedule.emitted_units import PlannedUnit, PlannedUnits
from opu_fuse.schedule.fused_head_units import fused_heads
from opu_fuse.schedule.tile_choice import PlannedLayer
from opu_fuse.schedule.unit_order import UnitOrder
from opu_fuse.tile_schedule.fused_heads import head_runs
from opu_fuse.tiling.shared_banks import narrower, slot_tiles, source_tiles, whole_tile
from opu_fuse.tiling.tile import Tile

_WIDTHS = 6
"""Tiles of softmaxes that are timed."""

_LONG = 16
"""More tiles of a softmax are nearly as wide as fewer: only the widest that heads can be fused with
are timed.
"""

_SHARES = (1, 2, 4)
"""Tiles of the layer before the heads in a bank that are timed."""


_Wholes = Mapping[tuple[int, ...], PlannedUnit]
"""Transpositions and products in as few tiles as possible, by groups."""


class Head(Struct, frozen=True, kw_only=True):
    """Units of a head: its scores with their norm, the product with the values, and the
    transposition of these, if there is one.
    """

    norm: PlannedUnit
    values: PlannedUnit
    turned: PlannedUnit | None

    @property
    def units(self) -> list[PlannedUnit]:
        return [self.norm, self.values, *([self.turned] if self.turned else [])]


class _Arrangement(NamedTuple):
    """How the heads are arranged. first: the softmax of the first head that does not run next to
    the layer before the heads; turned: whether values are transposed next to softmaxes, else in
    units of their own; own: tile of each softmax.
    """

    first: int
    turned: bool
    own: Tile


def with_pipelines(
    units: PlannedUnits, found: Sequence[Sequence[Head]], order: UnitOrder
) -> PlannedUnits:
    """The units of a segment with the fastest pipelines of its heads, where these gain something.

    found: the heads of each attention, whose units may be joined already.
    """
    for heads in found:
        units = _with_pipeline(units, heads, order)
    return units


def attentions(units: PlannedUnits, norms: PlannedUnits, order: UnitOrder) -> list[list[Head]]:
    """The heads with each of these norms, those together that read from the same layers, or from
    layers of their own that do; without those of which some are not alike, or have no product in
    one unit.
    """
    found: dict[tuple[int, ...], list[Head | None]] = {}
    by_group = {group: unit for unit in units for group in unit.groups}
    for norm in norms:
        read = {g for group in order.sources(norm) for g in _shared(group, by_group, order)}
        found.setdefault(tuple(sorted(read)), []).append(_head(units, norm, order))
    whole = ([head for head in heads if head] for heads in found.values() if None not in heads)
    return [heads for heads in whole if _alike(heads)]


def _shared(group: int, units: Mapping[int, PlannedUnit], order: UnitOrder) -> list[int]:
    """What a group reads if one unit reads it, else the group."""
    unit = units.get(group)
    is_own = unit is not None and len({*order.readers(unit)}) == 1
    return order.sources(unit) if unit and is_own else [group]


def _alike(heads: Sequence[Head]) -> bool:
    """Whether all heads can have the tiles of the first one: they differ in lanes at most."""
    shapes = [replace(head.norm.layers[0].shape, in_channels=0) for head in heads]
    return all(shape == shapes[0] for shape in shapes)


def _head(units: PlannedUnits, norm: PlannedUnit, order: UnitOrder) -> Head | None:
    single = [u for u in units if len(u.layers) == 1 and not u.layers[0].tile.undivided]
    by_group = {unit.groups[0]: unit for unit in single}
    readers = {*order.readers(norm)}
    values = by_group.get(readers.pop()) if len(readers) == 1 else None
    if values is None or not values.layers[0].shape.computed or values.layers[0].shape.passes:
        return None
    others = [by_group[g] for g in order.sources(values) if g in by_group]
    turned = [unit for unit in others if unit.layers[0].shape.unit]
    only = len(turned) == 1 and {*order.readers(turned[0])} == {values.groups[0]}
    return Head(norm=norm, values=values, turned=turned[0] if only else None)


def _with_pipeline(now: PlannedUnits, heads: Sequence[Head], order: UnitOrder) -> PlannedUnits:
    """The units with the fastest pipeline of some heads."""
    groups = {group for head in heads for unit in head.units for group in unit.groups}
    places = [i for i, unit in enumerate(now) if not groups.isdisjoint(unit.groups)]
    if not all(groups.issuperset(now[i].groups) for i in places):
        return now
    first, end = places[0], places[-1] + 1
    others = [unit for unit in now[first:end] if groups.isdisjoint(unit.groups)]
    source = None if others or not first else _source(now[first - 1], heads, order)

    def arranged() -> Iterator[PlannedUnits]:
        for units in _pipelines(heads, source, order.hw):
            before = now[: first - bool(units[0].layers[0].partial)]
            changed = [*before, *others, *units, *now[end:]]
            if order.allows(changed, [*others, *units]):
                yield changed

    return order.fastest(now, arranged())


class _Source(Struct, frozen=True, kw_only=True):
    """The layer that computes queries, keys and values.

    blocks: of each head, its channel blocks up to the last of the queries and keys.
    tiled: the layer in tiles that were tried before, which grow.
    """

    unit: PlannedUnit
    blocks: tuple[int, ...]
    tiled: dict[Tile, PlannedLayer]


def _source(unit: PlannedUnit, heads: Sequence[Head], order: UnitOrder) -> _Source | None:
    """The unit before some heads, if it is one layer that can be split, and they read it alone."""
    layer, read = unit.layers[0], {g for head in heads for g in order.sources(head.norm)}
    shape = layer.shape
    moves = shape.pool or shape.permute or shape.upsample != (1, 1) or shape.phased
    special = moves or shape.depthwise or shape.passes or shape.computed or shape.unit
    if special or not shape.array or len(unit.layers) > 1 or layer.tile.undivided:
        return None
    blocks = [_blocks_read(head.norm.layers[0]) for head in heads]
    if read != {*unit.groups} or None in blocks:
        return None
    blocks = tuple([b - layer.writes.block for b in blocks if b])
    return _Source(unit=unit, blocks=blocks, tiled={})


def _blocks_read(layer: PlannedLayer) -> int | None:
    """Channel blocks of one allocation up to the last that a product of two maps reads; None if it
    reads two.
    """
    reads, second = layer.reads, layer.reads_second
    if second is None or second.alias_root != reads.alias_root:
        return None
    return max(each.block + each.layout.blocks for each in (reads, second))


def _pipelines(heads: Sequence[Head], source: _Source | None, hw: HwSpec) -> Iterator[PlannedUnits]:
    """Yield the units of each pipeline that the banks of partial sums have room for."""
    (norm,) = heads[0].norm.layers
    widths, count = [*islice(narrower(norm.shape, norm.tile, hw), _WIDTHS)], len(heads)
    early = sorted({2, -(-count // 2), count}) if source else []
    together = (False, True) if any(head.turned for head in heads) else (False,)
    plans = [(n, *how) for n in (*early, 0) if n <= count for how in product(_SHARES, together)]
    wholes = {unit.groups: _whole(unit, hw) for head in heads for unit in head.units[1:]}
    tried: set[Hashable] = set()
    long: set[Hashable] = set()
    rests: dict[_Arrangement, list[PlannedUnits]] = {}
    for plan, own in product(plans, widths):
        number, share, turned = plan
        if plan in long:
            continue
        begin = _beside_source(source, heads[:number], own, share, hw) if number and source else []
        if number and not begin:
            continue
        how = _Arrangement(number, turned, own)
        if how not in rests:  # the same next to each tile of the layer before the heads
            both = (arrange(heads, how, wholes, hw) for arrange in (_pipeline, _fused))
            rests[how] = [rest for rest in both if rest is not None]
        fused = any(unit.heads for rest in rests[how] for unit in rest)
        if fused and own.pieces(norm.shape, hw) > _LONG:
            long.add(plan)
        for units in ([*begin, *rest] for rest in rests[how]):
            tiles = [tuple([(x.tile, len(x.ranges)) for x in u.layers]) for u in units]
            tiled = tuple([(u.groups, sizes) for u, sizes in zip(units, tiles, strict=True)])
            if tiled not in tried:
                tried.add(tiled)
                yield units


def _beside_source(
    source: _Source, heads: Sequence[Head], own: Tile, share: int, hw: HwSpec
) -> PlannedUnits:
    """Two units: the ranges of a layer that some heads read, and the others next to the softmaxes
    of these heads; none where no tile of the layer fits.
    """
    (layer,) = source.unit.layers
    norms = [head.norm.layers[0].with_tile(own, hw) for head in heads]
    slots, end = sum(len(norm.tiles) for norm in norms), max(source.blocks[: len(heads)])
    for tile in source_tiles(norms[0].shape, own, layer.shape, share, hw):
        whole = source.tiled.get(tile) or layer.with_tile(tile, hw)
        source.tiled[tile] = whole
        first = sum(out.block < end for out in whole.ranges)
        if first == len(whole.ranges):
            continue
        before, after = whole.split(first)
        if not slots < len(after.tiles) <= share * (slots + 1):
            continue
        groups = (*source.unit.groups, *(head.norm.groups[0] for head in heads))
        return [
            PlannedUnit(layers=(before,), groups=source.unit.groups),
            PlannedUnit(layers=(after, *norms), interleaved=True, groups=groups),
        ]
    return []


def _pipeline(
    heads: Sequence[Head], how: _Arrangement, wholes: _Wholes, hw: HwSpec
) -> PlannedUnits | None:
    """Units of the heads, without the softmaxes of the first ones; None where a bank has no room
    for all. Values are transposed next to the first of these softmaxes, or in units of their own.
    """
    first, turned, own = how
    norms = [head.norm for head in heads[first:]]
    transposes = [head.turned for head in heads if head.turned is not None]
    turned = turned and bool(norms)
    values = [head.values for head in heads]
    lag = max(first + turned, 1) - first  # softmaxes before the first with values next to it
    units = [] if turned else [wholes[unit.groups] for unit in transposes]
    for number, norm in enumerate(norms):
        partners = values[number - lag : number - lag + 1] if number >= lag else []
        if turned and not number:
            partners = [*partners, *reversed(transposes)]
        joined = _joined(norm, own, partners, hw)
        if joined is None:
            return None
        units.append(joined)
    last = values[max(len(norms) - lag, 0) :]
    rest = [wholes[unit.groups] for unit in last[:-1]]
    rest.append(_alone(last[-1], heads[-1].norm, own, hw))
    if not norms and len(units) == len(rest):  # a transposition before each product
        pairs = zip(units[1:], rest, strict=False)
        return [units[0], *(unit for pair in pairs for unit in pair), rest[-1]]
    return [*units, *rest]


def _fused(
    heads: Sequence[Head], how: _Arrangement, wholes: _Wholes, hw: HwSpec
) -> PlannedUnits | None:
    """Units of the heads, without the softmaxes of the first ones, whose other softmaxes leave
    their results on chip; None where these do not fit. Values are transposed in the same unit, but
    for its first heads, or in units before.
    """
    first, turned, own = how
    runs = head_runs([head.norm.layers[0] for head in heads[first:]])
    later = heads[first + runs[0][1] :] if turned and runs else []
    within = [head.turned for head in later if head.turned is not None]
    pairs = [(head.norm, head.values) for head in heads[first:]]
    unit = fused_heads(pairs, within, own, hw) if pairs else None
    if unit is None:
        return None
    before = [*(head.turned for head in heads), *(head.values for head in heads[:first])]
    return [*(wholes[each.groups] for each in before if each and each not in within), unit]


def _whole(unit: PlannedUnit, hw: HwSpec) -> PlannedUnit:
    """A unit in as few tiles as banks have room for: none of them waits for a bank."""
    (layer,) = unit.layers
    layer = layer.with_tile(whole_tile(layer.shape, hw) or layer.tile, hw)
    return PlannedUnit(layers=(layer,), groups=unit.groups)


def _joined(norm: PlannedUnit, own: Tile, others: PlannedUnits, hw: HwSpec) -> PlannedUnit | None:
    """A norm in tiles of a size, and its partners; None where a bank has no room for them."""
    (layer,) = norm.layers
    tiles = slot_tiles(layer.shape, own, tuple([u.layers[0].shape for u in others]), hw)
    if tiles is None:
        return None
    partners = [u.layers[0].with_tile(tile, hw) for u, tile in zip(others, tiles, strict=True)]
    return PlannedUnit(
        layers=(*partners, layer.with_tile(own, hw)),
        interleaved=bool(others),
        groups=(*(unit.groups[0] for unit in others), norm.groups[0]),
    )


def _alone(unit: PlannedUnit, norm: PlannedUnit, own: Tile, hw: HwSpec) -> PlannedUnit:
    """A product after the last norm, in the tiles that it would have next to it."""
    tiles = slot_tiles(norm.layers[0].shape, own, (unit.layers[0].shape,), hw)
    layers = tuple(unit.layers[0].with_tile(tile, hw) for tile in tiles or ())
    return PlannedUnit(layers=layers or unit.layers, groups=unit.groups)
