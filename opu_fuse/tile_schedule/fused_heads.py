"""Fused heads: the probabilities of an attention stay on chip between softmax and product.

The heads of an attention run as one sequence of steps, over heads and tiles of queries. A bank of
partial sums has the scores of one step and the product of probabilities and values of two steps
before, so that the array need not wait for post:

    array │ scores 0 │ scores 1 │ scores 2, product 0 │ scores 3, product 1 │ …
    post             │ softmax 0│ softmax 1           │ product 0, softmax 2│ …

Heads of windows that share words run tile by tile: they read the same queries, loaded once.

Post writes each tile of probabilities into one of two places at the start of the feature buffer, as
a load of this part of the map would. The words after them are the banks of the queries. Where one
bank of the buffer has room for both, the input of the next layer is loaded into the others.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, product, zip_longest
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.tile_schedule.input_region import parts
from opu_fuse.tile_schedule.line_buffers import kept_at
from opu_fuse.tile_schedule.scratchpad import Banks
from opu_fuse.tile_schedule.tiled_layer import LayerTile, TiledLayer, psum_words
from opu_fuse.tiling.tile import Rect, Span

LAG = 2
"""Steps from the scores of a tile to its product: one for the array, one for post."""
_QUERY_BANKS = 3, 2
"""Banks for tiles of queries: of the step that runs, and of those that are loaded meanwhile."""


class FusedHeads(Struct, frozen=True, kw_only=True):
    """What a unit of fused heads is, beyond its layers: scores and product of each head in turn,
    then transposes of the values of the last heads.

    count: of heads;
    stored: whether the probabilities are written to DRAM as well.
    """

    count: int
    stored: bool = False


class ResidentTile(Struct, frozen=True, kw_only=True):
    """A tile of a map in the feature buffer, from word `bank` on: block by block, row by row.

    rect: its rows and columns, a word each.
    """

    bank: int
    rect: Rect

    def registers(self, block: int, row: int, word: int) -> dict[str, int]:
        """Registers of `post` that write results there, from a channel block, row and word on."""
        top, rows, left, cols = self.rect
        at = self.bank + (block * rows + row - top) * cols + word - left
        return kept_at(at, cols, rows * cols)


Layer = TypeVar("Layer", bound=TiledLayer)


class HeadTile(NamedTuple, Generic[Layer]):
    """Scores, product, or transposed values of a step.

    source, to: where the probabilities are that a product reads, and that scores write;
    word: first word of its partial sums in their bank.
    """

    layer: Layer
    tile: LayerTile
    source: ResidentTile | None = None
    to: ResidentTile | None = None
    word: int = 0


class HeadSlot(NamedTuple, Generic[Layer]):
    """A bank of partial sums.

    tiles: the scores of a step, the product of an earlier one, transposed values of a later one;
    next: those of the slot after it, whose weights are loaded before its post;
    queries: scores of later steps, whose queries are loaded before its post;
    pending: of the slot with the last scores, the layers with products in later slots.
    """

    tiles: Sequence[HeadTile[Layer]]
    next: Sequence[HeadTile[Layer]]
    queries: Sequence[HeadTile[Layer]]
    pending: Sequence[Layer]

    @property
    def features(self) -> Sequence[HeadTile[Layer]]:
        """Tiles whose features are loaded before its post: transposes of the next slot, queries."""
        return *(each for each in self.next if each.layer.shape.unit), *self.queries


def scores_in(tiles: Sequence[HeadTile[Layer]]) -> Iterator[Layer]:
    """The layers of tiles that compute scores."""
    return (each.layer for each in tiles if each.to)


class FeatureRegions(NamedTuple):
    """How fused heads divide the feature buffer, or one of its banks: banks of queries, and first
    words of the places of probabilities. ahead: steps before its own at which a tile of queries is
    loaded; words: those that they divide.
    """

    banks: Banks
    places: Sequence[int]
    ahead: int
    words: int

    def at(self, first: int) -> "FeatureRegions":
        """These from another first word on."""
        words, banks = self.banks.words, len(self.banks.held)
        moved = Banks(words=words, banks=banks, first=self.banks.first + first)
        return self._replace(banks=moved, places=tuple([first + place for place in self.places]))


def feature_regions(layers: Sequence[TiledLayer], count: int, hw: HwSpec) -> FeatureRegions | None:
    """Divide a bank of the feature buffer, where that has room for all, or the buffer; None where
    it is too small. Of a bank, the next layer's input is loaded into the other ones meanwhile.
    layers, count: as in `FusedHeads`.
    """
    last = 2 * count
    queries = max(map(_words, (*layers[:last:2], *layers[last:])))
    probabilities = max(map(_words, layers[1:last:2]))
    buffer, other = hw.buffers.feature, len(layers) > last  # the unit matrix of transposes
    for banks, words in product(_QUERY_BANKS, (buffer.bank_words, buffer.words)):
        left = words - LAG * probabilities
        if left >= (banks + other) * queries:
            places = tuple(range(0, LAG * probabilities, probabilities))
            rest = Banks(words=left, banks=banks + other, first=words - left)
            return FeatureRegions(rest, places, banks - 1, words)
    return None


def _words(layer: TiledLayer) -> int:
    """Most words of its input that a part has."""
    every = (part for tile in layer.tiles for part in parts(layer, tile))
    return max(part.blocks[1] * part.rows[1] * part.words[1] for part in every)


def head_runs(scores: Sequence[TiledLayer]) -> list[Span]:
    """(first, end) of the heads that run tile by tile, as they share the words of their queries.

    Only those of windows do: the keys of others stay on chip for all tiles of a head.
    """
    runs: list[Span] = []
    for head, layer in enumerate(scores):
        words = layer.words_read
        alike = head > 0 and words is not None and words == scores[head - 1].words_read
        runs.append((runs.pop()[0] if alike else head, head + 1))
    return runs


def head_slots(
    layers: Sequence[Layer], count: int, regions: FeatureRegions
) -> Iterator[HeadSlot[Layer]]:
    """Yield the slots of fused heads. layers, count: as in `FusedHeads`."""
    last, runs = 2 * count, head_runs(layers[: 2 * count : 2])
    heads = [
        [*zip(_tiles(scores), _tiles(values), strict=True)]
        for scores, values in zip(layers[:last:2], layers[1:last:2], strict=True)
    ]
    steps = [
        each
        for run in runs
        for of_tile in zip(*heads[slice(*run)], strict=True)
        for each in of_tile
    ]
    slots: list[list[HeadTile[Layer]]] = [[] for _ in range(len(steps) + LAG)]
    for step, (scores, values) in enumerate(steps):
        place = ResidentTile(bank=regions.places[step % LAG], rect=scores[1].rect)
        slots[step].insert(0, HeadTile(*scores, to=place))
        slots[step + LAG].append(HeadTile(*values, source=place))
    each = len(steps) // count
    places = {n: (run, own) for run, own in pairwise(runs) for n in range(*own)}
    for head, turned in enumerate(layers[last:], count - len(layers[last:])):
        (begin, end), (first, after) = places[head]  # in time for the products of these heads
        heads_at_once, tiles = after - first, _tiles(turned)
        for number, tile in enumerate(tiles):
            place = number * heads_at_once + head - first
            at = each * begin + place * each * (end - begin) // (heads_at_once * len(tiles))
            slots[at].append(HeadTile(*tile))
    placed = [_placed(slot) for slot in slots]
    scored = [slot[0] for slot in placed[: len(steps)]]
    for at, (slot, after) in enumerate(zip_longest(placed, placed[1:], fillvalue=())):
        follow = [each.layer for later in placed[at + 1 :] for each in later]
        pending = (*dict.fromkeys(follow),) if at == len(steps) - 1 else ()
        yield HeadSlot(slot, after, scored[at + 1 : at + 1 + regions.ahead], pending)


def _placed(slot: Sequence[HeadTile[Layer]]) -> Sequence[HeadTile[Layer]]:
    """Tiles with their partial sums one after the other."""
    words = accumulate((psum_words(each.layer, each.tile) for each in slot), initial=0)
    return [each._replace(word=word) for each, word in zip(slot, words, strict=False)]


def _tiles(layer: Layer) -> list[tuple[Layer, LayerTile]]:
    return [(layer, tile) for tile in layer.tiles]
