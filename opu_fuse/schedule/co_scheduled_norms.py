"""Co-schedules products that end in a norm with layers that keep the array busy.

Post takes about twice as long for the softmax of a product of queries and keys as the array for the
product. The tiles of another layer, for instance the product with the values of the head before,
are computed into the same banks of partial sums meanwhile (`tiling/shared_banks.py`). The timed
tile schedule decides whether that is faster.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.partition import Partition
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.pixel_packing import UNIT
from opu_fuse.schedule.emitted_units import PlannedUnit, PlannedUnits, planned_units
from opu_fuse.schedule.head_pipelines import attentions, with_pipelines
from opu_fuse.schedule.segment_order import Segment, UnitGroups
from opu_fuse.schedule.tile_choice import Tiling, retiled
from opu_fuse.schedule.unit_order import UnitOrder
from opu_fuse.tiling.shared_banks import shared_tiles, whole_input_tiles
from opu_fuse.tiling.tile import Tile
from opu_fuse.timing.segment_cycles import RESOLUTION

_TRIED = 2
"""Partners that are timed, those with the most spare post cycles."""
_MOST = 4
"""Partners of a norm."""

_WIDTHS = 4
"""Tiles of a norm and a partner that are timed."""
_EARLIER = 3
"""Most units that a norm without partners is moved before."""


def with_co_scheduled_norms(dfg: Dfg, partition: Partition, tiling: Tiling, hw: HwSpec) -> Tiling:
    """Put layers into units with norms, or norms earlier, where that is faster, with their tiles
    and order.
    """
    order = UnitOrder(dfg, partition, tiling, hw)
    segments: list[Segment] = []
    changed: list[PlannedUnit] = []
    for segment, units in zip(tiling.order, planned_units(tiling, hw), strict=True):
        now = _with_partners(units, order)
        segments.append(tuple(_groups_of(now)) if now != units else segment)
        changed += [unit for unit in now if unit not in units]
    if not changed and segments == [*tiling.order]:
        return tiling
    new = {g: x for unit in changed for g, x in zip(unit.groups, unit.layers, strict=True)}
    return replace(retiled(tiling, hw, new), order=tuple(segments))


def _groups_of(units: PlannedUnits) -> Iterator[UnitGroups]:
    """Yield the groups of units; of a layer whose first ranges are a unit, those of the others."""
    first = 0
    for unit in units:
        if len(unit.layers) == 1 and unit.layers[0].partial:
            first = len(unit.layers[0].ranges)
            continue
        yield UnitGroups(
            groups=unit.groups,
            first_ranges=first,
            heads=unit.heads,
            two_results=unit.two_results,
        )
        first = 0


def _with_partners(units: PlannedUnits, order: UnitOrder) -> PlannedUnits:
    """The units of a segment in which norms have partners, if that is faster."""
    norms = [unit for unit in units if _is_norm(unit)]
    if not norms:
        return units
    heads = attentions(units, norms, order)
    now = _last_readers_last(_transposes_first(units, order), norms, order)
    for norm in norms:
        for _ in range(_MOST):
            before, now = now, order.fastest(now, _with_a_partner(now, norm.groups[-1], order))
            if now is before:
                break
    now = _last_readers_joined(now, norms, order)
    now = _norms_first(now, order)
    now = with_pipelines(now, heads, order)
    gain, near = order.saved(units, now) if now != units else (0.0, 0.0)
    return now if gain > RESOLUTION * near else units


def _transposes_first(units: PlannedUnits, order: UnitOrder) -> list[PlannedUnit]:
    """Passes that transpose values directly after their sources: between others, one of them takes
    the bank of partial sums that these need.
    """
    now = [*units]
    for unit in units:
        if len(unit.layers) == 1 and unit.layers[0].source == UNIT:
            at = now.index(unit)
            first = order.between(now, at).start
            now.insert(first, now.pop(at)) if first < at else None
    return now


def _last_readers_last(
    units: PlannedUnits, norms: PlannedUnits, order: UnitOrder
) -> list[PlannedUnit]:
    """What reads a norm, and is read by no unit itself, after all others: more of them may be
    partners of the norm. Products of two maps remain, as partners of the next norm.
    """
    last = _last_readers(units, norms, order)
    return sorted(units, key=lambda unit: unit in last)


def _last_readers(units: PlannedUnits, norms: PlannedUnits, order: UnitOrder) -> list[PlannedUnit]:
    """Units that read a norm, and that no other unit reads; without products of two maps."""
    readers = {group for norm in norms for group in order.readers(norm)}
    after_norm = (unit for unit in units if not readers.isdisjoint(unit.groups))
    return [u for u in after_norm if not order.readers(u) and u.layers[0].second is None]


def _last_readers_joined(
    units: PlannedUnits, norms: PlannedUnits, order: UnitOrder
) -> PlannedUnits:
    """The last readers of norms as partners of later norms, where that is faster: they load maps of
    few channels, for which the array waits where they run alone.
    """
    now, normalised = units, {norm.groups[-1] for norm in norms}
    for reader in _last_readers(units, norms, order):
        at = now.index(reader)
        rest = [*now[:at], *now[at + 1 :]]
        alone, near = order.saved(now, rest)
        best, most = now, RESOLUTION * near
        earlier = (i for i in order.between(now, at) if i < at and _is_plain(reader))
        for i in (i for i in earlier if now[i].groups[-1] in normalised):
            *others, norm = [(layer.shape, layer.tile) for layer in now[i].layers]
            tiles = whole_input_tiles(norm, others, reader.layers[0].shape, order.hw)
            for unit in _joined(reader, now[i], tiles, order.hw):
                joined = [*rest[:i], unit, *rest[i + 1 :]]
                gain = alone + order.saved(rest, joined)[0]
                if gain > most:
                    best, most = joined, gain
        now = best
    return now


def _norms_first(units: PlannedUnits, order: UnitOrder) -> PlannedUnits:
    """The units with norms a few places earlier where that is faster: the array computes the
    product of the next head while post computes the softmax of this one.
    """
    now = units
    for norm in [unit for unit in units if _is_norm(unit)]:
        at = now.index(norm)
        places = range(max(order.between(now, at).start, at - _EARLIER), at)
        tried = [[*now[:to], norm, *now[to:at], *now[at + 1 :]] for to in places]
        now = order.fastest(now, tried)
    return now


def _with_a_partner(now: PlannedUnits, group: int, order: UnitOrder) -> Iterator[PlannedUnits]:
    """Yield the units in which the norm of a group has a further partner."""
    at, hw = next(i for i, unit in enumerate(now) if unit.groups[-1] == group), order.hw
    norm = now[at]
    *others, own = [(layer.shape, layer.tile) for layer in norm.layers]
    partners = [i for i in order.between(now, at) if _keeps_array_busy(now[i])]
    for i in sorted(partners, key=lambda i: -now[i].layers[0].estimate.spare(hw))[:_TRIED]:
        tiles = shared_tiles(own, tuple(others), now[i].layers[0].shape, hw)[:_WIDTHS]
        for unit in _joined(now[i], norm, tiles, hw):
            yield [unit if j == i else other for j, other in enumerate(now) if j != at]


def _joined(
    partner: PlannedUnit, norm: PlannedUnit, tiles: Iterable[tuple[Tile, Tile]], hw: HwSpec
) -> Iterator[PlannedUnit]:
    """Yield a norm's unit with a further partner. tiles: of the norm, of the partner."""
    (other,), (*others, own) = partner.layers, norm.layers
    groups = *norm.groups[:-1], *partner.groups, norm.groups[-1]
    for tile, added in tiles:
        layers = *others, other.with_tile(added, hw), own.with_tile(tile, hw)
        yield PlannedUnit(layers=layers, interleaved=True, groups=groups)


def _is_norm(unit: PlannedUnit) -> bool:
    """Whether post bounds a product."""
    layer = unit.layers[0]
    shape, cost = layer.shape, layer.estimate
    bound = cost.post_cycles > cost.compute_cycles
    of_pixels = bool(shape.passes) and not shape.whole_map
    return _alone(unit) and shape.array and of_pixels and bound


def _keeps_array_busy(unit: PlannedUnit) -> bool:
    cost = unit.layers[0].estimate
    return _is_plain(unit) and cost.compute_cycles > cost.post_cycles


def _is_plain(unit: PlannedUnit) -> bool:
    """Whether a unit is a layer on the array without a norm."""
    shape = unit.layers[0].shape
    return _alone(unit) and shape.array and not shape.passes


def _alone(unit: PlannedUnit) -> bool:
    return len(unit.layers) == 1 and not unit.layers[0].tile.undivided
