"""Units of fused heads (`tile_schedule/fused_heads.py`) from the units of an attention."""

from collections.abc import Sequence
from itertools import chain

from msgspec.structs import replace

from opu_fuse.hw.isa.table import REGISTER, Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.schedule.emitted_units import PlannedUnit, PlannedUnits
from opu_fuse.schedule.tile_choice import PlannedLayer
from opu_fuse.tile_schedule.fused_heads import FusedHeads, feature_regions, head_slots
from opu_fuse.tile_schedule.residency import first_blocks
from opu_fuse.tile_schedule.tiled_layer import psum_words
from opu_fuse.tiling.shared_banks import product_tile, tile_beside
from opu_fuse.tiling.tile import Tile

_CHUNKS = 8, 4
"""Chunks of values for which keys that stay leave room. Behind a slow memory more wait less."""

_PITCH = min(REGISTER[Engine.POST, f"keep_{of}_pitch"].highest for of in ("row", "block"))


def fused_heads(
    heads: Sequence[tuple[PlannedUnit, PlannedUnit]], turned: PlannedUnits, own: Tile, hw: HwSpec
) -> PlannedUnit | None:
    """The unit of some heads, (scores, product) each, with scores in tiles of a size; None where
    the probabilities cannot stay on chip. turned: transposes of the values of the last heads.
    """
    if not hw.post.keep or own.images * own.rows * own.cols > _PITCH:
        return None
    layers: list[PlannedLayer] = []
    for scores, product in heads:
        norm, values = scores.layers[0].with_tile(own, hw), product.layers[0]
        tile = product_tile(values.shape, own, hw) if _passes_tiles(norm, values) else None
        if tile is None:
            return None
        layers += [norm, _streamed(norm, values.with_tile(tile, hw), hw)]
    if not all(len(layer.ranges) == len(layer.ranges[0].features) == 1 for layer in layers):
        return None
    pairs = [*zip(layers[::2], layers[1::2], strict=True)]
    if any(len(norm.tiles) != len(product.tiles) for norm, product in pairs):
        return None
    largest = max(pairs, key=lambda pair: sum(psum_words(x, x.tiles[0]) for x in pair))
    fixed = tuple([(layer.shape, layer.tile) for layer in largest])
    for layer in (unit.layers[0] for unit in turned):
        tile = tile_beside(fixed, layer.shape, hw)
        if tile is None:
            return None
        layers.append(layer.with_tile(tile, hw))
    if not _fits(layers, len(heads), hw):
        return None
    groups = tuple(unit.groups[0] for unit in (*chain.from_iterable(heads), *turned))
    return PlannedUnit(layers=tuple(layers), heads=FusedHeads(count=len(heads)), groups=groups)


def _streamed(norm: PlannedLayer, values: PlannedLayer, hw: HwSpec) -> PlannedLayer:
    """The product, whose weights are loaded for each tile in small chunks if keys and values exceed
    the weight buffer and the keys leave room for some: these then stay, and are loaded once.
    """
    keys, own = (sum(chunk.words for chunk in x.weight_chunks) for x in (norm, values))
    left = hw.buffers.weight.words - keys
    if own <= left or norm.shape.images > 1:
        return values
    for count in _CHUNKS[not hw.dram.is_slow :]:
        rows = max(left // count // hw.mode_row_words(hw.array.modes[values.tile.mode]), 1)
        cut = values.with_tile(replace(values.tile, weight_rows=rows), hw)
        if all(chunk.words * count <= left for chunk in cut.weight_chunks):
            return cut
    return values


def _fits(layers: Sequence[PlannedLayer], count: int, hw: HwSpec) -> bool:
    """Whether the feature buffer holds probabilities and queries, and banks all partial sums."""
    regions = feature_regions(layers, count, hw)
    if regions is None:
        return False
    slots = (slot.tiles for slot in head_slots(layers, count, regions))
    words = (sum(psum_words(each.layer, each.tile) for each in tiles) for tiles in slots)
    return max(words) <= hw.buffers.psum.bank_words


def _passes_tiles(norm: PlannedLayer, values: PlannedLayer) -> bool:
    """Whether only a product reads the result of a norm, each pixel for one of its own."""
    shape, one = values.shape, (1, 1)
    windows = shape.window.kernel == shape.window.strides == one and not shape.pool
    pixels = norm.shape.stored_px == shape.px == shape.column == 1 and shape.upsample == one
    return windows and pixels and norm.readers == 1 and first_blocks([norm], values.reads) == [0]
