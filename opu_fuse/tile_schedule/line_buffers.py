"""Rings: the last rows of a map, row by row in the feature buffer, as a cascade needs them."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from opu_fuse.hw.dram_layout import Layout
from opu_fuse.layout.shape import Shape
from opu_fuse.tiling.tile import Span, ceil_div, spans


class LineBuffer(Struct, frozen=True, kw_only=True):
    """Row r of an image, with all its channel blocks, at place (r + first) mod rows; whole images,
    where they fit, lie below each other. The first `again` places stand behind the last one a
    second time, so that rows that are read together always follow each other. layout: of the map,
    of all images, with `image_rows` rows each; pitch: words from row to row; at: first feature
    buffer word.
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

    def turn(self, row: int) -> int:
        """A row, through all images, is at the place `turn` mod rows; turns grow with the rows."""
        image, row = divmod(row, self.image_rows)
        apart = self.image_rows
        if self.rows < apart:
            apart = ceil_div(apart, self.rows) * self.rows
        return image * apart + row + self.first

    def word(self, row: int) -> int:
        """The first of a row."""
        return self.at + self.turn(row) % self.rows * self.pitch

    def registers(self, at: int, block: int, word: int) -> dict[str, int]:
        """Of post, for output rows that go to a place of the ring from feature buffer word `at` on,
        from a channel block and a word of a row on.
        """
        return {
            "keep": 1,
            "keep_at": at + block * self.layout.row_words + word,
            "keep_row_pitch": self.pitch,
            "keep_block_pitch": self.layout.row_words,
        }

    def written(self, row: int, count: int) -> Iterator[tuple[int, int, int]]:
        """Where rows of an image go that follow each other: (first of them, how many, word), those
        that stand there a second time behind the others.
        """
        done = 0
        while done < count:
            place = self.turn(row + done) % self.rows
            here = min(self.rows - place, count - done)
            yield done, here, self.at + place * self.pitch
            if place < self.again:
                twice = min(here, self.again - place)
                yield done, twice, self.at + (self.rows + place) * self.pitch
            done += here


@lru_cache(maxsize=256)
def reach(shape: Shape, rows: int) -> tuple[Span, ...]:
    """(first row, rows) of its input that tiles of so many rows of an image read, from top to
    bottom.
    """
    found: list[Span] = []
    for row, count in spans(shape.out_rows, rows):
        top, behind, _ = shape.pool_window.span(0, row, count, shape.pre_pool_rows)
        first, end, _ = shape.window.span(0, top, behind - top, shape.in_rows)
        found.append((first, end - first))
    return tuple(found)


def new_rows(shape: Shape, rows: int) -> int:
    """Rows of its input that a tile of so many rows reads for the first time."""
    if rows >= shape.out_rows:
        return shape.in_rows
    return min(rows * shape.pool_window.strides[0] * shape.window.strides[0], shape.in_rows)


def line_buffer(
    layout: Layout, shape: Shape, tile_rows: int, made_rows: int, ahead: int
) -> LineBuffer:
    """For a map made `made_rows` at a time and read by tiles of `tile_rows` final rows. ahead: with
    room for what so many further tiles need while one is computed.
    """
    read, image_rows = reach(shape, tile_rows), layout.rows // shape.images
    ends = [min(ceil_div(sum(span), made_rows) * made_rows, image_rows) for span in read]
    behind = [*ends[ahead:], *[ends[-1]] * ahead][: len(ends)]
    needed = max(end - first for end, (first, _) in zip(behind, read, strict=True))
    step = new_rows(shape, tile_rows)
    rows, again = ceil_div(needed, step) * step, 0
    first = shape.window.pads[0] + shape.pool_window.pads[0] * shape.window.strides[0]
    if rows < image_rows:
        again = _overhang(read, rows, first)
    if rows + again >= image_rows:  # all of it
        rows, again, first = image_rows * min(shape.images, 2 if ahead else 1), 0, 0
    return LineBuffer(
        layout=layout,
        pitch=layout.blocks * layout.row_words,
        image_rows=image_rows,
        rows=rows,
        again=again,
        first=first,
    )


def _overhang(read: Sequence[Span], rows: int, first: int) -> int:
    return max(max((row + first) % rows + count - rows, 0) for row, count in read)
