"""Operations of a tile schedule, and the interface that receives them (`TileSink`)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from msgspec import Struct

from opu_fuse.tile_schedule.fused_heads import ResidentTile
from opu_fuse.tile_schedule.fused_stack import FusedStack
from opu_fuse.tile_schedule.input_region import Window
from opu_fuse.tile_schedule.line_buffers import LineBuffer
from opu_fuse.tile_schedule.residency import ResidentMap
from opu_fuse.tile_schedule.slot_lines import LOAD, TimeSlot
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tiling.chunks import FeatureChunk, OutputRange, WeightChunk
from opu_fuse.tiling.im2row import Piece
from opu_fuse.tiling.tile import PrePoolRect, Rect, Span, spans
from opu_fuse.units.base import Space


class FeatureLoad(Struct, frozen=True):
    """Part of a layer's input, to be loaded into the feature buffer.

    bank, word: first word of the bank, `LOAD` of a line buffer, and of the part.
    blocks, rows, words: of the map, each (first, count); words of im2row rows are the image's.
    complete: rows of the map that must be in memory before.
    resident: it becomes part of a whole map in a bank.
    """

    bank: int
    word: int
    blocks: Span
    rows: Span
    words: Span
    complete: int
    resident: bool = False

    @property
    def by_rows(self) -> bool:
        """Whether a row has all its blocks before the next one, as in whole maps."""
        return self.resident or self.bank == LOAD

    def begins_at(self, row: int) -> bool:
        """Whether it is the first load of a whole map whose first row this is."""
        return (self.rows[0], self.blocks[0], self.words[0]) == (row, 0, 0)


def loads_of_rows(layer: TiledLayer, bank: int, rows: Span, words: Span) -> Iterator[FeatureLoad]:
    """Yield loads of words of some rows to their address in the whole map, which a bank holds from
    word `bank` on: whole rows, or words of the only row, which are not next to those of other
    channel blocks.
    """
    layout = layer.reads.layout
    word = bank + (rows[0] - layer.rows_in[0]) * layout.row_words * layout.blocks + words[0]
    whole, end = words[1] == layer.row_words, sum(rows)
    for blocks in [(0, layout.blocks)] if whole else spans(layout.blocks, 1):
        at = word + blocks[0] * layout.row_words
        yield FeatureLoad(bank, at, blocks, rows, words, complete=end, resident=True)


def loads_of_strip(
    layer: TiledLayer, line_buffer: LineBuffer, first: int, rows: int
) -> Iterator[FeatureLoad]:
    """Yield loads of rows of a layer's input to their slots in a line buffer."""
    blocks, words = (0, layer.reads.layout.blocks), (0, layer.row_words)
    for at, count, word in line_buffer.written(first, rows):
        yield FeatureLoad(LOAD, word, blocks, (first + at, count), words, first + rows)


class FeatureSource(Struct, frozen=True):
    """The input that compute reads for the pre-pool rectangle of a tile, and its address.

    bank: first word of a bank, `LOAD` of a line buffer (`line_buffer`).
    window: the part that is read, None where it is in a line buffer.
    resident: the bank has the whole map.
    """

    chunk: FeatureChunk
    pre_pool: PrePoolRect
    images: int
    bank: int
    window: Window | None = None
    line_buffer: LineBuffer | None = None
    resident: bool = False


class ComputeStep(Struct, frozen=True):
    """The computation of one weight chunk for a tile.

    weights, pre: (first, count) of the words in the weight and pre buffers;
    psum: first word of the partial-sum bank;
    image: the image of the tile whose weights these are, None for all images.
    """

    out: OutputRange
    chunk: FeatureChunk
    part: WeightChunk
    weights: Span
    pre: Span | None
    psum: int
    image: int | None = None


class ToBank(Struct, frozen=True):
    """Post also writes the tile to the feature bank at word `bank`, into a resident map."""

    bank: int
    resident: ResidentMap


Destination = ToBank | LineBuffer | ResidentTile | None
"""Feature-buffer target of post, if any: a line buffer, a bank that holds the whole map, or the
place of a tile.
"""


class PostStep(Struct, frozen=True):
    """Channel blocks of a tile that post finishes together.

    tile_block: first channel block of the tile; blocks: (first, count) of those finished.
    statistics: blocks of the tile of which passes compute statistics before, 0 for none.
    psum, output: first word of the bank of each.
    constants: words of the parameters, tables and exponentials that it reads, by buffer.
    residual, halo: first word of the banks with the second operands, and with the pooling halo of
    the tile above.
    """

    tile_block: int
    blocks: Span
    statistics: int
    rect: Rect
    pre_pool: PrePoolRect
    psum: int
    output: int
    constants: Mapping[Space, Span]
    residual: int | None
    halo: int | None
    to: Destination


Layer_contra = TypeVar("Layer_contra", bound=TiledLayer, contravariant=True)
Read = TypeVar("Read")


class TileSink(Protocol[Layer_contra, Read]):
    """Receives the operations of a schedule in program order. Nothing that it returns decides what
    comes next: `Read` is its own note of what the compute operations of a feature chunk read.
    """

    def stack(self, stack: FusedStack) -> None:
        """The following slots are those of a fused stack."""

    def slot(self, slot: TimeSlot | None) -> None:
        """The following operations are those of a slot; None: the stack is done."""

    def change_banks(self, spaces: Iterable[Space], words: Span | None = None) -> None:
        """From here on the banks of these buffers are others; they hold nothing. words: those that
        change; None: all.
        """

    def load_features(self, layer: Layer_contra, load: FeatureLoad) -> None:
        """From memory into the feature buffer."""

    def im2row(self, layer: Layer_contra, load: FeatureLoad, piece: Piece, image: int) -> None:
        """From memory into an image bank, and from there into the feature buffer."""

    def load_constants(self, layer: Layer_contra, space: Space, offset: int, words: Span) -> None:
        """Constants, from a byte offset of the layer's, into words of a buffer."""

    def load_weights(self, layer: Layer_contra, part: WeightChunk, image: int, words: Span) -> None:
        """Weights that are a map, of an image, into words of the weight buffer."""

    def load_gate(self, layer: Layer_contra, blocks: Span, images: Span, words: Span) -> None:
        """The gate's channel blocks, of each image, into words of the pre buffer."""

    def load_residuals(self, layer: Layer_contra, step: PostStep) -> None:
        """The second operands of post's stages into a residual bank."""

    def load_halo(self, layer: Layer_contra, step: PostStep) -> None:
        """The pooling halo that the tile above stored, into a residual bank."""

    def read(self, layer: Layer_contra, source: FeatureSource) -> Read:
        """The following compute operations read this."""
        ...

    def copy(self, layer: Layer_contra, out: OutputRange, psum: int, read: Read) -> None:
        """Input to partial sums, without the array."""

    def compute(self, layer: Layer_contra, step: ComputeStep, read: Read) -> None:
        """Input times weights to partial sums."""

    def post(self, layer: Layer_contra, step: PostStep) -> None:
        """Partial sums to the output buffer, and to another destination."""

    def store(self, layer: Layer_contra, step: PostStep) -> None:
        """From the output buffer to memory."""

    def store_halo(self, layer: Layer_contra, step: PostStep, bank: int) -> None:
        """The pooling halo for the tile below, through an output bank to memory."""
