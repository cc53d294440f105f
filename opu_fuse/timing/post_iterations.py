"""Cycles of the iterations of post over a tile."""

from collections.abc import Sequence

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.tiling.estimate import halo_load_cycles, post_cycles
from opu_fuse.tiling.tile import Rect, ceil_div, images_of


def iteration_cycles(shape: Shape, rect: Rect, pieces: Sequence[int], hw: HwSpec) -> list[int]:
    """Cycles of the iterations over a channel block, per instruction of a tile.

    pieces: rows that each writes to a line buffer; empty without one.
    """
    cols = ceil_div(rect.cols, shape.stored_px)
    images = images_of(shape, rect.rows) if shape.pool else 1
    counts, first = list(pieces or (rect.rows // images,) * images), []
    if shape.reads_halo(rect.row):
        first = [halo_load_cycles(shape, hw, cols)]
        counts = [count for count in (counts[0] - 1, *counts[1:]) if count]
    window, parts = shape.pool_window.kernel[0], shape.column_parts
    if parts > 1:
        cols, counts = cols // parts, counts * parts
    return first + [post_cycles(shape, hw, count, cols, window) for count in counts]
