"""Lanes of the parts of a split map that products of two maps read: queries, keys and values.

Heads narrower than a word need not fill words with zeros in all three. A product of queries and
keys sums over all lanes of a word, so keys have zeros where the queries' word has other heads. A
transposition of values multiplies by a unit matrix, which has zeros, too.

    queries │ head 0, head 1 │ head 2, values of head 0 │ …
    keys    │ head 0, zeros  │ zeros, head 1 │ head 2, zeros │ …
"""

from collections.abc import Collection, Mapping

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.views import readers_of
from opu_fuse.hw.dram_layout import Pieces

_Firsts = dict[tuple[int, int], int]
"""First lane of a part, by split and number."""


def product_lanes(dfg: Dfg, splits: Collection[int], width: int) -> dict[int, Pieces]:
    """Lanes of each split map, by the split: parts begin words, except queries and values that
    share words, and keys in the lanes of their queries. width: lanes of a word.
    """
    results = [(i, dfg[n]) for i in splits for n in dfg.users[i]]
    results = [(i, node) for i, node in results if node.kind is Kind.TUPLE_GET]
    parts = {dfg.base(node.index): (i, node.attrs["index"]) for i, node in results}
    readers = {part: readers_of(dfg, part) for part in parts}
    queries = {part: _others(dfg, part, readers[part], 0) for part in parts}
    keys = {part: _others(dfg, part, readers[part], 1) for part in parts}
    narrow = {p for p, (i, n) in parts.items() if width // dfg[i].attrs["sizes"][n] > 1}
    values = {p for p in narrow if all(r.op == "transpose" for r in readers[p])}
    dense = {p for p in narrow if queries[p]}
    while True:
        shared = {parts[p] for p in dense | values}
        firsts = _firsts(dfg, splits, shared, {}, width)
        lanes = {
            key: {firsts[parts[q]] % width if q in dense else -1 for q in found}
            for key, found in keys.items()
        }
        lost = {q for q in dense if any(len(lanes.get(k, ())) != 1 for k in queries[q])}
        lost |= {q for q in dense if any(-1 in lanes[k] for k in queries[q] if k in lanes)}
        if not lost:
            break
        dense -= lost
    moved = {parts[key]: max(found) for key, found in lanes.items() if found and max(found) > 0}
    firsts = _firsts(dfg, splits, shared, moved, width)
    return {
        split: tuple([(firsts[split, n], size) for n, size in enumerate(dfg[split].attrs["sizes"])])
        for split in splits
    }


def _firsts(
    dfg: Dfg,
    splits: Collection[int],
    shared: Collection[tuple[int, int]],
    moved: Mapping[tuple[int, int], int],
    width: int,
) -> _Firsts:
    """First lanes of all parts. shared: those that share words; moved: first lanes in the word of
    those that do not begin one.
    """
    result: _Firsts = {}
    for split in splits:
        lane, sizes = 0, dfg[split].attrs["sizes"]
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
