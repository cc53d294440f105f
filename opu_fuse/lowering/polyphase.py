"""A transposed convolution as ordinary ones, one per phase: no inserted zero is ever multiplied.

Result row y reads input row (y + pad - k) / stride for the kernel rows k where that is whole. So
the rows y = p, p + stride, … all see the same kernel rows (k0, k0 + stride, …), and form a
convolution of stride 1 with the mirrored part of the kernel. Likewise for columns.

Where the border of the input is repeated (`edges`), the first and the last rows of a phase read the
border row several times. They are phases of their own, with the sum of those kernel rows.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy as np
from msgspec import Struct, structs

from opu_fuse.layout.shape import Shape, Window


class Taps(Struct, frozen=True, kw_only=True):
    """Kernel rows, or columns, of a phase: `count` from `first` on, `step` apart, to be mirrored.
    Of the mirrored ones, the first `before` and the last `after` are added to their neighbour.
    """

    first: int
    step: int
    count: int
    before: int = 0
    after: int = 0

    @property
    def multiplied(self) -> int:
        """Rows that remain."""
        return max(self.count - self.before - self.after, 1)


class Phase(Struct, frozen=True, kw_only=True):
    """Every `stride`-th row and column of a map, from `first` on.

    taps: of rows and columns; None: the whole kernel as it is.
    """

    first: tuple[int, int] = (0, 0)
    stride: tuple[int, int] = (1, 1)
    taps: tuple[Taps, Taps] | None = None

    def filters(self, weight: np.ndarray) -> np.ndarray:
        """The weights that this phase multiplies by, mirrored: of (oc, ic, kh, kw), its taps.

        int16 where the sum of repeated ones exceeds int8.
        """
        for axis, taps in zip((2, 3), self.taps or (), strict=False):
            used = range(taps.first, taps.first + taps.step * taps.count, taps.step)
            weight = np.flip(weight.take(used, axis), axis)
            if taps.before or taps.after:
                weight = _folded(weight, axis, taps)
        return weight


WHOLE = Phase()


def _folded(weight: np.ndarray, axis: int, taps: Taps) -> np.ndarray:
    """Add the outer rows along an axis to the outermost that remain."""
    rows = np.moveaxis(weight.astype(np.int16), axis, 0)
    kept = rows[taps.before : taps.count - taps.after].copy()
    kept[0] += rows[: taps.before].sum(axis=0, dtype=np.int16)
    kept[-1] += rows[taps.count - taps.after :].sum(axis=0, dtype=np.int16)
    result = np.moveaxis(kept, 0, axis)
    narrow = result.astype(np.int8)
    return narrow if np.array_equal(narrow, result) else result


def phases(attrs: Mapping[str, Any], shape: Shape) -> Iterator[tuple[Phase, Window, int, int]]:
    """Phase, window, rows and columns of every part of a result.

    attrs: kernel, strides, pads, edges. shape: of the whole. Phases without a row or column are
    left out.
    """
    strides = attrs["strides"]
    for first_row, down, top, row_count in _along(attrs, 0, shape.out_rows, shape.in_rows):
        for first_col, across, left, col_count in _along(attrs, 1, shape.out_cols, shape.in_cols):
            kernel = down.multiplied, across.multiplied
            window = Window(kernel=kernel, pads=(top, left, 0, 0))
            phase = Phase(first=(first_row, first_col), stride=strides, taps=(down, across))
            yield phase, window, row_count, col_count


def _along(
    attrs: Mapping[str, Any], axis: int, results: int, size: int
) -> Iterator[tuple[int, Taps, int, int]]:
    """(first result, taps, padding before it, results) of the phases along an axis. A negative
    padding leaves input out.
    """
    kernel, stride, pad = (attrs[name][axis] for name in ("kernel", "strides", "pads"))
    for p in range(min(stride, results)):
        first = (p + pad) % stride
        taps = Taps(first=first, step=stride, count=len(range(first, kernel, stride)))
        before = taps.count - 1 - (p + pad - first) // stride
        count = -(-(results - p) // stride)
        if attrs.get("edges"):
            yield from _at_edges(p, taps, before + 1, count, size)  # one row is repeated
        else:
            yield p, taps, before, count


def _at_edges(
    p: int, taps: Taps, before: int, count: int, size: int
) -> Iterator[tuple[int, Taps, int, int]]:
    """Runs of a phase's results that repeat the same rows of the border."""

    def outside(result: int) -> tuple[int, int]:
        """Taps of a result before the first input row, and after the last."""
        begin, most = result - before, taps.count - 1
        return min(max(-begin, 0), most), min(max(begin + taps.count - size, 0), most)

    for (over, under), run in groupby(range(count), outside):
        start, *others = run
        folded = structs.replace(taps, before=over, after=under)
        yield p + start * taps.step, folded, before - over - start, 1 + len(others)
