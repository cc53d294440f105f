"""Weights that stay on chip though the buffer holds not all that each tile of a layer uses.

Every tile uses the same chunks in the same order. An LRU buffer that is slightly too small evicts
each chunk before its next use, so that all are loaded for every tile. If most chunks stay, only the
others are. These take one place, while the array uses chunks that stay in between.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import Buffer, HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.tiling.estimate import weight_rows
from opu_fuse.tiling.tile import Tile, input_blocks, output_blocks

_MOST = 1.5
"""Weights of such a layer, by the size of the buffer."""

_PLACES = 4
"""Chunks that a bank holds."""


def kept_chunks(words: Sequence[int], buffer: Buffer) -> list[int]:
    """The chunks of these sizes that stay, spread over all; none if all fit or too few would."""
    total, count = sum(words), len(words)
    if not buffer.words < total <= _MOST * buffer.words:
        return []
    stay = buffer.banks * (buffer.bank_words // max(words)) - 1
    if count > 2 * stay:
        return []
    loaded = {(2 * n + 1) * count // (2 * (count - stay)) for n in range(count - stay)}
    return [n for n in range(count) if n not in loaded]


def with_kept_weights(shape: Shape, tile: Tile, hw: HwSpec) -> Tile | None:
    """The tile in chunks so small that most weights stay; None where all fit, or too few."""
    several = tile.count(shape) > 1 and not (tile.weights_outer or tile.undivided)
    if not shape.array or shape.depthwise or shape.computed or not several:
        return None
    mode, blocks = hw.array.modes[tile.mode], output_blocks(shape, hw)
    rows = weight_rows(shape, mode, hw, input_blocks(shape, hw.word_channels, 0, blocks), blocks)
    words = hw.mode_row_words(mode)
    each = hw.buffers.weight.bank_words // words // _PLACES
    if not each or not kept_chunks([each * words] * -(-rows // each), hw.buffers.weight):
        return None
    return replace(tile, weight_rows=each)
