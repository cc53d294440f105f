"""Which part of its input map a tile reads, and how compute finds it in the feature buffer."""

from collections.abc import Hashable, Iterator

from msgspec import Struct

from opu_fuse.hw.dram_layout import Layout
from opu_fuse.hw.im2row_window import IMAGE_SLOT
from opu_fuse.layout.shape import Shape
from opu_fuse.tile_schedule.tiled_layer import LayerTile, TiledLayer
from opu_fuse.tiling.chunks import FeatureChunk
from opu_fuse.tiling.tile import PrePoolRect, Span, ceil_div


class Part(Struct, frozen=True, kw_only=True):
    """The part of a map that one load moves; equal parts are reused in their bank.

    source: the map (`TiledLayer.held`), or words that several share (`words_read`);
    blocks, rows, words: channel blocks, rows and words of a row, each (first, count); for im2row
    rows, the words are those of the image.
    """

    source: Hashable
    blocks: Span
    rows: Span
    words: Span


class Window(Struct, frozen=True, kw_only=True):
    """A part of a map and the position in it from which compute reads.

    y, x: row and column in the image of the first pixel read, negative in the padding;
    shape: of the layer that reads;
    above: rows of the map before the image;
    images: images that are read alike, stacked along the rows;
    pixels: pixels of a word;
    pitch: feature words of a row of the part.
    """

    part: Part
    y: int
    x: int
    shape: Shape
    above: int
    images: int
    pixels: int
    pitch: int

    def of_part(self) -> dict[str, int]:
        """Compute registers where the part was loaded alone, its words without gaps."""
        (row, rows), (word, words), px = self.part.rows, self.part.words, self.pixels
        cols, column = self.shape.in_cols, self.shape.column
        return {
            "row_pitch": self.pitch,
            "block_pitch": rows * self.pitch,
            "in_rows": rows // self.images,
            "in_cols": (min(cols, (word + words) * px) - word * px) * column,
            "origin_y": self.above + self.y - row,
            "origin_x": (self.x - word * px) * column,
        }

    def by_rows(self, layout: Layout, pitch: int, first: int, rows: int) -> dict[str, int]:
        """Compute registers where rows of the image, from `first` on, are stored as in the whole
        map: row by row with all its blocks. pitch: words from row to row.
        """
        return {
            "row_pitch": pitch,
            "block_pitch": layout.row_words,
            "in_rows": rows,
            "in_cols": self.shape.in_cols * self.shape.column,
            "origin_y": self.y - first,
            "origin_x": self.x * self.shape.column,
        }


def window(layer: TiledLayer, chunk: FeatureChunk, pre_pool: PrePoolRect) -> Window:
    """The window of some channel blocks that a tile reads, from its pre-pool rectangle; memoised,
    since a layer is scheduled many times, with its neighbours in several tiles.
    """
    key = id(chunk), pre_pool
    known = layer.windows.get(key)
    if known is None:
        known = layer.windows[key] = _window(layer, chunk, pre_pool)
    return known


def _window(layer: TiledLayer, chunk: FeatureChunk, pre_pool: PrePoolRect) -> Window:
    shape, layout = layer.shape, layer.reads.layout
    kernel = shape.window
    image, first = divmod(pre_pool.row, shape.pre_pool_rows)
    images = max(1, pre_pool.rows // shape.pre_pool_rows)
    stacked = 1 if shape.unit else images  # all images read one unit matrix
    above = 0 if shape.unit else image * shape.in_rows
    y0, y1, y = kernel.part_span(
        0, first, pre_pool.rows // images, shape.in_rows, chunk.ky[0], sum(chunk.ky)
    )
    read = (above + y0, y1 - y0) if stacked == 1 else (above, images * shape.in_rows)
    left, right = (kx * layer.cols_per_iteration for kx in (chunk.kx[0], sum(chunk.kx)))
    x0, x1, x = kernel.part_span(
        1, pre_pool.col, pre_pool.cols, shape.in_cols, left, min(right, kernel.kernel[1])
    )
    slot = layout.slot if shape.im2row is None else IMAGE_SLOT
    word = x0 * slot // layout.word
    words = ceil_div(x1 * slot, layout.word) - word
    return Window(
        part=Part(
            source=layer.words_read or layer.held,
            blocks=(chunk.block, chunk.blocks),
            rows=read,
            words=(word, words),
        ),
        y=y + y0,
        x=x + x0,
        shape=shape,
        above=above,
        images=stacked,
        pixels=layout.word // slot,
        pitch=words if shape.im2row is None else shape.im2row.row_words(words),
    )


def late_blocks(before: tuple[TiledLayer, LayerTile] | None, layer: TiledLayer, part: Part) -> Span:
    """Channel blocks of a part of a layer's input whose load must wait for the store of the tile
    before, if there is one.
    """
    last = sum(part.blocks)
    if before is None or before[0].writes.alias_root != layer.reads.alias_root:
        return last, 0
    producer, (out, rect, _) = before
    row, rows = 0, producer.writes.layout.rows  # of permuted pixels: anywhere
    if producer.shape.permute is None:
        up = producer.shape.upsample[0] * producer.phase.stride[0]
        row, rows = rect.row * up, rect.rows * up
    written = producer.writes.block - layer.reads.block + out.block
    first, end = max(written, part.blocks[0]), min(written + out.blocks, last)
    disjoint = row + rows <= part.rows[0] or sum(part.rows) <= row
    return (last, 0) if disjoint or end <= first else (first, end - first)


PREFETCH_DISTANCE = 3
"""Tiles before the end of a layer at which the first weights of its successor are prefetched.

At two tiles or fewer, the prefetch would queue after loads that wait for post.
"""


def blocks_in_time(part: Part, late: Span) -> Iterator[Span]:
    """Channel blocks of a part that need not wait, i.e. all but `late`."""
    for first, end in ((part.blocks[0], late[0]), (sum(late), sum(part.blocks))):
        if first < end:
            yield first, end - first


def parts(layer: TiledLayer, tile: LayerTile) -> Iterator[Part]:
    """The parts of its input that a tile reads, in the order of its schedule."""
    return (window(layer, chunk, tile.pre_pool).part for chunk in tile.out.features)


def count_parts(layer: TiledLayer, most: int) -> int:
    """Different parts of its input that a layer reads, counted up to `most`."""
    results: set[Part] = set()
    for tile in layer.tiles:
        results.update(parts(layer, tile))
        if len(results) >= most:
            return most
    return len(results)


def first_part(
    layer: TiledLayer, tile: LayerTile
) -> tuple[tuple[Span, Span], tuple[Span, Span] | None]:
    """(rows, words of a row) of its input up to the last that its first tile reads, and the rest,
    None where that is all.

    They are whole rows, or words of the only row of tokens.
    """
    first, rows = layer.rows_in
    whole = 0, layer.row_words
    if rows == 1 and layer.shape.im2row is None:
        words = max(sum(part.words) for part in parts(layer, tile))
        rest = words, layer.row_words - words
        return ((first, 1), (0, words)), ((first, 1), rest) if rest[1] else None
    end = max(sum(part.rows) for part in parts(layer, tile))
    rest = end, first + rows - end
    return ((first, end - first), whole), (rest, whole) if rest[1] else None
