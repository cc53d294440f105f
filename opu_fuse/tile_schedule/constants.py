"""Constants, and maps that are weights or gates, in scratchpads: loaded unless they are held."""

from collections.abc import Collection, Hashable, Iterable
from copy import copy
from itertools import product
from typing import Generic, TypeVar

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.pixel_packing import UNIT
from opu_fuse.tile_schedule.scratchpad import scratchpads
from opu_fuse.tile_schedule.sink import Read, TileSink
from opu_fuse.tile_schedule.tiled_layer import LayerTile, TiledLayer, own_images
from opu_fuse.tiling.chunks import WeightChunk
from opu_fuse.tiling.kept_weights import kept_chunks
from opu_fuse.tiling.tile import Span
from opu_fuse.units.base import Space

Layer = TypeVar("Layer", bound=TiledLayer)


class ConstantLoads(Generic[Layer, Read]):
    """Loads constants of layers. Invariant: scratchpads hold what the buffers will hold."""

    def __init__(self, hw: HwSpec, sink: TileSink[Layer, Read]) -> None:
        self._word, self.sink = hw.word_bytes, sink
        self._weights = hw.buffers.weight
        self._kept: Collection[Hashable] = ()
        self._is_slow = hw.dram.is_slow
        self.scratchpads = scratchpads(hw)

    def fork(self, sink: TileSink[Layer, Read]) -> "ConstantLoads[Layer, Read]":
        """A copy that goes its own way, with a sink of its own."""
        result = copy(self)
        result.sink = sink
        result.scratchpads = {space: pad.fork() for space, pad in self.scratchpads.items()}
        return result

    def load(self, layer: Layer, space: Space, offset: int, words: int) -> Span:
        """Words of a buffer that hold constants, loaded unless they are resident."""
        key = _constants_key(layer, space, offset, words)
        if space is Space.WEIGHT and self._kept:
            self.scratchpads[space].touch(self._kept)
        first, held = self.scratchpads[space].take(key, words)
        if not held:
            self.sink.load_constants(layer, space, offset, (first, words))
        return first, words

    def weights(self, layer: Layer, part: WeightChunk, image: int) -> Span:
        """Words of the weight buffer that hold a part. image: whose map they are, if they are."""
        if layer.second is None:
            return self.load(layer, Space.WEIGHT, part.offset, part.words)
        key = _map_key(layer), image, part.offset, part.words
        self.scratchpads[Space.WEIGHT].touch(self._kept)
        first, held = self.scratchpads[Space.WEIGHT].take(key, part.words)
        if not held:
            self.sink.load_weights(layer, part, image, (first, part.words))
        return first, part.words

    def weight_keys(self, layer: Layer) -> set[Hashable]:
        """Keys of a layer's weights."""
        parts = [*layer.weight_chunks]
        if layer.second is None:
            return {_constants_key(layer, Space.WEIGHT, p.offset, p.words) for p in parts}
        images = range(layer.shape.images)
        return {(_map_key(layer), i, p.offset, p.words) for i in images for p in parts}

    def prefetch(self, own: Collection[Hashable], successor: Layer) -> None:
        """Load the first weights of the next layer, if that evicts none of this one's (`own`)."""
        first, weights = next(successor.weight_chunks, None), self.scratchpads[Space.WEIGHT]
        if successor.second is not None:
            return  # this layer may compute them
        grid = weights.grid
        self._kept_of(successor)
        if first is not None and weights.fits_without_evicting(own, first.words):
            self.weights(successor, first, 0)
        weights.grid = grid

    def keep(self, layers: Iterable[Layer]) -> None:
        """Let the weights of layers stay while those of others are loaded, if there is room."""
        self._kept = tuple([key for layer in layers for key in self.weight_keys(layer)])

    def keep_most(self, layer: Layer) -> None:
        """Let most weights of a layer stay that every tile uses (`tiling/kept_weights.py`)."""
        self._kept = self._kept_of(layer)

    def _kept_of(self, layer: Layer) -> tuple[Hashable, ...]:
        """Keys of the weights of a layer that stay. The chunks get places of their size."""
        pad = self.scratchpads.get(Space.WEIGHT)
        if pad is None or not self._is_slow:
            return ()
        pad.grid = 1
        if layer.tile.weights_outer or layer.second is not None or len(layer.tiles) == 1:
            return ()
        if layer.weight_words <= self._weights.words:
            return ()
        parts = [*layer.weight_chunks]
        stays = kept_chunks([part.words for part in parts], self._weights)
        if stays:
            pad.grid = max(part.words for part in parts)
        kept = ((parts[n].offset, parts[n].words) for n in stays)
        return tuple([_constants_key(layer, Space.WEIGHT, *part) for part in kept])

    def prefetch_tiles(self, tiles: Iterable[tuple[Layer, LayerTile]]) -> None:
        """Load the weights of tiles, as many as a bank holds, or all next to those that stay."""
        left = self._weights.words if self._kept else self._weights.bank_words
        for layer, tile in tiles:
            for part, (_, image) in product(layer.weight_chunks, own_images(layer, tile)):
                left -= part.words
                if left >= 0:
                    self.weights(layer, part, image)

    def gates(self, layer: Layer, blocks: Span, images: Span) -> Span:
        """Parameters of the units before the array, or gates, of channel blocks."""
        words = layer.shape.pre_words * blocks[1]
        if layer.gate is None:
            offset = layer.shape.pre_words * blocks[0] * self._word
            return self.load(layer, Space.PRE, offset, words)
        words *= images[1]
        first, held = self.scratchpads[Space.PRE].take((layer.gate, blocks, images), words)
        if not held:
            self.sink.load_gate(layer, blocks, images, (first, words))
        return first, words


def _map_key(layer: TiledLayer) -> Hashable:
    """What identifies a map on chip that is read as weights: turned layers, which differ in their
    constants, use the same one, and transposes of parts that share words.
    """
    if layer.source < UNIT:
        return layer.second, layer.tile
    second = layer.reads_second
    if layer.source > UNIT or second is None:
        return layer.output
    pixels = layer.shape.first_lane, layer.shape.pre_pool_channels
    return second.alias_root, second.block, pixels, layer.images, layer.tile


def _constants_key(layer: TiledLayer, space: Space, offset: int, words: int) -> Hashable:
    """What identifies constants on chip: layers alike share their exponentials and tables."""
    shared = {Space.NORM: layer.looks_up, Space.TABLE: layer.functions}
    owner = shared.get(space, (layer.output, layer.phase.first))
    return owner, offset, words
