"""Line buffers: circular row buffers in the feature buffer, for the maps of a fused stack."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.hw.dram_layout import Layout
from opu_fuse.layout.shape import Shape
from opu_fuse.tiling.tile import Span, ceil_div, spans


def kept_at(word: int, row_pitch: int, block_pitch: int) -> dict[str, int]:
    """Registers of `post` that write results into the feature buffer."""
    return {
        "keep": 1,
        "keep_at": word,
        "keep_row_pitch": row_pitch,
        "keep_block_pitch": block_pitch,
    }


class LineBuffer(Struct, frozen=True, kw_only=True):
    """A circular row buffer: row r of an image is stored at slot (r + first) mod rows.

    A slot holds all channel blocks of one row. The first `again` slots are duplicated after the
    last one, so that the rows of one tile are always contiguous. Whole images, where they fit, are
    stored one after the other.

    layout: layout of the map, all images of the batch;
    pitch: words from row to row;
    image_rows: rows per image;
    at: first feature buffer word.
    """

    layout: Layout
    pitch: int
    image_rows: int
    rows: int
    again: int
    first: int
    at: int = 0

    @property
    def words(self) -> int:
        return (self.rows + self.again) * self.pitch

    def sequence_number(self, row: int) -> int:
        """Sequence number of a row, counted over all images; its slot is this number mod `rows`."""
        image, row = divmod(row, self.image_rows)
        stride = self.image_rows
        if self.rows < stride:  # every image starts at the same slot
            stride = ceil_div(stride, self.rows) * self.rows
        return image * stride + row + self.first

    def word(self, row: int) -> int:
        """First feature buffer word of a row."""
        return self.at + self.sequence_number(row) % self.rows * self.pitch

    def from_block(self, block: int) -> "LineBuffer":
        """The line buffer as a layer sees it whose map begins at a channel block."""
        return replace(self, at=self.at + block * self.layout.row_words) if block else self

    def registers(self, at: int, block: int, word: int) -> dict[str, int]:
        """Registers of `post` that write output rows into the line buffer.

        at: feature buffer word of the slot; block, word: first channel block and word of the row.
        """
        row_words = self.layout.row_words
        return kept_at(at + block * row_words + word, self.pitch, row_words)

    def written(self, row: int, count: int) -> Iterator[tuple[int, int, int]]:
        """Yield (first row, rows, feature buffer word) for each contiguous write of `count` rows.

        Duplicated rows are yielded directly after the write that they repeat.
        """
        done = 0
        while done < count:
            slot = self.sequence_number(row + done) % self.rows
            run = min(self.rows - slot, count - done)
            yield done, run, self.at + slot * self.pitch
            if slot < self.again:
                duplicated = min(run, self.again - slot)
                yield done, duplicated, self.at + (self.rows + slot) * self.pitch
            done += run


@lru_cache(maxsize=256)
def reach(shape: Shape, rows: int) -> tuple[Span, ...]:
    """(first row, rows) of the input that each tile of `rows` output rows reads, top to bottom."""
    input_spans: list[Span] = []
    for row, count in spans(shape.out_rows, rows):
        top, bottom, _ = shape.pool_window.span(0, row, count, shape.pre_pool_rows)
        first, end, _ = shape.window.span(0, top, bottom - top, shape.in_rows)
        input_spans.append((first, end - first))
    return tuple(input_spans)


def new_rows(shape: Shape, rows: int) -> int:
    """Input rows that a tile of `rows` output rows reads and its predecessor did not."""
    if rows >= shape.out_rows:
        return shape.in_rows
    return min(rows * shape.pool_window.strides[0] * shape.window.strides[0], shape.in_rows)


@lru_cache(maxsize=1024)
def line_buffer(
    layout: Layout, shape: Shape, tile_rows: int, write_rows: int, prefetch: int
) -> LineBuffer:
    """Size the line buffer of a map written `write_rows` at a time, read by tiles of `tile_rows`.

    prefetch: prefetch distance, the number of further tiles whose rows must fit as well.
    """
    read, image_rows = reach(shape, tile_rows), layout.rows // shape.images
    ends = [min(ceil_div(sum(span), write_rows) * write_rows, image_rows) for span in read]
    prefetch_ends = [*ends[prefetch:], *[ends[-1]] * prefetch][: len(ends)]
    needed = max(end - first for end, (first, _) in zip(prefetch_ends, read, strict=True))
    return line_buffer_of(layout, ((shape, tile_rows),), needed, prefetch)


def line_buffer_of(
    layout: Layout, readers: Sequence[tuple[Shape, int]], needed: int, prefetch: int
) -> LineBuffer:
    """A line buffer of a map that needs so many rows.

    readers: (shape, rows of its tiles) of each layer that reads the map.
    """
    shape = readers[-1][0]
    image_rows = layout.rows // shape.images
    step = max(new_rows(*each) for each in readers)
    rows, again = ceil_div(needed, step) * step, 0
    first = shape.window.pads[0] + shape.pool_window.pads[0] * shape.window.strides[0]
    if rows < image_rows:
        read = chain.from_iterable(reach(*each) for each in readers)
        again = max(0, *((row + first) % rows + count - rows for row, count in read))
    if rows + again >= image_rows:  # the whole map fits in as many rows
        rows, again, first = image_rows * min(shape.images, 2 if prefetch else 1), 0, 0
    return LineBuffer(
        layout=layout,
        pitch=layout.blocks * layout.row_words,
        image_rows=image_rows,
        rows=rows,
        again=again,
        first=first,
    )
