"""Where the channels of every value lie: concatenations that move no byte leave holes.

A concatenation that the machine reads as one map is no copy: its operands lie one behind the other
in memory, each beginning a channel block or, shifted, in the block that the one before has begun.
Nor is a split: its results are read where the operand lies. Operators that work channel by channel
keep the lanes of what they read; the array puts its channels into any lanes, and so makes what is
added to a map with holes with the same holes, and a map whose parts meet each other with each part
from a word on.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.views import elements, feature_shape
from opu_fuse.hw.dram_layout import Pieces, extent, is_plain, lanes_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.units import STAGE_OF_OPERATOR

KEEPS_LANES = frozenset({*STAGE_OF_OPERATOR, "pad", "upsample", "batch_norm"})
"""Operators that give every channel in the lane in which they read it."""

ANY_LANES = frozenset({"conv", "dense", "shuffle"})
"""Operators whose channels the array puts into any lanes, unless its windows keep them."""

LAYOUT = frozenset({"concat", "split"})
"""Operators that machines do by reading elsewhere."""


class Lanes(Struct, frozen=True, kw_only=True):
    """Where a value's channels are. base: DFG index of the value in whose bytes it lies (the
    operand of a split, else itself); block: its first channel block there; pieces: lanes from that
    block on; span: lanes that it keeps from others (a concatenation of parts of splits holds the
    whole operands).
    """

    base: int
    block: int
    pieces: Pieces
    span: int


LaneMap = Sequence[Lanes]
"""By DFG index."""

Shifts = Mapping[int, int]
"""First lane of values that share words with their neighbours in a concatenation, by DFG index."""

NO_SHIFTS: Shifts = MappingProxyType({})


def map_lanes(
    dfg: Dfg, hw: HwSpec, joined: Collection[int], shifts: Shifts = NO_SHIFTS
) -> tuple[Lanes, ...]:
    """Lanes of every value. joined: concatenations whose operands lie in memory one behind the
    other, and splits whose results are read where their operand lies.
    """
    joined = {i for i in joined if reads_as_stored(dfg, i)}
    shifted = {
        i: ((first, feature_shape(dfg[i].shape)[0]),) for i, first in shifts.items() if first
    }
    found = _mapped(dfg, hw, joined, shifts, shifted)
    asked = _asked_for(dfg, hw, joined, found)
    return _mapped(dfg, hw, joined, shifts, asked | shifted) if asked else found


def joined_starts(
    dfg: Dfg, lanes: LaneMap, index: int, width: int, shifts: Shifts
) -> dict[int, int]:
    """First channel block of every value inside a joined concatenation, by the value's base. width:
    lanes of a word.

    A shifted value begins in the last block of the one before if that leaves its lanes free, and
    has a shift too (else its stores write whole words).
    """
    end = 0  # lanes
    starts: dict[int, int] = {}
    before: int | None = None
    for operand in elements(dfg, index):
        base = lanes[dfg.base(operand)].base
        if base not in starts:
            free = shifts.get(base, 0) if before in shifts else 0
            starts[base] = max(-(-(end - free) // width), 0)
            end = starts[base] * width + lanes[base].span
            before = base
    return starts


def reads_as_stored(dfg: Dfg, index: int) -> bool:
    """Whether a concatenation or split finds its operands as they lie in memory: a change of view
    in between may keep channels, rows and columns only.
    """
    return all(
        feature_shape(dfg[i].shape) == feature_shape(dfg[dfg.base(i)].shape)
        for i in elements(dfg, index)
    )


def is_depthwise(dfg: Dfg, node: Node) -> bool:
    """One filter per channel."""
    weight = dfg[node.operands[1]].shape
    return node.attrs["group"] == weight[0] and weight[1] == 1


def _mapped(
    dfg: Dfg,
    hw: HwSpec,
    joined: Collection[int],
    shifts: Shifts,
    given: Mapping[int, Pieces],
) -> tuple[Lanes, ...]:
    """Front to back. given: lanes of values that the array makes, where not plain."""
    found: list[Lanes] = []
    for node in dfg.nodes:
        lanes = _lanes(dfg, hw, joined, shifts, found, node)
        pieces = given.get(node.index)
        found.append(replace(lanes, pieces=pieces, span=extent(pieces)) if pieces else lanes)
    return tuple(found)


def _asked_for(dfg: Dfg, hw: HwSpec, joined: Collection[int], found: LaneMap) -> dict[int, Pieces]:
    """Lanes in which convolutions have to make their channels, because something is added to them,
    or multiplied, that lies with holes: by DFG index.

    Values that must have their channels in the same lanes are one set (disjoint sets: Tarjan 1975).
    Where all of a set that no convolution makes have the same lanes, its convolutions take them.
    Where they are parts of a split map that convolutions make, these put each part into words of
    its own (a gated linear unit: one half of the channels times a function of the other).
    """
    if all(is_plain(lanes.pieces) for lanes in found):
        return {}
    parent = list(range(len(found)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = index = parent[parent[index]]
        return index

    made: list[Node] = []
    for node in dfg.nodes:
        if not _keeps_lanes(dfg, hw, node):
            made.append(node)
            continue
        for operand in node.operands:
            alike = feature_shape(dfg[operand].shape)[0] == feature_shape(node.shape)[0]
            if alike and dfg[operand].kind is not Kind.CONST:
                parent[root(operand)] = root(node.index)
    free = [node.index for node in made if node.op in ANY_LANES]
    fixed: dict[int, list[int]] = {}
    for node in made:
        if node.op not in ANY_LANES:
            fixed.setdefault(root(node.index), []).append(node.index)
    movable = {
        node.index: dfg.base(node.operands[0])
        for node in (dfg[i] for i in joined)
        if node.op == "split" and root(dfg.base(node.operands[0])) not in fixed
    }
    spread, pieces = _spread(dfg, movable, found, list(fixed.values()))
    asked = {root(movable[i]): _from_words(dfg[i], hw.word_channels) for i in spread}
    for of, members in fixed.items():
        one, *others = {pieces[i] for i in members}
        if not others and not is_plain(one):
            asked[of] = one
    return {index: asked[root(index)] for index in free if root(index) in asked}


def _spread(
    dfg: Dfg, movable: Collection[int], found: LaneMap, sets: Sequence[Sequence[int]]
) -> tuple[set[int], dict[int, Pieces]]:
    """Splits whose parts have to begin a word each, of those that may, so that all of a set are in
    the same lanes; and the pieces of all values of the sets then. sets: values that must be in the
    same lanes, those that no convolution makes.
    """
    pieces = {i: found[i].pieces for members in sets for i in members}
    spread: set[int] = set()
    left = list(sets)
    while left:  # a part that moves may leave another set that was at one
        at_odds: list[Sequence[int]] = []
        at_one: list[Sequence[int]] = []
        for members in left:
            (at_odds if len({pieces[i] for i in members}) > 1 else at_one).append(members)
        left = at_one
        moved = {
            split
            for members in at_odds
            if all(
                is_plain(pieces[i])
                or (dfg[i].kind is Kind.TUPLE_GET and dfg[i].operands[0] in movable)
                for i in members
            )
            for split in {dfg[i].operands[0] for i in members if not is_plain(pieces[i])}
        }
        if not moved - spread:
            break
        spread |= moved
        for part in (i for split in moved for i in dfg.users[split] if i in pieces):
            pieces[part] = ((0, feature_shape(dfg[part].shape)[0]),)
    return spread, pieces


def _from_words(split: Node, width: int) -> Pieces:
    """Channels of a split map, each part from a word on."""
    sizes = np.array(split.attrs["sizes"])
    words = np.cumsum([0, *-(-sizes // width)])[:-1]
    return tuple((int(at) * width, int(n)) for at, n in zip(words, sizes, strict=True))


def _lanes(
    dfg: Dfg,
    hw: HwSpec,
    joined: Collection[int],
    shifts: Shifts,
    found: list[Lanes],
    node: Node,
) -> Lanes:
    if node.index in joined and node.op == "concat":
        return _concatenated(dfg, hw, shifts, found, node)
    if node.kind is Kind.TUPLE_GET and node.operands[0] in joined:
        return _part(dfg, hw, found, node)
    channels = feature_shape(node.shape)[0]
    plain: Pieces = ((0, channels),)
    whole = Lanes(base=node.index, block=0, pieces=plain, span=channels)
    read = [(i, pieces) for i in node.operands if (pieces := found[i].pieces) != plain]
    alike = [pieces for i, pieces in read if feature_shape(dfg[i].shape)[0] == channels]
    if not alike or not _keeps_lanes(dfg, hw, node):
        return whole
    pieces = max(alike, key=_holes)
    return replace(whole, pieces=pieces, span=extent(pieces))


def _keeps_lanes(dfg: Dfg, hw: HwSpec, node: Node) -> bool:
    if node.kind is not Kind.CALL:
        return False
    if node.is_virtual:
        return feature_shape(dfg[node.operands[0]].shape) == feature_shape(node.shape)
    return node.op in KEEPS_LANES or (
        node.op in {"conv", "transposed_conv"} and hw.array.depthwise and is_depthwise(dfg, node)
    )


def _concatenated(dfg: Dfg, hw: HwSpec, shifts: Shifts, found: list[Lanes], node: Node) -> Lanes:
    starts = joined_starts(dfg, found, node.index, hw.word_channels, shifts)
    pieces: list[tuple[int, int]] = []
    span = max(at * hw.word_channels + found[base].span for base, at in starts.items())
    for operand in elements(dfg, node.index):
        lanes = found[dfg.base(operand)]
        at = (starts[lanes.base] + lanes.block) * hw.word_channels
        for first, count in lanes.pieces:
            if pieces and sum(pieces[-1]) == at + first:
                count += pieces[-1][1]
                first = pieces.pop()[0] - at
            pieces.append((at + first, count))
    return Lanes(base=node.index, block=0, pieces=tuple(pieces), span=span)


def _part(dfg: Dfg, hw: HwSpec, found: list[Lanes], node: Node) -> Lanes:
    """A result of a split: its channels where the operand has them."""
    split = dfg[node.operands[0]]
    whole = found[dfg.base(split.operands[0])]
    sizes = split.attrs["sizes"]
    first = sum(sizes[: node.attrs["index"]])
    channels = lanes_of(whole.pieces)[first : first + sizes[node.attrs["index"]]]
    block = int(channels.min()) // hw.word_channels
    breaks = np.flatnonzero(np.diff(channels) != 1) + 1
    runs = np.split(channels - block * hw.word_channels, breaks)
    pieces = tuple((int(run[0]), len(run)) for run in runs)
    return Lanes(base=whole.base, block=whole.block + block, pieces=pieces, span=extent(pieces))


def _holes(pieces: Pieces) -> tuple[int, int]:
    return len(pieces), extent(pieces)
