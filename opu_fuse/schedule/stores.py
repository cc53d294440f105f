"""Registers of the stores of a tile: where its output words go."""

from collections.abc import Iterator
from itertools import pairwise

from opu_fuse.cost.reading import Rect
from opu_fuse.cost.tiles import ceil_div
from opu_fuse.hw.instruction import split_address
from opu_fuse.schedule.job import Job, Placement
from opu_fuse.schedule.registers import transfer_shape


def stores(
    job: Job, to: Placement, base: int, rect: Rect, block: int, blocks: int
) -> Iterator[dict[str, int]]:
    """Of channel blocks block .. block + blocks - 1, whose words begin at `base` of the output
    buffer: one store, more where the first or last block shares its words with a neighbour.
    """
    low, high = to.skips
    last, end = to.layout.blocks - 1, block + blocks
    shared = ((1, low), (last, high))
    cuts = {block, end, *(at for at, skip in shared if skip and block < at < end)}
    words = rect[1] * ceil_div(rect[3], job.layer.shape.stored_px)
    for at, after in pairwise(sorted(cuts)):
        skips = low * (at == 0), high * (after == last + 1)
        yield _store(job, to, base + (at - block) * words, rect, at, after - at, skips)


def _store(
    job: Job, to: Placement, src: int, rect: Rect, block: int, blocks: int, skips: tuple[int, int]
) -> dict[str, int]:
    (up_y, up_x), phase = job.layer.shape.upsample, job.layer.phase
    layout, px = to.layout, job.layer.shape.stored_px
    row, rows, col, cols = rect
    shape = job.layer.shape
    image, row = divmod(row, shape.out_rows)
    apart = job.work.writes.layout.rows // shape.images
    first = layout.word_at(
        block,
        image * apart + row * up_y * phase.apart[0] + phase.first[0],
        col // px * up_x * phase.apart[1] + phase.first[1],
    )
    pitch = phase.apart[0] * layout.row_words
    transfer = (ceil_div(cols, px), rows, pitch, blocks, layout.block_words)
    return {
        **split_address(to.offset + first * layout.word),
        "src": src,
        **transfer_shape(*transfer, joins=(up_y, up_x) == phase.apart == (1, 1)),
        "word_gap": phase.apart[1] - 1,
        "repeat_rows": up_y - 1,
        "repeat_cols": up_x - 1,
        "skip_low": skips[0],
        "skip_high": skips[1],
    }


def carried_words(job: Job, rect: Rect, block: int) -> int:
    """Of two rows for every channel block, used in turn: the word for the tile that begins with a
    row.
    """
    shape, blocks = job.layer.shape, job.work.writes.layout.blocks
    turn = rect[0] % shape.out_rows // job.planned.tile.rows % 2
    return (turn * blocks + block) * shape.out_cols + rect[2]


def carried_store(job: Job, src: int, rect: Rect, block: int, blocks: int) -> dict[str, int]:
    """Of what a tile leaves the one below it."""
    row, rows, col, cols = rect
    first = carried_words(job, (row + rows, 1, col, cols), block)
    return {
        **split_address(job.planned.carried + first * job.work.writes.layout.word),
        "src": src,
        **transfer_shape(cols, 1, 0, blocks, job.layer.shape.out_cols),
        "word_gap": 0,
        "repeat_rows": 0,
        "repeat_cols": 0,
        "skip_low": 0,
        "skip_high": 0,
    }
