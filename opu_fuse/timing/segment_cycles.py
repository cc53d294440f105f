"""Predicted cycles of a machine segment: its tile schedule, timed."""

from collections.abc import Hashable
from math import inf
from operator import sub

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import Storage
from opu_fuse.tile_schedule.fused_stack import FusedStack
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tile_schedule.traversal import TileSchedule
from opu_fuse.tile_schedule.unit import Units, with_residents
from opu_fuse.timing.bandwidth import Read, TooLate
from opu_fuse.timing.time_sink import TimeSink

MARGIN = 2
"""Units timed before and after those that differ, so that the banks hold what they will hold in the
program.
"""
RESOLUTION = 0.0025
"""Error bound of the timing against the cycle engine: a gain must exceed this share of the cycles
of the units that differ and of their neighbours.
"""
_STORAGES = ("reads", "writes", "reads_second", "reads_gate")
_VALUES = ("source", "output", "gate", "second", "residuals", "looks_up", "functions")
_MAPS = (*_VALUES, *_STORAGES, "reads_residuals")
_SIZES = tuple(name for name in TiledLayer.__struct_fields__ if name not in _MAPS)

Known = dict[Hashable, float]
"""Cycles of units by what they depend on: equal blocks of a network are timed once."""
KnownByLayer = dict[Hashable, tuple[float, ...]]
"""Likewise, those of each layer."""


def cycles(units: Units, hw: HwSpec) -> float:
    """Cycles of a machine segment, from the first load to the last store."""
    return timed(with_residents(units, hw), hw).end


def cycles_by_layer(units: Units, hw: HwSpec, known: KnownByLayer) -> dict[int, float]:
    """`spent` of the units with new resident maps. known: results of this machine, which grow."""
    outputs = dict.fromkeys(layer.output for unit in units for layer in unit.layers)
    key = _up_to_names(units)
    if key not in known:
        spent = timed(with_residents(units, hw), hw).spent
        known[key] = tuple([spent[output] for output in outputs])
    return dict(zip(outputs, known[key], strict=True))


class Trials:
    """Times units that begin alike: what they share is timed once.

    The units to come matter little to those before: they decide which maps are resident, and the
    first weights of the next layer are prefetched. Layers of the units in common must outlive this.
    """

    def __init__(self, hw: HwSpec) -> None:
        self._hw = hw
        self._known: dict[Hashable, _Timing] = {}
        self._swept: dict[int, float] = {}  # id of a unit's first layer -> cycles of the array

    def cycles(self, units: Units, shared: int, limit: float = inf) -> float:
        """`cycles` of the units, of which others share the first `shared` ones.

        Infinite if these are more than `limit`. That is known before the end, since the array has
        yet to compute the units that follow.
        """
        units = with_residents(units, self._hw)
        sink, schedule = self._fork(units, shared)
        firsts = [id(unit.layers[0]) for unit in units[shared:]]
        left = sum(self._swept.get(first, 0.0) for first in firsts)
        for number, first in enumerate(firsts, shared):
            left -= self._swept.get(first, 0.0)
            sink.deadline, before = limit - left, sink.swept
            try:
                schedule.units(units, slice(number, number + 1))
            except TooLate:
                return inf
            self._swept[first] = sink.swept - before
        return sink.end

    def _fork(self, units: Units, count: int) -> "_Timing":
        """A copy of the state after the first units."""
        if not count:
            sink = TimeSink(self._hw)
            return sink, TileSchedule(self._hw, sink)
        successor = units[count].layers[0]
        weights = next(successor.weight_chunks, None)
        prefetched = weights and (weights.offset, weights.words), successor.tile.undivided
        if units[count - 1].heads:  # its input, too
            prefetched = *prefetched, successor.tile, units[count].resident
        key = prefetched, *[(unit.resident, *map(id, unit.layers)) for unit in units[:count]]
        if key not in self._known:
            self._known[key] = sink, schedule = self._fork(units, count - 1)
            schedule.units(units, slice(count - 1, count))
        sink = self._known[key][0].fork()
        return sink, self._known[key][1].fork(sink)


_Timing = tuple[TimeSink, TileSchedule[TiledLayer, Read]]


def timed(units: Units, hw: HwSpec) -> TimeSink:
    """The sink of the tile schedule of units with their resident maps.

    spent: cycles from the array's last tile before an output to its own last tile; the last output
    counts to the end.
    idle: those cycles that are left if either the array or the memory works all the time: other
    tiles could save them.
    """
    times = TimeSink(hw)
    schedule, before = TileSchedule(hw, times), (0.0, 0.0, 0.0)
    for number in range(len(units)):
        schedule.units(units[number : number + 2], slice(1))
        now = times.counted, times.swept, times.memory.used
        spent, swept, moved = map(sub, now, before)
        before = now
        times.idle.append(spent - max(swept, moved))
    if units:
        times.spent[units[-1].layers[-1].output] += times.end - times.counted
    for first, norm in [unit.layers for unit in units if unit.two_results]:
        times.spent[first.output] += times.spent[norm.output]
        times.spent[norm.output] = 0.0
    return times


def saved(old: Units, new: Units, hw: HwSpec, known: Known | None = None) -> tuple[float, float]:
    """Return (cycles that `new` saves, cycles of the timed part of `old`).

    Only the units that differ, and `MARGIN` neighbours on either side, are timed. known: cycles of
    this machine found before, which grow.
    """
    most = min(len(old), len(new))
    front = next((i for i in range(most) if old[i] != new[i]), most)
    most -= front
    back = next((i for i in range(most) if old[-1 - i] != new[-1 - i]), most)
    first, rest = max(front - MARGIN, 0), max(back - MARGIN, 0)
    known = {} if known is None else known
    before = _known_cycles(old[first : len(old) - rest], hw, known)
    return before - _known_cycles(new[first : len(new) - rest], hw, known), before


def neighbourhood(units: Units, at: int) -> Hashable:
    """What the best tile of a unit depends on: itself and the units timed with it."""
    first = max(at - MARGIN, 0)
    return at - first, _up_to_names(units[first : at + MARGIN + 1])


def _known_cycles(units: Units, hw: HwSpec, known: Known) -> float:
    key = _up_to_names(units)
    if key not in known:
        known[key] = cycles(units, hw)
    return known[key]


def _up_to_names(units: Units) -> Hashable:
    """The units with maps and tables numbered in the order of their first use."""
    numbers: dict[Hashable, int] = {}

    def number(node: Hashable) -> int | None:
        return None if node is None else numbers.setdefault(node, len(numbers))

    def storage(of: Storage | None) -> Hashable:
        return of and (of.layout, number(of.alias_root), of.block, of.skips)

    def layer(of: TiledLayer) -> Hashable:
        maps = (of.source, of.output, of.gate, of.second, of.looks_up, *of.residuals, of.functions)
        sizes = tuple([getattr(of, name) for name in _SIZES])
        stored = [storage(getattr(of, name)) for name in _STORAGES]
        stored += map(storage, of.reads_residuals)
        return (*map(number, maps), *stored, sizes)

    def stack(of: FusedStack | None) -> Hashable:
        return of and (of.slots, of.stored, of.wires, of.line_buffers, of.load_rows)

    return tuple(
        [
            (
                *(unit.interleaved, unit.two_results, stack(unit.stack), unit.heads),
                *map(layer, unit.layers),
            )
            for unit in units
        ]
    )
