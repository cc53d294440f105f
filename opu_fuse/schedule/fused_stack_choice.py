"""Cut a chain of groups into fused stacks: minimise cycles, and to a small degree DRAM bytes.

The closed form (`RowStrips.size`) proposes the best cut of the chain. The row strips of each fused
stack are chosen by the cycles of its time slots, then by the timed tile schedule
(`timing/segment_cycles.py`). The latter decides whether the stack beats shorter ones and the
unfused groups.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.schedule.emitted_units import PlannedUnit
from opu_fuse.schedule.tile_choice import Together, Weighed
from opu_fuse.tile_schedule.fused_stack import FusedStack, RowStrips, Sized, interleaved
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tile_schedule.traversal import Unit
from opu_fuse.tiling.tile import ceil_div
from opu_fuse.timing.segment_cycles import MARGIN, cycles, cycles_and_memory

LONGEST = 12
"""Layers of a cascade."""

STRIPS = (8, 1), (8, 2), (4, 1), (4, 2), (2, 1), (2, 2), (1, 4), (1, 1)
"""Rows that the last layer makes between two turns of the first, and into how many tiles strips are
cut; tried in this order. A strip of a row may be several at layers before one with a stride.
"""

TIMED, NEAR = 3, 1.03
"""Ways to cut a cascade into strips that are timed tile by tile: so many at most, and those that
the clock finds no slower than so many times the fastest.
"""

RESOLUTION = 0.0025
"""What the timing of a cascade may be wrong by: of the cycles of it and of its neighbours."""

TURN_BYTES = 96
"""Of instructions that a turn takes, about, which the walk leaves out."""

BYTES = 0.2
"""Cycles that a layer may take longer for each cycle in which memory is idle instead: other layers
and other users of the memory need it, and a byte moved takes more energy than a cycle.
"""


class _Best(Struct, frozen=True, kw_only=True):
    """Best cut of a prefix of the chain: its merit and the fused stack that it ends with."""

    merit: float
    last: Sized | None = None


class _Worth(Struct, frozen=True, kw_only=True):
    """A fused stack, the cycles that it saves and the cycle value of its bytes; 0 if rejected."""

    merit: float
    weighed: Weighed


def together(units: Sequence[PlannedUnit], stack: FusedStack) -> Together:
    """Combine groups and the fused stack that computes them."""
    return Together(groups=tuple(unit.groups[0] for unit in units), stack=stack)


def weigh(
    units: Sequence[PlannedUnit],
    chain: Sequence[PlannedUnit],
    alone: Mapping[int, float],
    strips: RowStrips,
    homes: Mapping[int, int],
) -> Iterator[Weighed]:
    """Return the fused stacks of a chain, accepted or rejected.

    units: all units of the segment;
    alone: DFG index of a group's output -> predicted cycles of the unfused group.
    """
    moved = {unit.works[0].output: _bytes(unit, before) for before, unit in _pairs(units)}

    def worth(part: Sequence[PlannedUnit], sized: Sized) -> _Worth | None:
        return _weighed(units, part, sized.dram_bytes, alone, moved, strips, homes)

    for first, proposed in _proposed(chain, alone, moved, strips, LONGEST):
        part = chain[first : first + len(proposed.works)]
        whole = worth(part, proposed)
        # The closed form underestimates stalls between the layers of a long stack.
        shorter = [
            found
            for at, sized in _proposed(part, alone, moved, strips, ceil_div(len(part), 2))
            if (found := worth(part[at : at + len(sized.works)], sized))
        ]
        if whole is not None and sum(one.merit for one in shorter) <= whole.merit:
            shorter = [whole]
        yield from (one.weighed for one in shorter)


def _weighed(
    units: Sequence[PlannedUnit],
    part: Sequence[PlannedUnit],
    dram_bytes: int,
    alone: Mapping[int, float],
    moved: Mapping[int, int],
    strips: RowStrips,
    homes: Mapping[int, int],
) -> _Worth | None:
    """The fastest fused stack of all groups of a part; None if none fits."""
    hw = strips.hw
    stack = _timed([unit.works[0] for unit in part], strips, homes)
    if stack is None:
        return None
    gain, near = _saved(units, part, stack, alone, hw)
    turns = len(stack.turns) - sum(len(unit.works[0].tiles) for unit in part)
    gain -= turns * TURN_BYTES / hw.dram.rate
    outputs = [unit.works[0].output for unit in part]
    cycles_alone = sum(alone[output] for output in outputs)
    bytes_alone = sum(moved[output] for output in outputs)
    merit = gain + BYTES * (bytes_alone - dram_bytes) / hw.dram.rate
    taken = merit > RESOLUTION * near
    found = Weighed(
        together=together(part, stack),
        taken=taken,
        cycles_alone=round(cycles_alone),
        cycles=round(cycles_alone - gain),
        bytes_alone=bytes_alone,
        bytes=dram_bytes,
    )
    return _Worth(merit=merit * taken, weighed=found)


def _saved(
    units: Sequence[PlannedUnit],
    part: Sequence[PlannedUnit],
    stack: FusedStack,
    alone: Mapping[int, float],
    hw: HwSpec,
) -> tuple[float, float]:
    """(cycles that a fused stack saves, cycles of the unfused groups), neighbours included.

    The first and last timed group are left out: they include pipeline fill and the final stores.
    """
    at = next(n for n, unit in enumerate(units) if unit is part[0])
    first, behind = max(at - MARGIN, 0), at + len(part)
    unit = Unit(works=stack.works, stack=stack)
    near = [*units[first:at], unit, *units[behind : behind + MARGIN + 1]]
    spent, _ = cycles_and_memory(near, hw)
    counted = units[first + (first > 0) : behind + MARGIN]
    before = {work.output: alone[work.output] for unit in counted for work in unit.works}
    return sum(before.values()) - sum(spent[output] for output in before), sum(before.values())


def _pairs(units: Sequence[PlannedUnit]) -> Iterable[tuple[PlannedUnit | None, PlannedUnit]]:
    return zip([None, *units], units, strict=False)  # nobody is in front of the first


def _bytes(unit: PlannedUnit, before: PlannedUnit | None) -> int:
    """DRAM bytes that the tiles of an unfused unit load and store, without resident maps."""
    moved = sum(layer.estimate.dram_bytes for layer in unit.works)
    work, size = unit.works[0], unit.works[0].reads.layout.size_bytes
    if before is not None and before.keep is not None and before.keep.node == work.source:
        moved -= size
    if unit.on_chip:
        moved -= work.writes.layout.size_bytes
    return max(moved, 0)


def _timed(
    works: Sequence[TiledLayer], strips: RowStrips, homes: Mapping[int, int]
) -> FusedStack | None:
    """The fastest fused stack of the layers; None if none fits.

    Equivalent layer sequences (`_likeness`) reuse the row strips found first.
    """
    likeness = _likeness(works, homes)
    found: list[tuple[FusedStack, tuple[int, int]]] = []
    for strip in strips.fastest.get(likeness, STRIPS):
        sized = strips.size(works, *strip)
        stack = sized if isinstance(sized, str) else interleaved(sized, homes, strips.hw)
        if not isinstance(stack, str):
            found.append((stack, strip))
    found.sort(key=lambda pair: pair[0].cycles)
    near = [pair for pair in found[:TIMED] if pair[0].cycles <= NEAR * found[0][0].cycles]
    if len(near) > 1:
        near.sort(key=lambda pair: cycles([Unit(works=pair[0].works, stack=pair[0])], strips.hw))
    strips.fastest[likeness] = tuple(strip for _, strip in near[:1])
    return near[0][0] if near else None


def _likeness(works: Sequence[TiledLayer], homes: Mapping[int, int]) -> Hashable:
    """Memo key: equal for layer sequences with the same time slots and the same timing."""
    numbers = {work.writes.home: number for number, work in enumerate(works)}
    return tuple(
        (
            work.shape,
            work.reads.layout,
            work.writes.layout,
            work is works[-1] or work.readers > 1,
            tuple(numbers.get(homes[value]) for value in work.residuals),
            work.gate is not None and numbers.get(homes[work.gate]),
        )
        for work in works
    )


def _proposed(
    chain: Sequence[PlannedUnit],
    alone: Mapping[int, float],
    moved: Mapping[int, int],
    strips: RowStrips,
    longest: int,
) -> list[tuple[int, Sized]]:
    """Yield (number of the first layer, fused stack), from the end of the chain backwards.

    Layers whose maps are all resident anyway are skipped: fusing them gains nothing.
    """
    weight = BYTES / strips.hw.dram.rate
    works = [unit.works[0] for unit in chain]
    merits = [alone[work.output] + weight * moved[work.output] for work in works]
    best = [_Best(merit=0.0)]
    for end, merit in enumerate(merits, 1):
        best.append(_Best(merit=best[-1].merit + merit))
        left = STRIPS  # what overflows a buffer does so with a layer more, too
        for first in range(end - 2, max(end - longest, 0) - 1, -1):
            if all(unit.keep for unit in chain[first : end - 1]):
                continue
            tried = ((strip, strips.size(works[first:end], *strip)) for strip in left)
            sized = {strip: found for strip, found in tried if isinstance(found, Sized)}
            left = tuple(sized)
            if not left:
                break
            total, last = min(
                ((best[first].merit + s.cycles + weight * s.dram_bytes, s) for s in sized.values()),
                key=lambda pair: pair[0],
            )
            if total < best[end].merit:
                best[end] = _Best(merit=total, last=last)
    found: list[tuple[int, Sized]] = []
    end = len(merits)
    while end:
        last = best[end].last
        end -= 1 if last is None else len(last.works)
        if last is not None:
            found.append((end, last))
    return found
