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

from collections.abc import Collection, Hashable, Iterable, Mapping

from msgspec import Struct

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.views import readers_of
from opu_fuse.hw.dram_layout import Pieces
from opu_fuse.hw.spec.hw_spec import HwSpec

_Part = tuple[int, int]
"""A split and the number of one of its results."""

_Firsts = dict[_Part, int]
"""First lane of a part."""


class _Heads(Struct, frozen=True, kw_only=True):
    """Parts of split maps by what reads them. Values are DFG indices.

    sizes: channels of all parts of a split; numbers: value -> part;
    queries, keys: value -> the other operands of the products that read it as first, as second
    operand;
    narrow: values of which a word holds several; values: those of them that are transposed.
    """

    sizes: Mapping[int, tuple[int, ...]]
    numbers: Mapping[int, _Part]
    queries: Mapping[int, tuple[int, ...]]
    keys: Mapping[int, tuple[int, ...]]
    narrow: Collection[int]
    values: Collection[int]


def product_lanes(dfg: Dfg, splits: Collection[int], hw: HwSpec) -> dict[int, Pieces]:
    """Lanes of each split map, by the split: parts begin words, except values, queries and keys
    that share words.
    """
    heads, width = _heads(dfg, splits, hw.word_channels), hw.word_channels
    # Case 1, then case 2
    firsts = _shared_keys(heads, width) if hw.zeroes_lanes else _padded_keys(heads, width)
    return {
        split: tuple([(firsts[split, n], size) for n, size in enumerate(sizes)])
        for split, sizes in heads.sizes.items()
    }


def _heads(dfg: Dfg, splits: Collection[int], width: int) -> _Heads:
    results = [(i, dfg[n]) for i in splits for n in dfg.users[i]]
    results = [(i, node) for i, node in results if node.kind is Kind.TUPLE_GET]
    numbers = {dfg.base(node.index): (i, node.attrs["index"]) for i, node in results}
    sizes = {i: tuple(dfg[i].attrs["sizes"]) for i in splits}
    readers = {part: readers_of(dfg, part) for part in numbers}
    narrow = {p for p, (i, n) in numbers.items() if width // sizes[i][n] > 1}
    return _Heads(
        sizes=sizes,
        numbers=numbers,
        queries={part: _others(dfg, part, readers[part], 0) for part in numbers},
        keys={part: _others(dfg, part, readers[part], 1) for part in numbers},
        narrow=narrow,
        values={p for p in narrow if all(r.op == "transpose" for r in readers[p])},
    )


def _shared_keys(heads: _Heads, width: int) -> _Firsts:
    """First lanes of all parts, where keys share words as their queries do. Values fill words.

    That takes queries with a key of their own. All other parts begin words.
    """
    paired, values = _pairs(heads, width), {heads.numbers[v] for v in heads.values}
    result: _Firsts = {}
    for split, sizes in heads.sizes.items():
        ends: list[int] = []  # of each word the lanes used
        words: dict[Hashable, int] = {}
        numbers = range(len(sizes))
        for n in sorted(
            numbers, key=lambda n: ((split, n) not in paired, (split, n) not in values)
        ):
            part, size = (split, n), sizes[n]
            at, first = len(ends), 0
            if part in paired:
                word, first = paired[part]
                at = words.setdefault(word, at)
            elif part in values:
                at = next((i for i, end in enumerate(ends) if end + size <= width), at)
                first = ends[at] if at < len(ends) else 0
            ends += [width] * (at + -(-size // width) - len(ends))
            if part in paired or part in values:
                ends[at] = first + size
            result[part] = at * width + first
    return result


def _pairs(heads: _Heads, width: int) -> dict[_Part, tuple[Hashable, int]]:
    """The word of each query that has a key of its own, and of that key, and their lane in it."""
    pairs = [(q, heads.queries[q][0]) for q in heads.narrow if heads.queries[q]]
    pairs = [(q, k) for q, k in pairs if heads.queries[q] == (k,) and heads.keys.get(k) == (q,)]
    result: dict[_Part, tuple[Hashable, int]] = {}
    lane, word, splits = 0, 0, None
    for query, key in sorted((heads.numbers[q], heads.numbers[k]) for q, k in pairs):
        size = heads.sizes[query[0]][query[1]]
        if splits != (query[0], key[0]) or lane + size > width:
            lane, word, splits = 0, word + 1, (query[0], key[0])
        result |= {query: ((word, "query"), lane), key: ((word, "key"), lane)}
        lane += size
    return result


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


def _others(dfg: Dfg, part: int, readers: Iterable[Node], at: int) -> tuple[int, ...]:
    """The other operands of products that read a part as operand `at`; () if something else reads
    it.
    """
    readers = [*readers]
    pairs = [tuple(map(dfg.base, r.operands)) for r in readers if r.op == "matmul"]
    alike = len(pairs) == len(readers) and all(
        pair[at] == part and pair[1 - at] != part for pair in pairs
    )
    return tuple([pair[1 - at] for pair in pairs]) if alike else ()
