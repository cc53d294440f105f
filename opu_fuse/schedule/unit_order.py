"""Where units of a segment may run: after what they read, before what reads them. And what another
order saves.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.coschedule import WINDOW, dependences
from opu_fuse.fuse.partition import Partition, members
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.schedule.emitted_units import PlannedUnit, PlannedUnits
from opu_fuse.schedule.tile_choice import Tiling
from opu_fuse.tile_schedule.unit import Units
from opu_fuse.timing.segment_cycles import RESOLUTION, Known, saved


def fastest(
    now: PlannedUnits, others: Iterable[PlannedUnits], hw: HwSpec, known: Known
) -> PlannedUnits:
    """The units that save most; `now` if none save more than the timing's error."""
    best, most = now, 0.0
    for units in others:
        gain, near = saved(now, units, hw, known)
        if gain > max(most, RESOLUTION * near):
            best, most = units, gain
    return best


class UnitOrder:
    """Dependences between the groups of a model that run on the machine; those of views only have
    no unit.
    """

    def __init__(self, dfg: Dfg, partition: Partition, tiling: Tiling, hw: HwSpec) -> None:
        self._sources, self._readers = dependences(dfg, members(partition))
        self._run = frozenset(tiling.layers)
        self.hw = hw
        self._known: Known = {}

    def _nearest(self, group: int, neighbours: Sequence[Collection[int]]) -> Iterator[int]:
        """Neighbours that run, looking through the others."""
        for other in neighbours[group]:
            if other in self._run:
                yield other
            else:
                yield from self._nearest(other, neighbours)

    def sources(self, unit: PlannedUnit) -> list[int]:
        """Groups that a unit reads from."""
        return self._neighbours(unit, self._sources)

    def readers(self, unit: PlannedUnit) -> list[int]:
        """Groups that read from a unit."""
        return self._neighbours(unit, self._readers)

    def _neighbours(self, unit: PlannedUnit, near: Sequence[Collection[int]]) -> list[int]:
        found = (g for group in unit.groups for g in self._nearest(group, near))
        return [g for g in found if unit.heads is None or g not in unit.groups]

    def saved(self, old: Units, new: Units) -> tuple[float, float]:
        """`segment_cycles.saved`."""
        return saved(old, new, self.hw, self._known)

    def fastest(self, now: PlannedUnits, others: Iterable[PlannedUnits]) -> PlannedUnits:
        """`fastest` for these groups."""
        return fastest(now, others, self.hw, self._known)

    def allows(self, units: PlannedUnits, some: Iterable[PlannedUnit]) -> bool:
        """Whether some of the units run after all that they read from, and before their readers.

        Those with parts of a layer are left out: its first ranges run where the layer ran, and what
        is next to the others reads the first ones alone.
        """
        at = {group: i for i, unit in enumerate(units) for group in unit.groups}
        return all(
            all(at.get(g, -1) < at[unit.groups[0]] for g in self.sources(unit))
            and all(at.get(g, len(units)) > at[unit.groups[0]] for g in self.readers(unit))
            for unit in some
            if not unit.layers[0].partial
        )

    def between(self, units: PlannedUnits, at: int) -> range:
        """Positions at which a unit may run, after its last source and before its first reader."""
        position = {group: i for i, unit in enumerate(units) for group in unit.groups}
        sources, readers = (
            [position[g] for g in self._neighbours(units[at], near) if position.get(g, at) != at]
            for near in (self._sources, self._readers)
        )
        after, before = max(sources, default=-1), min(readers, default=len(units))
        return range(max(after + 1, at - WINDOW), min(before, at + WINDOW))
