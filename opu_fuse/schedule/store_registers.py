"""Registers of the stores of a tile: the DRAM addresses of its output words."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from opu_fuse.hw.isa.instruction import split_address
from opu_fuse.layout.permutation import Permutation
from opu_fuse.schedule.placement import Placement
from opu_fuse.schedule.registers import transfer_shape
from opu_fuse.schedule.tile_choice import PlannedLayer
from opu_fuse.tiling.tile import Rect, Span, ceil_div


def stores(
    layer: PlannedLayer, to: Placement, base: int, rect: Rect, block: int, blocks: int
) -> Iterator[dict[str, int]]:
    """Registers of the stores of channel blocks block .. block + blocks - 1.

    base: their first word in the output buffer. It is one store, more where the first or last block
    shares its words with a neighbour.
    """
    low, high = to.skips
    last, end = to.layout.blocks - 1, block + blocks
    shared = ((1, low), (last, high))
    cuts = {block, end, *(at for at, skip in shared if skip and block < at < end)}
    words = rect.rows * ceil_div(rect.cols, layer.shape.stored_px)
    for at, after in pairwise(sorted(cuts)):
        skips = low * (at == 0), high * (after == last + 1)
        if layer.shape.permute is None:
            own = at, after - at
            yield _store(layer, to, base + (at - block) * words, rect, own, skips)
            continue
        for own in range(at, after):
            yield from _permuted(
                layer.shape.permute, to, base + (own - block) * words, rect, own, skips
            )


def _store(
    layer: PlannedLayer, to: Placement, src: int, rect: Rect, blocks: Span, skips: tuple[int, int]
) -> dict[str, int]:
    phase, layout = layer.phase, to.layout
    (up_y, up_x), px = layer.shape.upsample, layer.shape.stored_px
    row, rows, col, cols = rect
    image, row = divmod(row, layer.shape.out_rows)
    image_rows = layer.writes.layout.rows // layer.shape.images
    first = layout.word_at(
        blocks[0],
        image * image_rows + row * up_y * phase.stride[0] + phase.first[0],
        col // px * up_x * phase.stride[1] + phase.first[1],
    )
    pitch = phase.stride[0] * layout.row_words
    transfer = (ceil_div(cols, px), rows, pitch, blocks[1], layout.block_words)
    shape = transfer_shape(*transfer, joins=(up_y, up_x) == phase.stride == (1, 1))
    registers = _registers(to.offset + first * layout.word, src, shape, phase.stride[1], skips)
    return registers | {"repeat_rows": up_y - 1, "repeat_cols": up_x - 1}


def _permuted(
    permute: Permutation, to: Placement, src: int, rect: Rect, block: int, skips: tuple[int, int]
) -> Iterator[dict[str, int]]:
    """The stores of a channel block whose pixels are permuted."""
    layout, first = to.layout, to.layout.word_at(block)
    for source, target, nest in permute.runs(rect):
        (blocks, block_pitch), (rows, row_pitch), (run, step) = *((1, 0),) * (3 - len(nest)), *nest
        shape = transfer_shape(run, rows, row_pitch, blocks, block_pitch, joins=step == 1)
        offset = to.offset + (first + target) * layout.word
        yield _registers(offset, src + source, shape, step, skips)


def _registers(
    offset: int, src: int, shape: Mapping[str, int], step: int = 1, skips: tuple[int, int] = (0, 0)
) -> dict[str, int]:
    """All registers of a store. step: words from one to the next in a run; skips: bytes of the
    first and last word that are not stored.
    """
    return {
        **split_address(offset),
        "src": src,
        **shape,
        "word_gap": step - 1,
        "repeat_rows": 0,
        "repeat_cols": 0,
        "skip_low": skips[0],
        "skip_high": skips[1],
    }


def halo_words(layer: PlannedLayer, rect: Rect, block: int) -> int:
    """First word of the pooling halo that the tile at `rect` reads.

    Every channel block has two rows for halos, which alternate between successive tiles.
    """
    shape, blocks = layer.shape, layer.writes.layout.blocks
    slot = rect.row % shape.out_rows // layer.tile.rows % 2
    return (slot * blocks + block) * shape.out_cols + rect.col


def halo_store(
    layer: PlannedLayer, src: int, rect: Rect, block: int, blocks: int
) -> dict[str, int]:
    """Registers of the store of the pooling halo for the tile below."""
    row, rows, col, cols = rect
    first = halo_words(layer, Rect(row + rows, 1, col, cols), block)
    shape = transfer_shape(cols, 1, 0, blocks, layer.shape.out_cols)
    return _registers(layer.halo + first * layer.writes.layout.word, src, shape)
