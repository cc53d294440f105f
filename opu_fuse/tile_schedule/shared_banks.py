"""Which tiles of a norm and of other layers share a bank of partial sums."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from opu_fuse.tile_schedule.tiled_layer import LayerTile, TiledLayer, psum_words
from opu_fuse.tiling.shared_banks import due
from opu_fuse.tiling.tile import ceil_div

Layer = TypeVar("Layer", bound=TiledLayer)


def shared_slots(
    layers: Sequence[Layer], bank_words: int
) -> Iterator[list[tuple[Layer, LayerTile, int]]]:
    """Yield the tiles of each bank, with their first words in it: one of a norm, and some of the
    other layers, which precede the norms. Tiles that are left have banks of their own.
    """
    norms = [(layer, tile) for layer in layers if layer.shape.passes for tile in layer.tiles]
    others = [layer for layer in layers if not layer.shape.passes]
    done = [0] * len(others)
    for slot, (norm, tile) in enumerate(norms, 1):
        together, used = [(norm, tile, 0)], psum_words(norm, tile)
        for number, layer in enumerate(others):
            tiles = layer.tiles
            for other in tiles[done[number] : _due(layer, slot, len(norms))]:
                if used + psum_words(layer, other) > bank_words:
                    break
                together.append((layer, other, used))
                used += psum_words(layer, other)
                done[number] += 1
        yield together
    for layer, first in zip(others, done, strict=True):
        together, used = [], 0
        for tile in layer.tiles[first:]:
            if together and (not layer.partial or used + psum_words(layer, tile) > bank_words):
                yield together
                together, used = [], 0
            together.append((layer, tile, used))
            used += psum_words(layer, tile)
        if together:
            yield together


def _due(layer: TiledLayer, slot: int, slots: int) -> int:
    """Tiles of a layer before the end of a slot. What the unit after it waits for comes early:
    further ranges of a layer, and, after the first slot, values that are transposed.
    """
    tiles = len(layer.tiles)
    if layer.partial:
        return ceil_div(slot * (tiles - 1), slots + 1)
    if layer.shape.unit and slots > 1:
        return ceil_div((slot - 1) * tiles, slots - 1)
    return due(slot, tiles, slots)


def alternating(layer: Layer, filler: Layer) -> Iterator[tuple[Layer, LayerTile]]:
    """Yield all tiles of two layers, the filler's spread evenly between the other's."""
    ours, theirs, done = layer.tiles, filler.tiles, 0
    for number, tile in enumerate(ours, 1):
        yield layer, tile
        until = min(ceil_div(number * len(theirs), len(ours) - 1), len(theirs))
        for other in theirs[done:until]:
            yield filler, other
        done = until
