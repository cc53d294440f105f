"""Which maps alias others: operands of zero-copy concatenations and results of splits."""

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
"""Rank of a feature map, (1, c, h, w). Values of another rank get no copy."""


class Join(Struct, frozen=True, kw_only=True):
    """The storage of an aliased value.

    alias_root: base allocation;
    block: first channel block of the value in it.
    """

    alias_root: int
    block: int


def misplaced(dfg: Dfg, hw: HwSpec, layouts: Collection[int]) -> dict[tuple[int, int], str]:
    """(concatenation, operand position) -> why that operand cannot be aliased and needs a copy.

    layouts: the concatenations and splits inside groups.
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
    """Storage of every aliased value, by DFG index: operands of joined concatenations,
    concatenations inside others, and results of joined splits.

    width: lanes of a word; elsewhere: (concatenation, operand position) to leave out because it is
    copied.

    Raises CannotJoin when a value would need two addresses, or two values would need one. The error
    has no positions when an operand is viewed in another shape than the stored one.
    """
    joins: dict[int, Join] = {}
    for node in sorted(joined):
        if not reads_as_stored(dfg, node):
            why = "keeps its values, read in another shape, in blocks of channels"
            raise CannotJoin(dfg, node, dfg.base(elements(dfg, node)[0]), why, ())
    concats = [i for i in joined if dfg[i].op == "concat"]
    for outer in sorted((i for i in concats if lanes[i].base == i), reverse=True):
        starts = joined_starts(dfg, lanes, outer, width, shifts)
        whole = all((outer, k) not in elsewhere for k in range(len(elements(dfg, outer))))
        inside = _part_of_another(joins, starts) if whole else None  # copies have no address yet
        outer_join = joins.get(outer) or inside or Join(alias_root=outer, block=0)
        if outer_join.alias_root != outer:
            joins[outer] = outer_join
        for value, positions in _lane_owners(dfg, outer, lanes, starts, width, elsewhere).items():
            join = Join(alias_root=outer_join.alias_root, block=outer_join.block + starts[value])
            constant = dfg[value].kind is Kind.CONST
            if constant or joins.get(value, join) != join:
                why = "is a constant" if constant else "is part of another concatenation"
                raise CannotJoin(dfg, outer, value, why, positions)
            joins[value] = join
    splits = (i for i in joined if dfg[i].op == "split")
    for parts in ([i for i in concats if lanes[i].base != i], *(dfg.users[s] for s in splits)):
        for part in parts:
            base = lanes[part].base
            outer_join = joins.get(base, Join(alias_root=base, block=0))
            joins[part] = Join(
                alias_root=outer_join.alias_root, block=outer_join.block + lanes[part].block
            )
    return joins


def _lane_owners(
    dfg: Dfg,
    outer: int,
    lanes: LaneMap,
    starts: Mapping[int, int],
    width: int,
    elsewhere: Collection[tuple[int, int]],
) -> dict[int, tuple[int, ...]]:
    """Base values of a concatenation's operands -> the positions of these operands.

    Raises CannotJoin for an operand whose channels already occur at an earlier position of the
    concatenation: a reader of one lane for two channels would need two weights for it.
    """
    owners: dict[int, tuple[int, ...]] = {}
    used_lanes: set[int] = set()
    for position, operand in enumerate(elements(dfg, outer)):
        if (outer, position) in elsewhere:
            continue
        base_lanes = lanes[dfg.base(operand)]
        operand_lanes = (
            lanes_of(base_lanes.pieces) + (starts[base_lanes.base] + base_lanes.block) * width
        )
        if not used_lanes.isdisjoint(operand_lanes.tolist()):
            why = "occurs in the same concatenation twice"
            raise CannotJoin(dfg, outer, base_lanes.base, why, (position,))
        used_lanes.update(operand_lanes.tolist())
        owners[base_lanes.base] = (*owners.get(base_lanes.base, ()), position)
    return owners


def _part_of_another(joins: Mapping[int, Join], starts: Mapping[int, int]) -> Join | None:
    """The storage of a concatenation whose operands are already consecutive inside a larger one."""
    candidate_starts = {
        Join(alias_root=joins[i].alias_root, block=joins[i].block - start) if i in joins else None
        for i, start in starts.items()
    }
    return candidate_starts.pop() if len(candidate_starts) == 1 else None


class CannotJoin(DoesNotFit):
    """A concatenation (`node`) that needs a copy of `value`, for its operands at `positions`."""

    def __init__(
        self, dfg: Dfg, node: int, value: int, why: str, positions: tuple[int, ...]
    ) -> None:
        what = f"{dfg[value].name} {why}"
        super().__init__(
            dfg[node].name, what, "leave one of them to the host, or compute the value twice"
        )
        self.node, self.value, self.positions = node, value, positions
