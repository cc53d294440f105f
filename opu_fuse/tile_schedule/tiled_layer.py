"""A tiled layer: what a tile schedule runs, with what it reads and writes and where that is stored.

No addresses and no integers: those of a program are in `schedule.tiling.PlannedLayer`.
"""

from collections.abc import Hashable, Iterator
from functools import cached_property
from typing import NamedTuple, Self

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.data_layout import Place
from opu_fuse.layout.shape import Shape
from opu_fuse.lowering.polyphase import WHOLE, Phase
from opu_fuse.tiling.chunks import OutputRange, WeightChunk, output_ranges
from opu_fuse.tiling.tile import Rect, Span, Tile, spans, unfold


class Maps(NamedTuple):
    """Where the input of a layer and its output are stored, and how often the map is read in which
    the output is (`residency.count_reads`).
    """

    reads: Place
    writes: Place
    readers: int


class TiledLayer(Struct, frozen=True, kw_only=True, dict=True):
    """A tiled pass of a group.

    source, residuals, gate, second: DFG indices of the maps that it reads (`Geometry`).
    output: DFG index of the map that it computes.
    reads, writes: where source and output are stored.
    readers: how often the map in which the output is stored is read (`residency.count_reads`).
    unfold: kernel columns that a visit covers (`cost.tiles.unfold`).
    phase: the rows and columns of its output that it makes.
    images: (first, how many) of a batch, None: all.
    """

    shape: Shape
    source: int
    residuals: tuple[int, ...]
    output: int
    tile: Tile
    ranges: tuple[OutputRange, ...]
    unfold: int
    reads: Place
    writes: Place
    readers: int
    phase: Phase = WHOLE
    gate: int | None = None
    second: int | None = None
    images: Span | None = None

    @property
    def maps(self) -> Maps:
        """Its input and output."""
        return Maps(self.reads, self.writes, self.readers)

    @property
    def held(self) -> Hashable:
        """What a bank holds that has the whole input: its unfolded rows are not the map."""
        result = self.bank_of(self.source)
        if self.shape.unit:
            return result, self.shape.in_channels
        return result if self.shape.im2row is None else (result, self.shape.im2row)

    def bank_of(self, node: int) -> Hashable:
        """What a bank holds that has all of a map (a DFG index) that is read or made."""
        return node if self.images is None else (node, self.images)

    @property
    def rows_in(self) -> Span:
        """Rows of its input, through all images: the first one, and how many."""
        first, images = self.images or (0, 1)
        rows = self.reads.layout.rows if self.images is None else self.shape.in_rows
        return first * rows, images * rows

    @property
    def row_words(self) -> int:
        """Words of a whole row of the input, those of the image where it is unfolded."""
        im2row = self.shape.im2row
        return self.reads.layout.row_words if im2row is None else im2row.words

    @cached_property
    def tiles(self) -> list[tuple[OutputRange, Rect]]:
        """(output range, rectangle) of each tile, in schedule order."""
        shape, tile = self.shape, self.tile
        first, count = self.images or (0, shape.images)
        rects = [
            Rect((first + image) * shape.out_rows + row, images * rows, col, cols)
            for image, images in spans(count, tile.images)
            for row, rows in spans(shape.out_rows, tile.rows)
            for col, cols in spans(shape.out_cols, tile.cols)
        ]
        if tile.weights_outer:
            return [(out, rect) for out in self.ranges for rect in rects]
        return [(out, rect) for rect in rects for out in self.ranges]

    @property
    def weight_chunks(self) -> Iterator[WeightChunk]:
        """Weight chunks in the order in which a tile uses them."""
        return (part for out in self.ranges for chunk in out.features for part in chunk.weights)

    def with_tile(self, tile: Tile, hw: HwSpec) -> Self:
        """Return the layer with another tile."""
        across = unfold(self.shape, hw.array.modes[tile.mode], hw)
        return replace(self, tile=tile, ranges=output_ranges(self.shape, tile, hw), unfold=across)
