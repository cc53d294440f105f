"""Cut a chain of groups into fused stacks: minimise cycles, and to a small degree DRAM bytes.

The closed form (`RowStrips.size`) proposes the best cut of the chain. The row strips of each fused
stack are chosen by the cycles of its time slots, then by the timed tile schedule
(`timing/segment_cycles.py`). The latter decides whether the stack beats shorter ones and the
unfused groups.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from heapq import nsmallest
from math import inf
from typing import NamedTuple

from opu_fuse.schedule.emitted_units import PlannedUnit, PlannedUnits
from opu_fuse.schedule.segment_order import UnitGroups
from opu_fuse.schedule.tile_choice import StackTrial
from opu_fuse.tile_schedule.fused_stack import FusedStack, RowStrips
from opu_fuse.tile_schedule.sized_stack import Sized
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tile_schedule.unit import Unit
from opu_fuse.tiling.tile import ceil_div
from opu_fuse.timing.segment_cycles import MARGIN, RESOLUTION, KnownByLayer, cycles, cycles_by_layer

LONGEST = 12
"""Most layers of a fused stack. It bounds the time of the search."""

STRIPS = (8, 1), (8, 2), (4, 1), (4, 2), (2, 1), (2, 2), (1, 4), (1, 1)
"""Candidate row strips as (rows, parts), in the order in which they are tried.

rows: output rows of the last layer per row strip;
parts: tiles into which a strip is cut. A strip of one row may be several at layers before one with
a stride.
"""

TALL = ((10, 2),)
"""Further ones where stacks have branches: tables that are loaded again are those of a strip."""

TIMED, TIMED_OF_SLOW, NEAR = 2, 3, 1.03
"""Row strips of a stack that are timed tile by tile: at most TIMED (behind a slow memory
TIMED_OF_SLOW), and only those whose time slots take at most NEAR times the cycles of the fastest.
"""

LEFT_TO_STRIPS, LEFT_TO_SHORTER = 1.005, 1.01
"""A stack that takes at most so many times the cycles of its array is fast enough: no other row
strips, and no shorter stacks, are tried.
"""

ROUNDING = 1e-9
"""Relative error of sums of cycles."""

SLOT_BYTES = 96
"""Approximate instruction bytes per time slot, whose fetch the timed tile schedule leaves out."""

BYTES = 0.2
"""Cycle value of a cycle of DRAM traffic. Other layers and other users need the memory, too, and
moving a byte takes more energy than a cycle of computing.
"""


def stack_groups(units: PlannedUnits, stack: FusedStack) -> UnitGroups:
    """Combine groups and the fused stack that computes them."""
    return UnitGroups(groups=tuple(unit.groups[0] for unit in units), stack=stack)


class _Part(NamedTuple):
    """Groups first .. end - 1 of a chain: a fused stack, or one that is none."""

    first: int
    end: int
    stack: StackTrial | None


class StackSearch:
    """The search for fused stacks in a segment.

    units: all units of the segment;
    alone: DFG index of a group's output -> predicted cycles of the unfused group;
    idle: of every unit, those cycles that another tile could save;
    moved: likewise, DRAM bytes;
    strips: row strips of the layers, which all segments share.
    """

    def __init__(
        self,
        units: PlannedUnits,
        alone: Mapping[int, float],
        idle: Sequence[float],
        strips: RowStrips,
    ) -> None:
        self.units, self.alone, self.strips, self.hw = units, alone, strips, strips.hw
        self.idle = idle
        self.known: KnownByLayer = {}
        pairs = zip([None, *units], units, strict=False)  # the first has no predecessor
        self.moved = {unit.layers[0].output: _bytes(unit, before) for before, unit in pairs}

    def trials(self, chain: PlannedUnits) -> list[StackTrial]:
        """List the fused stacks tried for a chain, accepted or rejected.

        If some that are proposed are not the best, and fit since layers share tables, the chain is
        cut once more without these.
        """
        shared: set[tuple[int, int]] = set()
        tried: dict[tuple[int, int], list[StackTrial]] = {}

        def cut(refused: Collection[tuple[int, int]]) -> list[StackTrial]:
            found: list[StackTrial] = []
            for first, proposed in self._proposed(chain, LONGEST, refused):
                key = first, first + len(proposed.layers)
                if proposed.shares_tables:
                    shared.add(key)
                if key not in tried:
                    tried[key] = self._best(chain[slice(*key)], proposed)
                found += tried[key]
            return found

        result = cut(())
        refused = [
            (first, end)
            for first, end in shared
            if not any(x.chosen and len(x.fused.groups) == end - first for x in tried[first, end])
        ]
        again = cut(refused) if refused else []
        best = max(result, again, key=lambda trials: sum(trial.merit for trial in trials))
        return self._joined(chain, best) if self.hw.dram.is_slow else best

    def _joined(self, chain: PlannedUnits, trials: list[StackTrial]) -> list[StackTrial]:
        """Join stacks with what is next to them where that is better: the closed form overestimates
        what stacks lose whose line buffers have no space to prefetch.
        """
        places = {unit.groups[0]: at for at, unit in enumerate(chain)}
        chosen = {places[trial.fused.groups[0]]: trial for trial in trials if trial.chosen}
        done: list[_Part] = []
        while not done or done[-1].end < len(chain):
            first = done[-1].end if done else 0
            trial = chosen.get(first)
            done.append(_Part(first, first + (len(trial.fused.groups) if trial else 1), trial))
            while len(done) > 1 and (joined := self._union(chain, *done[-2:])) is not None:
                done[-2:] = [joined]
        return [part.stack for part in done if part.stack] + [x for x in trials if not x.chosen]

    def _union(self, chain: PlannedUnits, one: "_Part", other: "_Part") -> "_Part | None":
        """Both parts as one stack; None if there is none, or it is no better."""
        units = chain[one.first : other.end]
        layers = [unit.layers[0] for unit in units]
        if (
            not (one.stack or other.stack)
            or len(layers) > LONGEST
            or self.strips.wiring(layers) is None
        ):
            return None
        tried = (self.strips.size(layers, *strip) for strip in _candidates(self.strips))
        sized = [stack for stack in tried if stack is not None]
        if not sized:
            return None
        trial = self._score(units, min(stack.dram_bytes for stack in sized))
        merits = sum(part.stack.merit for part in (one, other) if part.stack)
        return _Part(one.first, other.end, trial) if trial and trial.merit > merits else None

    def _best(self, part: PlannedUnits, proposed: Sized) -> list[StackTrial]:
        """The fused stack of all groups of a part, or shorter ones."""
        whole = self._score(part, proposed.dram_bytes)
        if whole and whole.chosen and whole.cycles <= LEFT_TO_SHORTER * proposed.array:
            return [whole]
        # The closed form underestimates stalls between the layers of a long stack.
        shorter = [
            trial
            for at, sized in self._proposed(part, ceil_div(len(part), 2))
            if (trial := self._score(part[at : at + len(sized.layers)], sized.dram_bytes))
        ]
        if whole is not None and sum(trial.merit for trial in shorter) <= whole.merit:
            return [whole]
        return shorter

    def _score(self, part: PlannedUnits, dram_bytes: int) -> StackTrial | None:
        """Score the fastest fused stack of all groups of a part; None if none fits."""
        rate, stack = self.hw.dram.rate, _timed([unit.layers[0] for unit in part], self.strips)
        if stack is None:
            return None
        at = next(n for n, unit in enumerate(self.units) if unit is part[0])
        gain, near = self._saved(at, len(part), stack)
        slots = len(stack.slots) - sum(len(unit.layers[0].tiles) for unit in part)
        gain -= slots * SLOT_BYTES / rate
        outputs = [unit.layers[0].output for unit in part]
        cycles_alone = sum(self.alone[output] for output in outputs)
        bytes_alone = sum(self.moved[output] for output in outputs)
        by_tiles = sum(max(idle, 0.0) for idle in self.idle[at : at + len(part) + 1])
        merit = gain - by_tiles + BYTES * (bytes_alone - dram_bytes) / rate
        chosen = merit > RESOLUTION * near
        return StackTrial(
            fused=stack_groups(part, stack),
            chosen=chosen,
            merit=merit * chosen,
            cycles_alone=round(cycles_alone),
            cycles=round(cycles_alone - gain),
            bytes_alone=bytes_alone,
            bytes=dram_bytes,
        )

    def _saved(self, at: int, count: int, stack: FusedStack) -> tuple[float, float]:
        """(cycles that a fused stack saves, cycles of the unfused groups), neighbours included. at,
        count: position and number of its units.

        The first and last timed group are left out: they include pipeline fill and the final
        stores.
        """
        units, alone = self.units, self.alone
        first, end = max(at - MARGIN, 0), at + count
        unit = Unit(layers=stack.layers, stack=stack)
        near = [*units[first:at], unit, *units[end : end + MARGIN + 1]]
        spent = cycles_by_layer(near, self.hw, self.known)
        counted = units[first + (first > 0) : end + MARGIN]
        before = {layer.output: alone[layer.output] for unit in counted for layer in unit.layers}
        return sum(before.values()) - sum(spent[output] for output in before), sum(before.values())

    def _proposed(
        self, chain: PlannedUnits, longest: int, refused: Collection[tuple[int, int]] = ()
    ) -> list[tuple[int, Sized]]:
        """List (number of the first layer, fused stack), from the end of the chain backwards.

        refused: (first, end) of stacks that are left out.
        Layers whose maps are all resident anyway are skipped: fusing them gains nothing.
        """
        weight = BYTES / self.hw.dram.rate
        layers = [unit.layers[0] for unit in chain]
        merits = [self.alone[x.output] + weight * self.moved[x.output] for x in layers]
        # Of each prefix of the chain: the merit of its best cut, and the fused stack at its end.
        best: list[tuple[float, Sized | None]] = [(0.0, None)]
        for end, merit in enumerate(merits, 1):
            best.append((best[-1][0] + merit, None))
            # Strips that overflow a buffer also do so with one more layer.
            left = _candidates(self.strips)
            for first in range(end - 2, max(end - longest, 0) - 1, -1):
                if all(unit.resident for unit in chain[first : end - 1]):
                    continue
                if (first, end) in refused or self.strips.wiring(layers[first:end]) is None:
                    continue
                tried = ((strip, self.strips.size(layers[first:end], *strip)) for strip in left)
                sized = {strip: stack for strip, stack in tried if stack is not None}
                left = tuple(sized)
                if not left:
                    break
                costs = (best[first][0] + s.cycles + weight * s.dram_bytes for s in sized.values())
                cut = min(zip(costs, sized.values(), strict=True), key=lambda pair: pair[0])
                if cut[0] < best[end][0]:
                    best[end] = cut
        stacks: list[tuple[int, Sized]] = []
        end = len(merits)
        while end:
            _, last = best[end]
            end -= 1 if last is None else len(last.layers)
            if last is not None:
                stacks.append((end, last))
        return stacks


def _candidates(strips: RowStrips) -> Sequence[tuple[int, int]]:
    return (*STRIPS, *TALL) if strips.branches else STRIPS


def _most_timed(strips: RowStrips) -> int:
    return TIMED_OF_SLOW if strips.hw.dram.is_slow else TIMED


def _bytes(unit: PlannedUnit, before: PlannedUnit | None) -> int:
    """DRAM bytes that the tiles of an unfused unit load and store, without resident maps."""
    moved = sum(layer.estimate.dram_bytes for layer in unit.layers)
    layer, size = unit.layers[0], unit.layers[0].reads.layout.size_bytes
    if before is not None and before.resident is not None and before.resident.node == layer.source:
        moved -= size
    if unit.not_stored:
        moved -= layer.writes.layout.size_bytes
    return max(moved, 0)


def _timed(layers: Sequence[TiledLayer], strips: RowStrips) -> FusedStack | None:
    """The fastest fused stack of the layers; None if none fits.

    Equivalent layer sequences (`_memo_key`) reuse the row strips chosen for the first of them, and
    their time slots.
    """
    memo_key = _memo_key(layers, strips)
    if memo_key in strips.fastest:
        known = strips.fastest[memo_key]
        return known and strips.like(known[0], layers, *known[1])
    fitting = _ordered(layers, strips)[: _most_timed(strips)]
    near = [pair for pair in fitting if pair[0].cycles <= NEAR * fitting[0][0].cycles]
    if len(near) > 1:
        near.sort(key=lambda pair: cycles([Unit(layers=pair[0].layers, stack=pair[0])], strips.hw))
    strips.fastest[memo_key] = near[0] if near else None
    return near[0][0] if near else None


def _ordered(
    layers: Sequence[TiledLayer], strips: RowStrips
) -> list[tuple[FusedStack, tuple[int, int]]]:
    """The fused stacks of the layers and their row strips, those of the fewest cycles first.

    Some that are not timed are missing: the closed form knows which are fast, so that the others
    are soon given up.
    """
    candidates, timed = _candidates(strips), _most_timed(strips)
    tried = ((strip, strips.size(layers, *strip)) for strip in candidates)
    sized = {strip: stack for strip, stack in tried if stack is not None}
    enough = LEFT_TO_STRIPS * min((stack.array for stack in sized.values()), default=0.0)
    found: dict[tuple[int, int], FusedStack] = {}
    limit = inf
    for strip in sorted(sized, key=lambda strip: sized[strip].cycles):
        stack = strips.ordered(layers, *strip, limit * (1 + ROUNDING))
        if stack is not None:
            found[strip] = stack
            fewest = nsmallest(timed, (stack.cycles for stack in found.values()))
            limit = min([NEAR * fewest[0], *fewest[timed - 1 :]])
            if fewest[0] <= enough:
                break
    in_order = [(found[strip], strip) for strip in candidates if strip in found]
    return sorted(in_order, key=lambda pair: pair[0].cycles)


def _memo_key(layers: Sequence[TiledLayer], strips: RowStrips) -> Hashable:
    """Memo key: equal for layer sequences with the same time slots and the same timing."""
    numbers = {layer.writes.alias_root: number for number, layer in enumerate(layers)}
    alias_roots, tables = strips.alias_roots, [layer.functions for layer in layers]
    return (
        strips.wiring(layers),
        strips.stored(layers),
        tuple(
            (
                layer.shape,
                layer.reads.layout,
                layer.writes.layout,
                tuple(numbers.get(alias_roots[value]) for value in layer.residuals),
                layer.gate is not None and numbers.get(alias_roots[layer.gate]),
                tables.index(layer.functions),
            )
            for layer in layers
        ),
    )
