"""Which maps lie inside others: the operands of joined concatenations, the results of splits."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from opu_fuse.dfg.graph import Dfg, Kind
from opu_fuse.dfg.views import elements
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.dram_layout import lanes_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.lanes import (
    NO_SHIFTS,
    LaneMap,
    Shifts,
    joined_starts,
    map_lanes,
    reads_as_stored,
)

MAP_RANK = 4


class Join(Struct, frozen=True, kw_only=True):
    """A value inside a joined concatenation: that concatenation, and its first block there."""

    home: int
    block: int


def misplaced(dfg: Dfg, hw: HwSpec, layouts: Collection[int]) -> dict[tuple[int, int], str]:
    """(concatenation, position of an operand): why it cannot lie there, for every map that would
    have to be in two places. layouts: the concatenations and splits that the machine does.
    """
    joined = set(layouts)
    lanes = map_lanes(dfg, hw, joined)
    elsewhere: dict[tuple[int, int], str] = {}
    while True:
        try:
            find_joins(dfg, joined, lanes, hw.word_channels, NO_SHIFTS, elsewhere)
        except CannotJoin as error:
            if dfg[error.value].kind is Kind.CONST or not error.positions:
                joined.discard(error.node)
            else:
                elsewhere |= {(error.node, k): error.what for k in error.positions}
        else:
            break
    return {
        (concat, k): why
        for (concat, k), why in elsewhere.items()
        if concat in joined and len(dfg[elements(dfg, concat)[k]].shape) == MAP_RANK
    }


def find_joins(
    dfg: Dfg,
    joined: Collection[int],
    lanes: LaneMap,
    width: int,
    shifts: Shifts,
    elsewhere: Collection[tuple[int, int]] = (),
) -> dict[int, Join]:
    """Where the operands of joined concatenations lie, the concatenations inside others, and the
    results of joined splits. width: lanes of a word; elsewhere: (concatenation, position of an
    operand) to leave out.

    Raises CannotJoin when a value would have to lie in two places, or two values in one; with no
    positions when an operand is a map in another shape than the one that is stored.
    """
    found: dict[int, Join] = {}
    for node in sorted(joined):
        if not reads_as_stored(dfg, node):
            why = "keeps its values, read in another shape, in blocks of channels"
            raise CannotJoin(dfg, node, dfg.base(elements(dfg, node)[0]), why, ())
    for outer in sorted((i for i in joined if dfg[i].op == "concat"), reverse=True):
        starts = joined_starts(dfg, lanes, outer, width, shifts)
        whole = all((outer, k) not in elsewhere for k in range(len(elements(dfg, outer))))
        inside = _part_of_another(found, starts) if whole else None  # its copies lie nowhere yet
        at = found.get(outer) or inside or Join(home=outer, block=0)
        if at.home != outer:
            found[outer] = at
        for value, positions in _lane_owners(dfg, outer, lanes, starts, width, elsewhere).items():
            place = Join(home=at.home, block=at.block + starts[value])
            if dfg[value].kind is Kind.CONST or found.get(value, place) != place:
                constant = dfg[value].kind is Kind.CONST
                why = "is a constant" if constant else "lies in another concatenation"
                raise CannotJoin(dfg, outer, value, why, positions)
            found[value] = place
    for split in (i for i in joined if dfg[i].op == "split"):
        for part in dfg.users[split]:
            base = lanes[part].base
            at = found.get(base, Join(home=base, block=0))
            found[part] = Join(home=at.home, block=at.block + lanes[part].block)
    return found


def _lane_owners(
    dfg: Dfg,
    outer: int,
    lanes: LaneMap,
    starts: Mapping[int, int],
    width: int,
    elsewhere: Collection[tuple[int, int]],
) -> dict[int, tuple[int, ...]]:
    """The values in whose bytes the operands of a concatenation lie, with the operands' positions.

    Raises CannotJoin for an operand whose channels stand at an earlier place of the concatenation
    already: who reads a lane twice would need two weights for it.
    """
    owners: dict[int, tuple[int, ...]] = {}
    taken: set[int] = set()
    for position, operand in enumerate(elements(dfg, outer)):
        if (outer, position) in elsewhere:
            continue
        place = lanes[dfg.base(operand)]
        own = lanes_of(place.pieces) + (starts[place.base] + place.block) * width
        if not taken.isdisjoint(own.tolist()):
            why = "stands in the same concatenation twice"
            raise CannotJoin(dfg, outer, place.base, why, (position,))
        taken.update(own.tolist())
        owners[place.base] = (*owners.get(place.base, ()), position)
    return owners


def _part_of_another(found: Mapping[int, Join], starts: Mapping[int, int]) -> Join | None:
    """Where a concatenation lies whose operands follow each other in a larger one already."""
    begins = {
        Join(home=found[i].home, block=found[i].block - start) if i in found else None
        for i, start in starts.items()
    }
    return begins.pop() if len(begins) == 1 else None


class CannotJoin(DoesNotFit):
    """A concatenation (`node`) that would have to copy `value`, for its operands at `positions`."""

    def __init__(
        self, dfg: Dfg, node: int, value: int, why: str, positions: tuple[int, ...]
    ) -> None:
        what = f"{dfg[value].name} {why}"
        super().__init__(
            dfg[node].name, what, "leave one of them to the host, or compute the value twice"
        )
        self.node, self.value, self.positions = node, value, positions
