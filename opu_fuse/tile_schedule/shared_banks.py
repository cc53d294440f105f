"""Which tiles of a norm and of other layers share a bank of partial sums."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from opu_fuse.tile_schedule.tiled_layer import LayerTile, TiledLayer
from opu_fuse.tiling.shared_banks import due

Layer = TypeVar("Layer", bound=TiledLayer)


def shared_slots(
    layers: Sequence[Layer], bank_words: int
) -> Iterator[list[tuple[Layer, LayerTile, int]]]:
    """Yield the tiles of each bank, with their first words in it: one of the norm, which is the
    last layer, and some of the others. Tiles that are left have banks of their own.
    """
    norm, done = layers[-1], 0
    others = [(layer, tile) for layer in layers[:-1] for tile in layer.tiles]
    for slot, tile in enumerate(norm.tiles, 1):
        together, used = [(norm, tile, 0)], _words(norm, tile)
        for other in others[done : due(slot, len(others), len(norm.tiles))]:
            if used + _words(*other) > bank_words:
                break
            together.append((*other, used))
            used += _words(*other)
        done += len(together) - 1
        yield together
    yield from ([(*other, 0)] for other in others[done:])


def _words(layer: TiledLayer, tile: LayerTile) -> int:
    """Words of partial sums of a tile."""
    return layer.shape.words(tile.pre_pool.rows, tile.pre_pool.cols) * tile.out.blocks
