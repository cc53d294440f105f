"""Cycles of a machine segment: groups alone, with companions, in cascades, as the schedule emits
them.
"""

from collections.abc import Sequence

from msgspec import Struct

from opu_fuse.cost.banks import map_banks, places
from opu_fuse.cost.cascade import STAYING, Cascade
from opu_fuse.cost.flow import Flow, Target
from opu_fuse.cost.keeping import Keep, find_kept
from opu_fuse.cost.reading import walk
from opu_fuse.cost.turns import LOAD
from opu_fuse.cost.work import Work
from opu_fuse.hw.spec import HwSpec
from opu_fuse.units.base import Space

MARGIN = 2
"""Units timed in front of and behind those that differ: they find the banks as in the program."""


class Unit(Struct, frozen=True, kw_only=True):
    """Works between which nothing else runs: the phases of a group one after the other, or a group
    with its companion (`beside`), or those of a cascade.
    """

    works: tuple[Work, ...]
    beside: bool = False
    cascade: Cascade | None = None


def cycles(units: Sequence[Unit], hw: HwSpec) -> float:
    """Predicted cycles of a machine segment, from the first load to the last store."""
    return _walked(units, _kept(units, hw), hw).end


def cycles_by_output(
    units: Sequence[Unit], kept: Sequence[Keep | None], hw: HwSpec
) -> dict[int, float]:
    """The same, of what makes each map (by DFG index): until the array is done with it, from where
    it was done with the tile before; of the last one, to the end. kept: of every unit.
    """
    return _walked(units, kept, hw).spent


def cycles_and_memory(units: Sequence[Unit], hw: HwSpec) -> tuple[dict[int, float], float]:
    """The same, and cycles in which memory moves bytes."""
    flow = _walked(units, _kept(units, hw), hw)
    return flow.spent, flow.memory_used


def _kept(units: Sequence[Unit], hw: HwSpec) -> list[Keep | None]:
    return find_kept([() if unit.cascade else unit.works for unit in units], hw)


def _walked(units: Sequence[Unit], kept: Sequence[Keep | None], hw: HwSpec) -> "_Walk":
    flow = _Walk(hw)
    firsts = [None if unit.cascade else unit.works[0] for unit in units]
    for unit, keep, behind in zip(units, kept, [*firsts, None][1:], strict=True):
        if unit.cascade is not None:
            flow.cascade(unit.cascade)
        elif unit.beside:
            flow.side_by_side(*unit.works)
        else:
            for work, after in zip(unit.works, [*unit.works[1:], behind], strict=True):
                flow.layer(work, keep, after)
    if units:
        flow.spent[units[-1].works[-1].output] += flow.end - flow.counted
    return flow


def saved(old: Sequence[Unit], new: Sequence[Unit], hw: HwSpec) -> tuple[float, float]:
    """(cycles that `new` takes less than `old`, cycles of `old` that were looked at): only where
    the two differ is timed.
    """
    most = min(len(old), len(new))
    front = next((i for i in range(most) if old[i] != new[i]), most)
    most -= front
    back = next((i for i in range(most) if old[-1 - i] != new[-1 - i]), most)
    first, behind = max(front - MARGIN, 0), max(back - MARGIN, 0)
    before = cycles(old[first : len(old) - behind], hw)
    return before - cycles(new[first : len(new) - behind], hw), before


class _Walk(Flow):
    """With layers that take turns."""

    def cascade(self, found: Cascade) -> None:
        """All tiles of passes that run together."""
        self._take_places(together=True)
        tiles = [walk(work) for work in found.works]
        computed: list[list[float]] = [[0.0] for _ in found.works]
        made: list[list[float]] = [[0.0] for _ in range(len(found.works) + 1)]
        for turn in found.turns:
            free = computed[turn.layer + 1][turn.frees] if turn.layer + 1 < len(tiles) else 0.0
            if turn.layer == LOAD:
                made[0].append(self._load_strip(found, turn.number, free))
                continue
            work, (out, rect) = found.works[turn.layer], tiles[turn.layer][turn.number]
            there = made[turn.layer][turn.needs]
            psum = self._accumulate(work, out, rect, None, there)
            computed[turn.layer].append(self._swept + self._drain)
            target = None
            if turn.layer + 1 < len(tiles):
                pieces = [n for _, n, _ in found.rings[turn.layer + 1].written(*rect[:2])]
                target = Target(free=free, pieces=tuple(pieces))
            self._post(work, out, rect, psum, target, stored=found.stored[turn.layer])
            made[turn.layer + 1].append(self._post_done)
        self._take_places(together=False)
        self._buffers[Space.FEATURE].banks = map_banks(self._hw)[Space.FEATURE]

    def _take_places(self, *, together: bool) -> None:
        for space, found in places(self._hw, STAYING, together=together).items():
            self._constants[space].places = found

    def _load_strip(self, found: Cascade, number: int, free: float) -> float:
        work, ring, (first, rows) = found.works[0], found.rings[0], found.strip(number)
        blocks = work.reads.block, ring.layout.blocks
        after = max(self._stored.since(work.reads.home, blocks, first + rows), free)
        for at, count, _ in ring.written(first, rows):
            after, span = max(after, self._kept_written), (first + at, count)
            words, of = work.row_words, ring.layout.blocks
            self._features_there = self._bring(work, LOAD, span, words, of, after)
        return self._features_there
