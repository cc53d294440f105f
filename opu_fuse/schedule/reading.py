"""Which part of its input map a tile reads, and how compute finds it in the feature buffer."""

from dataclasses import dataclass

from opu_fuse.cost.tiles import ceil_div, mid_tile, spans
from opu_fuse.hw.layout import Layout
from opu_fuse.schedule.chunks import FeatureChunk, OutputRange
from opu_fuse.schedule.job import Job
from opu_fuse.schedule.stores import Rect

Mid = tuple[int, int, int, int, int, int]
"""Mid rectangle of a tile, see `cost.tiles.mid_tile`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Channel blocks, rows and column words [word0, word1) of the map `source` (a DFG index): what
    one load brings, and by equality whether a bank holds it already.
    """

    source: int
    block: int
    blocks: int
    y0: int
    y1: int
    word0: int
    word1: int

    @property
    def words(self) -> tuple[int, int]:
        """Rows, words of a row."""
        return self.y1 - self.y0, self.word1 - self.word0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part and the first pixel read in it: of the map's row y and column x, negative in the
    padding.
    """

    part: Part
    y: int
    x: int

    def of_part(self, layout: Layout, in_cols: int) -> dict[str, int]:
        """Compute registers where the part was loaded alone, its words without gaps."""
        part, px = self.part, layout.word // layout.slot
        rows, run = part.words
        return {
            "row_pitch": run,
            "block_pitch": rows * run,
            "in_rows": rows,
            "in_cols": min(in_cols, part.word1 * px) - part.word0 * px,
            "origin_y": self.y - part.y0,
            "origin_x": self.x - part.word0 * px,
        }

    def of_map(self, layout: Layout) -> dict[str, int]:
        """Compute registers where the whole map lies in a bank, row by row with all its blocks."""
        return {
            "row_pitch": layout.blocks * layout.row_words,
            "block_pitch": layout.row_words,
            "in_rows": layout.rows,
            "in_cols": layout.cols,
            "origin_y": self.y,
            "origin_x": self.x,
        }


def window(job: Job, chunk: FeatureChunk, mid: Mid) -> Window:
    """What a mid tile reads of some channel blocks."""
    shape, layout = job.layer.shape, job.source.layout
    kernel = shape.window
    y0, y1, y = kernel.part_span(
        0, mid[0], mid[1] - mid[0], shape.in_rows, chunk.ky[0], chunk.ky[0] + chunk.ky[1]
    )
    left, right = chunk.kx[0] * job.unfold, (chunk.kx[0] + chunk.kx[1]) * job.unfold
    x0, x1, x = kernel.part_span(
        1, mid[3], mid[4] - mid[3], shape.in_cols, left, min(right, kernel.kernel[1])
    )
    part = Part(
        source=job.layer.source,
        block=chunk.block,
        blocks=chunk.blocks,
        y0=y0,
        y1=y1,
        word0=x0 * layout.slot // layout.word,
        word1=ceil_div(x1 * layout.slot, layout.word),
    )
    return Window(part=part, y=y + y0, x=x + x0)


def walk(job: Job) -> list[tuple[OutputRange, Rect]]:
    """(output range, tile as first row, rows, first column, columns) of a layer in the order of its
    schedule.
    """
    shape, tile = job.layer.shape, job.tile
    tiles = [
        (row, rows, col, cols)
        for row, rows in spans(shape.out_rows, tile.rows)
        for col, cols in spans(shape.out_cols, tile.cols)
    ]
    if tile.weights_outer:
        return [(r, t) for r in job.ranges for t in tiles]
    return [(r, t) for t in tiles for r in job.ranges]


def count_parts(job: Job, most: int) -> int:
    """Different parts of its input that a layer reads, counted up to `most`."""
    found: set[Part] = set()
    for out, rect in walk(job):
        mid = mid_tile(job.layer.shape, *rect)
        for chunk in out.features:
            found.add(window(job, chunk, mid).part)
            if len(found) == most:
                return most
    return len(found)


def last_row(job: Job, out: OutputRange, rect: Rect) -> int:
    """Row behind the last one of the input that a tile reads."""
    shape = job.layer.shape
    row0, row1, *_ = mid_tile(shape, *rect)
    kernel = max(sum(chunk.ky) for chunk in out.features)
    return shape.window.part_span(0, row0, row1 - row0, shape.in_rows, 0, kernel)[1]
