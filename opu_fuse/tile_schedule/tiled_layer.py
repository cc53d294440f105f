"""A tiled layer: the unit of a tile schedule, with the storage of its input and output.

It has no addresses and no quantisation parameters; `schedule.tile_choice.PlannedLayer` adds them.
"""

from collections.abc import Hashable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, Self

from msgspec.structs import replace

from opu_fuse.hw.dram_layout import Layout
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import Storage
from opu_fuse.layout.pixel_packing import Pass
from opu_fuse.lowering.polyphase import WHOLE, Phase
from opu_fuse.tiling.chunks import OutputRange, WeightChunk, output_ranges
from opu_fuse.tiling.tile import (
    PrePoolRect,
    Rect,
    Span,
    Tile,
    ceil_div,
    cols_per_iteration,
    images_of,
    pre_pool_rect,
    spans,
)


class Maps(NamedTuple):
    """The storage of a layer's input and output.

    readers: reads of the allocation that holds the output (`residency.count_reads`);
    reads_second, reads_residuals, reads_gate: storage of the map that the array reads as weights,
    of the residuals, and of the gate, if any;
    alike: rows of the second operand that are equal (`layout/alike_rows.py`).
    """

    reads: Storage
    writes: Storage
    readers: int
    reads_second: Storage | None = None
    reads_residuals: tuple[Storage, ...] = ()
    reads_gate: Storage | None = None
    alike: tuple[int, ...] = ()


class LayerTile(NamedTuple):
    """One tile of a layer: its output range, its final pixels, and the pre-pool ones under them."""

    out: OutputRange
    rect: Rect
    pre_pool: PrePoolRect


class TiledLayer(Pass, frozen=True, kw_only=True, dict=True):
    """A tiled pass of a group.

    tile, ranges: its tile size and output ranges;
    cols_per_iteration: kernel columns per column iteration of compute (`tiling/tile.py`);
    reads, writes, reads_second, reads_residuals, reads_gate: storage of source, output, the map
    that is weights, second operands, and gate (those that it has);
    readers: reads of the allocation that holds the output (`residency.count_reads`);
    phase: the rows and columns of its output that it computes;
    images: (first, count) of the batch's images; None: all.
    alike: rows of the second operand that are equal (`layout/alike_rows.py`);
    partial: whether these are not all ranges; another unit computes the others;
    looks_up, functions: what the exponentials of its norm depend on, and its tables; layers alike
    use the same on chip.
    """

    tile: Tile
    ranges: tuple[OutputRange, ...]
    cols_per_iteration: int
    reads: Storage
    writes: Storage
    readers: int
    phase: Phase = WHOLE
    images: Span | None = None
    partial: bool = False
    looks_up: Hashable = None
    functions: tuple[bytes, ...] = ()
    reads_second: Storage | None = None
    reads_residuals: tuple[Storage, ...] = ()
    reads_gate: Storage | None = None
    alike: tuple[int, ...] = ()

    @property
    def maps(self) -> Maps:
        """The storage of its inputs and output."""
        return Maps._make([getattr(self, name) for name in Maps._fields])

    @property
    def held(self) -> Hashable:
        """Key of a bank that holds the whole input; im2row rows have a key of their own."""
        if self.shape.unit:
            return self.source, self.shape.in_channels, self.shape.in_cols
        result = self.bank_of(self.source, self.reads.layout)
        return result if self.shape.im2row is None else (result, self.shape.im2row)

    def bank_of(self, node: int, layout: Layout) -> Hashable:
        """Key of a bank that holds the whole map `node` (a DFG index) row by row."""
        return node, layout.cols, self.images

    @property
    def words_read(self) -> Hashable:
        """What identifies the words of the queries of windows, which heads may share; else None."""
        if not self.shape.computed or self.shape.images == 1 or self.source < 0:
            return None
        return self.reads.alias_root, self.reads.block, self.reads.layout.blocks, self.images

    @property
    def rows_in(self) -> Span:
        """(first, count) of its input rows, counted over all images; all read one unit matrix."""
        first, images = (0, 1) if self.shape.unit else self.images or (0, 1)
        rows = self.reads.layout.rows if self.images is None else self.shape.in_rows
        return first * rows, images * rows

    @property
    def row_words(self) -> int:
        """Words of a whole input row; for an im2row map, those of the image row."""
        im2row = self.shape.im2row
        return self.reads.layout.row_words if im2row is None else im2row.words

    @cached_property
    def tiles(self) -> list[LayerTile]:
        """Its tiles, in schedule order."""
        shape, tile = self.shape, self.tile
        first, count = self.images or (0, shape.images)
        rects = [
            Rect((first + image) * shape.out_rows + row, images * rows, col, cols)
            for image, images in spans(count, tile.images)
            for row, rows in spans(shape.out_rows, tile.rows)
            for col, cols in spans(shape.out_cols, tile.cols)
        ]
        pairs = [(rect, pre_pool_rect(shape, rect)) for rect in rects]
        # The last ranges one after the other: what reads the first of them need not wait for all.
        if tile.weights_outer or (self.partial and self.ranges[0].block):
            return [LayerTile(out, *pair) for out in self.ranges for pair in pairs]
        return [LayerTile(out, *pair) for pair in pairs for out in self.ranges]

    @cached_property
    def windows(self) -> dict[Hashable, Any]:
        """Memo of `input_region.window`, by one of its feature chunks and a tile's pixels."""
        return {}

    @cached_property
    def at_once(self) -> dict[Hashable, int]:
        """Memo of `blocks_at_once`, by a tile's pixels."""
        return {}

    def words_until(self, rect: Rect) -> int:
        """Leading words of a channel block of the output that are stored with a tile."""
        shape = self.shape
        if shape.permute is None:
            return (rect.row + rect.rows) * shape.upsample[0] * self.writes.layout.row_words
        complete = rect.col + rect.cols == shape.out_cols
        return shape.permute.complete((rect.row + rect.rows * complete) * shape.out_cols)

    def operand_of(self, blocks: Span, rect: Rect) -> Hashable:
        """What a tile's second operand depends on, where it may be that of another tile; else
        None.
        """
        rows = self.alike[rect.row : rect.row + rect.rows]
        return (self.residuals, rows, rect.col, rect.cols, blocks) if rows else None

    @property
    def weight_chunks(self) -> Iterator[WeightChunk]:
        """Weight chunks in the order in which a tile uses them."""
        return (part for out in self.ranges for chunk in out.features for part in chunk.weights)

    @cached_property
    def weight_words(self) -> int:
        """Words of its weight chunks."""
        return sum(part.words for part in self.weight_chunks)

    def with_tile(self, tile: Tile, hw: HwSpec) -> Self:
        """Return the layer with another tile."""
        across = cols_per_iteration(self.shape, hw.array.modes[tile.mode], hw)
        return replace(
            self,
            tile=tile,
            ranges=output_ranges(self.shape, tile, hw),
            cols_per_iteration=across,
            partial=False,
        )

    def split(self, first: int) -> tuple[Self, Self]:
        """The first output ranges, and the others."""
        parts = self.ranges[:first], self.ranges[first:]
        before, after = (replace(self, ranges=part, partial=True) for part in parts)
        return before, after


def psum_words(layer: TiledLayer, tile: LayerTile) -> int:
    """Words of partial sums of a tile."""
    return layer.shape.words(tile.pre_pool.rows, tile.pre_pool.cols) * tile.out.blocks


def own_images(layer: TiledLayer, tile: LayerTile) -> list[tuple[int | None, int]]:
    """Images of a tile that have weights of their own, as numbers in the tile and of the map; one
    entry for all images where they have the same.
    """
    shape = layer.shape
    if not shape.computed:
        return [(None, 0)]
    first = tile.pre_pool.row // shape.pre_pool_rows
    return [(i, first + i) for i in range(images_of(shape, tile.rect.rows))]


def blocks_at_once(layer: TiledLayer, tile: LayerTile, hw: HwSpec) -> int:
    """Channel blocks of a tile that a bank of outputs and one of second operands hold; memoised,
    since nearly all tiles of a layer are alike.
    """
    rect, known = tile.rect, layer.at_once
    key = rect if layer.shape.pool else (rect.rows, rect.cols)
    if key not in known:
        known[key] = _blocks_at_once(layer, tile, hw)
    return known[key]


def _blocks_at_once(layer: TiledLayer, tile: LayerTile, hw: HwSpec) -> int:
    shape, (_, rect, pre_pool) = layer.shape, tile
    buffers = layer.tile.sees(hw).buffers
    cols = ceil_div(rect.cols, shape.stored_px)
    result = buffers.output.bank_words // (rect.rows * cols)
    if shape.sides:
        words = shape.side_words(shape.words(pre_pool.rows, pre_pool.cols), rect.rows * cols)
        result = min(result, buffers.residual.bank_words // sum(words))
    if shape.stores_halo(layer.tile.rows):
        result = min(result, buffers.residual.bank_words // cols)
    return result
