"""The lane of every channel of every value. Zero-copy concatenations leave unused lanes (holes).

A concatenation that the machine reads as one map needs no copy. Its operands are stored one after
the other, and each begins a channel block or, shifted, continues the last block of its predecessor.
A split needs no copy either: its results alias the operand.

Channel-wise operators preserve the lanes of their input. The array can write its channels to any
lanes, so a convolution whose result is added to a map with holes writes the same holes, and a
constant map has them. A map whose parts are combined with each other (a gated linear unit) has
every part word-aligned.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.dfg.graph import PRODUCTS, Access, Dfg, Kind, Node
from opu_fuse.dfg.unused_lanes import ends_in_zeros, lane_sources
from opu_fuse.dfg.views import elements, feature_shape, same_storage
from opu_fuse.hw.dram_layout import Pieces, extent, is_plain, lanes_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.weight_maps import sets_zeros
from opu_fuse.layout.head_lanes import product_lanes
from opu_fuse.model.operator_sets import NORM_OPERATORS
from opu_fuse.units import STAGE_OF_OPERATOR

KEEPS_LANES = frozenset({*STAGE_OF_OPERATOR, "pad", "upsample", "permute", "batch_norm"})
"""Operators that write every channel to the lane from which they read it."""

ANY_LANES = frozenset({"conv", "dense", "shuffle"})
"""Operators whose channels the array can write to any lanes, unless they run depthwise."""

LAYOUT = frozenset({"concat", "split"})
"""Operators that are pure layout: their readers use other addresses, and nothing is copied."""


class Lanes(Struct, frozen=True, kw_only=True):
    """The lanes of a value's channels.

    base: DFG index of the value whose allocation holds it (the operand of a split, else itself);
    block: its first channel block in that allocation;
    pieces: its lanes, counted from that block;
    span: lanes that it reserves (a concatenation of parts of splits holds the whole operands).
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
    """Lanes of every value, by DFG index.

    joined: zero-copy concatenations (operands stored one after the other) and splits (results that
    alias the operand).
    """
    joined = {i for i in joined if reads_as_stored(dfg, i)}
    shifted = {
        i: ((first, feature_shape(dfg[i].shape)[0]),) for i, first in shifts.items() if first
    }
    lanes = _mapped(dfg, hw, joined, shifts, shifted)
    required = _required_lanes(dfg, hw, joined, lanes)
    return _mapped(dfg, hw, joined, shifts, required | shifted) if required else lanes


def joined_starts(
    dfg: Dfg, lanes: LaneMap, index: int, width: int, shifts: Shifts
) -> dict[int, int]:
    """First channel block of every value inside a joined concatenation, by the value's base.

    width: lanes of a word. A shifted value begins in the last block of its predecessor if its lanes
    are unused and the predecessor has a shift too (otherwise that one stores whole words).
    """
    end = 0  # lanes
    starts: dict[int, int] = {}
    predecessor: int | None = None
    for operand in elements(dfg, index):
        base = lanes[dfg.base(operand)].base
        if base not in starts:
            shift = shifts.get(base, 0) if predecessor in shifts else 0
            starts[base] = max(-(-(end - shift) // width), 0)
            end = starts[base] * width + lanes[base].span
            predecessor = base
    return starts


def reads_as_stored(dfg: Dfg, index: int) -> bool:
    """Whether a concatenation or split reads its operands in the shape in which they are stored.

    A view in between must preserve channels and pixels.
    """
    return all(same_storage(dfg[i].shape, dfg[dfg.base(i)].shape) for i in elements(dfg, index))


def begins_word(index: int, lanes: LaneMap, width: int) -> bool:
    """Whether channel n of a value is lane n, and no other value has lanes of its last word.

    width: lanes of a word.
    """
    return is_plain(lanes[index].pieces) and _ends_word(index, lanes, width)


def in_a_word(index: int, lanes: LaneMap, hw: HwSpec) -> bool:
    """Whether a value's channels follow each other, from lane 0 on or in a single word; from any
    lane on where loads set lanes to zero.
    """
    pieces, most = lanes[index].pieces, hw.word_channels
    return is_plain(pieces) or (len(pieces) == 1 and (sum(pieces[0]) <= most or sets_zeros(hw)))


def alone(index: int, lanes: LaneMap, width: int) -> bool:
    """Whether no other value has lanes of a value's words. width: lanes of a word."""
    own = lanes[index]
    first, used = own.block * width, lanes_of(lanes[own.base].pieces)
    before = (used >= first) & (used < first + own.pieces[0][0])
    return not np.any(before) and _ends_word(index, lanes, width)


def loads_zeros(dfg: Dfg, node: Node, lanes: LaneMap, hw: HwSpec) -> bool:
    """Whether a product loads lanes of its second map's words as zeros: those that hold none of the
    map's channels, and that others use or that may not be zero.
    """
    if node.op != "matmul" or not sets_zeros(hw):
        return False
    second = dfg.base(node.operands[1])
    clean = alone(second, lanes, hw.word_channels) and ends_in_zeros(dfg, node.operands[1])
    return len(lanes[second].pieces) == 1 and not clean


def sharing_words(dfg: Dfg, node: Node, lanes: LaneMap, hw: HwSpec) -> tuple[int, ...]:
    """Values that share words with others, and whose unused lanes are in the sums of a product; ()
    where one of its maps has zeros there, as the unit of a transposition has.
    """
    width = hw.word_channels
    if node.op != "matmul" or loads_zeros(dfg, node, lanes, hw):
        return ()
    shared: list[int] = []
    for operand in node.operands:
        nodes = (n for n in lane_sources(dfg, operand) if n.kind is not Kind.TUPLE)
        sources = {dfg.base(n.index) for n in nodes if n.op != "split"}
        dirty = {i for i in sources if not alone(i, lanes, width)}
        if not dirty and ends_in_zeros(dfg, operand):
            return ()
        parts = {i for i in sources if dfg[i].kind is Kind.TUPLE_GET}
        shared += sorted(dirty | {i for i in parts if not in_a_word(i, lanes, hw)})
    return tuple(shared)


def _ends_word(index: int, lanes: LaneMap, width: int) -> bool:
    """Whether no other value has lanes of a value's last word."""
    own = lanes[index]
    base = lanes[own.base]
    end = own.block * width + extent(own.pieces)
    last = -(-end // width) * width
    used = lanes_of(base.pieces)
    return not np.any((used >= end) & (used < last)) and not end < base.span < last


def is_depthwise(dfg: Dfg, node: Node) -> bool:
    """Whether a convolution has one filter per channel."""
    weight = dfg[node.operands[1]].shape
    return node.attrs["group"] == weight[0] and weight[1] == 1


def _mapped(
    dfg: Dfg,
    hw: HwSpec,
    joined: Collection[int],
    shifts: Shifts,
    required: Mapping[int, Pieces],
) -> tuple[Lanes, ...]:
    """Lanes of every value, in one forward pass.

    required: lanes of values that the array computes, where they are not plain.
    """
    lane_map: list[Lanes] = []
    for node in dfg.nodes:
        lanes = _lanes(dfg, hw, joined, shifts, lane_map, node)
        pieces = required.get(node.index)
        lane_map.append(replace(lanes, pieces=pieces, span=extent(pieces)) if pieces else lanes)
    return tuple(lane_map)


def _required_lanes(
    dfg: Dfg, hw: HwSpec, joined: Collection[int], lane_map: LaneMap
) -> dict[int, Pieces]:
    """Lanes that convolutions must write because a map with holes is added to or multiplied with
    their result; by DFG index.

    Values that must have their channels in the same lanes form one set (union-find, Tarjan 1975).
    Consider the members of a set that convolutions do not compute. If they all have the same lanes,
    the set's convolutions take these. If they are parts of a split map that a convolution computes,
    that one writes every part word-aligned (a gated linear unit: one half of the channels times a
    function of the other).
    """
    if all(is_plain(lanes.pieces) for lanes in lane_map):
        return {}
    parent = list(range(len(lane_map)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = index = parent[parent[index]]
        return index

    producers: list[Node] = []
    for node in dfg.nodes:
        if not keeps_lanes(dfg, hw, node):
            producers.append(node)
            continue
        for operand in node.operands:
            same_channels = feature_shape(dfg[operand].shape)[0] == feature_shape(node.shape)[0]
            if same_channels and dfg[operand].kind is not Kind.CONST:
                parent[root(operand)] = root(node.index)
    convolutions = [node.index for node in producers if node.op in ANY_LANES]
    fixed: dict[int, list[int]] = {}
    for node in producers:
        if node.op not in ANY_LANES:
            fixed.setdefault(root(node.index), []).append(node.index)
    movable = {
        node.index: dfg.base(node.operands[0])
        for node in (dfg[i] for i in joined)
        if node.op == "split" and root(dfg.base(node.operands[0])) not in fixed
    }
    aligned, pieces = _spread(dfg, movable, lane_map, list(fixed.values()))
    aligned |= _read_by_products(dfg, movable, lane_map, hw)
    words = product_lanes(dfg, aligned, hw)
    assigned = {root(movable[i]): words[i] for i in aligned}
    for set_root, members in fixed.items():
        lanes, *others = {pieces[i] for i in members}
        if not others and not is_plain(lanes):
            assigned[set_root] = lanes
    readers = {i: i for i in convolutions} | _readers_of_constants(dfg, hw)
    found = {index: assigned.get(root(reader)) for index, reader in readers.items()}
    return {index: pieces for index, pieces in found.items() if pieces}


def _read_by_products(
    dfg: Dfg, movable: Collection[int], lane_map: LaneMap, hw: HwSpec
) -> set[int]:
    """Splits of which a product of two maps or a norm reads a part that shares words, or a product
    reads what other operators make of one.
    """
    parts: set[int] = set()
    for node in dfg.calls:
        if node.op in PRODUCTS:
            bases = map(dfg.base, node.operands)
            parts.update(i for i in bases if not begins_word(i, lane_map, hw.word_channels))
            parts.update(sharing_words(dfg, node, lane_map, hw))
        elif node.op in NORM_OPERATORS.values():
            source = dfg.base(node.operands[0])
            parts.update({source} if not begins_word(source, lane_map, hw.word_channels) else ())
    splits = {dfg[i].operands[0] for i in parts if dfg[i].kind is Kind.TUPLE_GET}
    return splits & set(movable)


def _spread(
    dfg: Dfg, movable: Collection[int], lane_map: LaneMap, sets: Sequence[Sequence[int]]
) -> tuple[set[int], dict[int, Pieces]]:
    """(splits whose parts must be word-aligned to agree in lanes, resulting pieces by DFG index).

    movable: splits whose parts may be word-aligned; sets: values that must share lanes and that no
    convolution computes.
    """
    pieces = {i: lane_map[i].pieces for members in sets for i in members}
    aligned: set[int] = set()
    consistent = list(sets)
    while consistent:  # fixpoint: realigning a part may break a set that agreed
        conflicting: list[Sequence[int]] = []
        agreeing: list[Sequence[int]] = []
        for members in consistent:
            (conflicting if len({pieces[i] for i in members}) > 1 else agreeing).append(members)
        consistent = agreeing
        realigned = {
            split
            for members in conflicting
            if all(
                is_plain(pieces[i])
                or (dfg[i].kind is Kind.TUPLE_GET and dfg[i].operands[0] in movable)
                for i in members
            )
            for split in {dfg[i].operands[0] for i in members if not is_plain(pieces[i])}
        }
        if not realigned - aligned:
            break
        aligned |= realigned
        for part in (i for split in realigned for i in dfg.users[split] if i in pieces):
            pieces[part] = ((0, feature_shape(dfg[part].shape)[0]),)
    return aligned, pieces


def _lanes(
    dfg: Dfg,
    hw: HwSpec,
    joined: Collection[int],
    shifts: Shifts,
    known: list[Lanes],
    node: Node,
) -> Lanes:
    if node.index in joined and node.op == "concat":
        return _concatenated(dfg, hw, shifts, known, node)
    if node.kind is Kind.TUPLE_GET and node.operands[0] in joined:
        return _part(dfg, hw, known, node)
    channels = feature_shape(node.shape)[0]
    plain: Pieces = ((0, channels),)
    own_lanes = Lanes(base=node.index, block=0, pieces=plain, span=channels)
    holed_operands = [(i, pieces) for i in node.operands if (pieces := known[i].pieces) != plain]
    same_channels = [
        pieces for i, pieces in holed_operands if feature_shape(dfg[i].shape)[0] == channels
    ]
    if not same_channels or not keeps_lanes(dfg, hw, node):
        return own_lanes
    pieces = max(same_channels, key=lambda pieces: (len(pieces), extent(pieces)))  # most holes
    return replace(own_lanes, pieces=pieces, span=extent(pieces))


def keeps_lanes(dfg: Dfg, hw: HwSpec, node: Node) -> bool:
    """Whether an operator writes every channel to the lane from which it reads it."""
    if node.kind is not Kind.CALL:
        return False
    if node.is_virtual:
        return same_storage(dfg[node.operands[0]].shape, node.shape)
    return node.op in KEEPS_LANES or (
        node.op in {"conv", "transposed_conv"} and hw.array.depthwise and is_depthwise(dfg, node)
    )


def _readers_of_constants(dfg: Dfg, hw: HwSpec) -> dict[int, int]:
    """Constant maps that a single operator adds to another map, or multiplies it by, with it."""
    readers = {n.index: dfg.users[n.index] for n in dfg.nodes if n.kind is Kind.CONST}
    alone = {index: dfg[users[0]] for index, users in readers.items() if len(users) == 1}
    maps = {i: n for i, n in alone.items() if n.access == (Access.FULL, Access.FULL)}
    return {index: node.index for index, node in maps.items() if keeps_lanes(dfg, hw, node)}


def _concatenated(dfg: Dfg, hw: HwSpec, shifts: Shifts, known: list[Lanes], node: Node) -> Lanes:
    starts = joined_starts(dfg, known, node.index, hw.word_channels, shifts)
    pieces: list[tuple[int, int]] = []
    span = max(block * hw.word_channels + known[base].span for base, block in starts.items())
    for operand in elements(dfg, node.index):
        lanes = known[dfg.base(operand)]
        start_lane = (starts[lanes.base] + lanes.block) * hw.word_channels
        for first, count in lanes.pieces:
            if pieces and sum(pieces[-1]) == start_lane + first:
                count += pieces[-1][1]
                first = pieces.pop()[0] - start_lane
            pieces.append((start_lane + first, count))
    if (own := _consecutive(dfg, hw, known, node)) is not None:
        return own
    return Lanes(base=node.index, block=0, pieces=tuple(pieces), span=span)


def _consecutive(dfg: Dfg, hw: HwSpec, known: list[Lanes], node: Node) -> Lanes | None:
    """Lanes of a concatenation whose operands are parts of one split map that follow each other
    from the beginning of a word on: those that they have there. None for others.
    """
    parts = [(i, known[dfg.base(i)]) for i in elements(dfg, node.index)]
    bases = {lanes.base for _, lanes in parts}
    if len(bases) > 1 or any(dfg[i].kind is not Kind.TUPLE_GET for i, _ in parts):
        return None
    width = hw.word_channels
    lanes = np.concatenate([lanes_of(own.pieces) + own.block * width for _, own in parts])
    if np.any(np.diff(lanes) != 1) or lanes[0] % width:
        return None
    whole: Pieces = ((0, len(lanes)),)
    block = int(lanes[0]) // width
    return Lanes(base=bases.pop(), block=block, pieces=whole, span=len(lanes))


def _part(dfg: Dfg, hw: HwSpec, known: list[Lanes], node: Node) -> Lanes:
    """Lanes of a result of a split: those that its channels have in the operand."""
    split = dfg[node.operands[0]]
    whole = known[dfg.base(split.operands[0])]
    sizes = split.attrs["sizes"]
    first = sum(sizes[: node.attrs["index"]])
    channels = lanes_of(whole.pieces)[first : first + sizes[node.attrs["index"]]]
    block = int(channels.min()) // hw.word_channels
    breaks = np.flatnonzero(np.diff(channels) != 1) + 1
    runs = np.split(channels - block * hw.word_channels, breaks)
    pieces = tuple((int(run[0]), len(run)) for run in runs)
    return Lanes(base=whole.base, block=whole.block + block, pieces=pieces, span=extent(pieces))
