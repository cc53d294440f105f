"""Lanes of the parts of a split map that products of two maps read: queries, keys and values.

Heads narrower than a word share words. A product of queries and keys sums over all lanes of a word,
so one of the words has zeros where the other has a second head. A transposition of values
multiplies by a unit matrix, which has zeros.

1. Where loads set lanes of weights to zero, keys share words as their queries do:

    queries │ head 0, head 1 │ head 2, values of head 0 │
    keys    │ head 0, head 1 │ head 2, values of head 1 │ values of head 2 │

2. Elsewhere each key has a word of its own:

    queries │ head 0, head 1 │ head 2, values of head 0 │ …
    keys    │ head 0, zeros  │ zeros, head 1 │ head 2, zeros │ …
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from itertools import groupby

from msgspec import Struct

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.integer import ACCUMULATING
from opu_fuse.dfg.views import feature_shape, readers_of
from opu_fuse.hw.dram_layout import Pieces
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.weight_maps import sets_zeros

_Part = tuple[int, int]
"""A split and the number of one of its results."""

_Firsts = dict[_Part, int]
"""First lane of a part."""


_OF_VALUES = (set[str](), {"transpose"}, {"transpose", "concat"})
"""Operators that read values of a head."""


class Divided(StrEnum):
    """Heads that may be parts of two words. Products with such keys, and transpositions of such
    values, take the cycles of two words.
    """

    NONE = "none"
    VALUES = "values"
    ALL = "all"


class _Heads(Struct, frozen=True, kw_only=True):
    """Parts of split maps by what reads them. Values are DFG indices.

    sizes: channels of all parts of a split; numbers: value -> part;
    queries, keys: value -> the other operands of the products that read it as first, as second
    operand;
    narrow: values of which a word holds several, or where loads set lanes to zero more than one;
    values: those of them that are transposed;
    layer_cycles: of the array for a word and pixel of a split map;
    read_cycles: value -> those for a pixel of a product with it as keys, or of its transposition,
    for each word that it is in.
    """

    sizes: Mapping[int, tuple[int, ...]]
    numbers: Mapping[int, _Part]
    queries: Mapping[int, tuple[int, ...]]
    keys: Mapping[int, tuple[int, ...]]
    narrow: Collection[int]
    values: Collection[int]
    layer_cycles: Mapping[int, int]
    read_cycles: Mapping[int, float]


def product_lanes(dfg: Dfg, splits: Collection[int], hw: HwSpec) -> dict[int, Pieces]:
    """Lanes of each split map, by the split: parts begin words, except values, queries and keys
    that share words.
    """
    heads, width = _heads(dfg, splits, hw), hw.word_channels
    # Case 1, then case 2
    firsts = _shared_keys(heads, width) if sets_zeros(hw) else _padded_keys(heads, width)
    return {
        split: tuple([(firsts[split, n], size) for n, size in enumerate(sizes)])
        for split, sizes in heads.sizes.items()
    }


def _heads(dfg: Dfg, splits: Collection[int], hw: HwSpec) -> _Heads:
    width, outputs = hw.word_channels, max(1, hw.macs // hw.word_channels)
    results = [(i, dfg[n]) for i in splits for n in dfg.users[i]]
    results = [(i, node) for i, node in results if node.kind is Kind.TUPLE_GET]
    numbers = {dfg.base(node.index): (i, node.attrs["index"]) for i, node in results}
    sizes = {i: tuple(dfg[i].attrs["sizes"]) for i in splits}
    readers = {part: readers_of(dfg, part) for part in numbers}
    most = width - 1 if sets_zeros(hw) else width // 2
    narrow = {p for p, (i, n) in numbers.items() if sizes[i][n] <= most}
    values = {p for p in narrow if {r.op for r in readers[p]} in _OF_VALUES}
    keys = {part: _others(dfg, part, readers[part], 1) for part in numbers}
    groups = {p: -(-feature_shape(dfg[p].shape)[2] // outputs) for p in numbers}
    inner = {i: _summed(dfg, dfg[i].operands[0]) for i in splits}
    return _Heads(
        sizes=sizes,
        numbers=numbers,
        queries={part: _others(dfg, part, readers[part], 0) for part in numbers},
        keys=keys,
        narrow=narrow,
        values=values,
        layer_cycles={i: -(-n // width) * (width // outputs) for i, n in inner.items()},
        read_cycles={
            **{p: float(groups[p]) for p in numbers if keys[p]},
            **{p: feature_shape(dfg[p].shape)[0] / outputs for p in values},
        },
    )


def _summed(dfg: Dfg, value: int) -> int:
    """Channels that the array sums for a value; its own if no layer computes it."""
    node = dfg[dfg.base(value)]
    while node.kind is Kind.CALL and node.op not in ACCUMULATING:
        node = dfg[dfg.base(node.operands[0])]
    return feature_shape(dfg[node.operands[0]].shape if node.operands else node.shape)[0]


def _shared_keys(heads: _Heads, width: int) -> _Firsts:
    """First lanes of all parts, where keys share words as their queries do. Heads are parts of two
    words where the array then takes fewer cycles.
    """
    result: _Firsts = {}
    for splits in _related(heads):
        packed = [_packed(heads, splits, width, divided) for divided in Divided]
        result |= min(packed, key=lambda firsts: _cycles(heads, firsts, width))
    return result


def _pairs(heads: _Heads) -> list[tuple[_Part, _Part]]:
    """Queries that have a key of their own, and these keys."""
    pairs = [(q, heads.queries[q][0]) for q in heads.narrow if heads.queries[q]]
    pairs = [(q, k) for q, k in pairs if heads.queries[q] == (k,) and heads.keys.get(k) == (q,)]
    return sorted((heads.numbers[q], heads.numbers[k]) for q, k in pairs)


def _related(heads: _Heads) -> list[list[int]]:
    """The splits, those together whose queries and keys have the same lanes."""
    root = {split: split for split in heads.sizes}
    for (a, _), (b, _) in _pairs(heads):
        old, new = root[a], root[b]
        root = {split: new if r == old else r for split, r in root.items()}
    related: dict[int, list[int]] = {}
    for split, r in root.items():
        related.setdefault(r, []).append(split)
    return [*related.values()]


def _packed(heads: _Heads, splits: Sequence[int], width: int, divided: Divided) -> _Firsts:
    """First lanes of the parts of some splits: queries, keys, and values in the lanes that are
    left. All others begin words.
    """
    runs = _runs(heads, width, divided)
    result: _Firsts = {}
    values = {heads.numbers[v] for v in heads.values}
    for split in splits:
        ends: list[int] = []  # of each word the lanes used
        sizes = {(split, n): size for n, size in enumerate(heads.sizes[split])}
        for run in runs.get(split, ()):
            result |= {part: len(ends) * width + lane for part, lane in run.items()}
            _use(ends, len(ends), max(lane + sizes[part] for part, lane in run.items()), width)
        for part in sorted(sizes.keys() - result.keys(), key=lambda p: (p not in values, p)):
            at, size = len(ends), sizes[part]
            if part in values:
                at = next((i for i, end in enumerate(ends) if end + size <= width), at)
                at -= divided is Divided.ALL and at == len(ends) > 0
            first = ends[at] if at < len(ends) else 0
            result[part] = at * width + first
            _use(ends, at, first + size if part in values else _word(size, width), width)
    return result


def _use(ends: list[int], at: int, lanes: int, width: int) -> None:
    """Use lanes up to one that is counted from the beginning of a word."""
    words = -(-lanes // width)
    ends[at:] = [*[width] * (words - 1), lanes - (words - 1) * width, *ends[at + words :]]


def _runs(heads: _Heads, width: int, divided: Divided) -> dict[int, list[dict[_Part, int]]]:
    """By split, parts that share words, with their lanes counted from the first of these words: the
    queries of pairs, and the keys; also values that are divided between words, one after each query
    and key but the last.
    """
    runs: dict[int, list[dict[_Part, int]]] = {}
    left = sorted(heads.numbers[v] for v in heads.values) if divided is Divided.VALUES else []
    for splits, pairs in groupby(_pairs(heads), key=lambda pair: (pair[0][0], pair[1][0])):
        lane, end = 0, 0
        queries: dict[_Part, int] = {}
        keys: dict[_Part, int] = {}
        for query, key in pairs:
            for split, run in zip(splits, (queries, keys), strict=True):
                value = next((v for v in left if v[0] == split and run), None)
                if value is not None:
                    left.remove(value)
                    run[value] = lane
                    end = max(end, lane + heads.sizes[split][value[1]])
            size, lane = heads.sizes[query[0]][query[1]], end
            if lane % width + size > width and divided is not Divided.ALL:
                lane = _word(lane, width)
            queries[query] = keys[key] = lane
            lane = end = lane + size
        for split, run in zip(splits, (queries, keys), strict=True):
            runs.setdefault(split, []).append(run)
    return runs


def _cycles(heads: _Heads, firsts: _Firsts, width: int) -> float:
    """Cycles of the array for a pixel: of the layers before the splits, of products with keys, and
    of transpositions.
    """
    sizes = {part: heads.sizes[part[0]][part[1]] for part in firsts}
    ends = {split: 0 for split, _ in firsts}
    for part, first in firsts.items():
        ends[part[0]] = max(ends[part[0]], first + sizes[part])
    layers = sum(-(-end // width) * heads.layer_cycles[split] for split, end in ends.items())
    heads_too = 0.0
    for value, cycles in heads.read_cycles.items():
        part = heads.numbers[value]
        if part in firsts:
            heads_too += cycles * ((firsts[part] % width + sizes[part] - 1) // width + 1)
    return layers + heads_too


def _padded_keys(heads: _Heads, width: int) -> _Firsts:
    """First lanes of all parts, where keys have zeros in the lanes of other queries."""
    dense = {p for p in heads.narrow if heads.queries[p]}
    while True:
        shared = {heads.numbers[p] for p in dense | {*heads.values}}
        firsts = _firsts(heads.sizes, shared, {}, width)
        lanes = {
            key: {firsts[heads.numbers[q]] % width if q in dense else -1 for q in found}
            for key, found in heads.keys.items()
        }
        lost = {q for q in dense if any(len(lanes.get(k, ())) != 1 for k in heads.queries[q])}
        lost |= {q for q in dense if any(-1 in lanes[k] for k in heads.queries[q] if k in lanes)}
        if not lost:
            break
        dense -= lost
    found = {heads.numbers[key]: found for key, found in lanes.items()}
    moved = {part: max(lane) for part, lane in found.items() if lane and max(lane) > 0}
    return _firsts(heads.sizes, shared, moved, width)


def _firsts(
    sizes_of: Mapping[int, tuple[int, ...]],
    shared: Collection[_Part],
    moved: Mapping[_Part, int],
    width: int,
) -> _Firsts:
    """First lanes of all parts. shared: those that share words; moved: first lanes in the word of
    those that do not begin one.
    """
    result: _Firsts = {}
    for split, sizes in sizes_of.items():
        lane = 0
        together = [n for n in range(len(sizes)) if (split, n) in shared]
        for n in together:
            if lane % width + sizes[n] > width:
                lane = _word(lane, width)
            result[split, n] = lane
            lane += sizes[n]
        for n in (n for n in range(len(sizes)) if n not in together):
            result[split, n] = _word(lane, width) + moved.get((split, n), 0)
            lane = result[split, n] + sizes[n]
    return result


def _word(lane: int, width: int) -> int:
    """The first word that begins at a lane or after it."""
    return -(-lane // width) * width


def _others(dfg: Dfg, part: int, readers: Collection[Node], at: int) -> tuple[int, ...]:
    """The other operands of products that read a part as operand `at`; () if something else reads
    it.
    """
    pairs = [tuple(map(dfg.base, r.operands)) for r in readers if r.op == "matmul"]
    alike = len(pairs) == len(readers) and all(
        pair[at] == part and pair[1 - at] != part for pair in pairs
    )
    return tuple([pair[1 - at] for pair in pairs]) if alike else ()
