"""A transposed convolution as ordinary ones, one per phase: no inserted zero is ever multiplied.

Result row y reads input row (y + pad - k) / stride for the kernel rows k where that is whole. So
the rows y = p, p + stride, … all see the same kernel rows (k0, k0 + stride, …), and form a
convolution of stride 1 with the mirrored part of the kernel. Likewise for columns.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from opu_fuse.layout.shape import Window


class Phase(Struct, frozen=True, kw_only=True):
    """Every `stride`-th row and column of a map, from `first` on.

    taps: (first, step, count) of the kernel rows and columns used, to be mirrored; None: the whole
    kernel as it is.
    """

    first: tuple[int, int] = (0, 0)
    stride: tuple[int, int] = (1, 1)
    taps: tuple[tuple[int, int, int], tuple[int, int, int]] | None = None

    def filters(self, weight: np.ndarray) -> np.ndarray:
        """The weights that this phase multiplies by, mirrored: of (oc, ic, kh, kw), its taps."""
        for axis, (first, step, count) in zip((2, 3), self.taps or (), strict=False):
            used = range(first, first + step * count, step)
            weight = np.flip(weight.take(used, axis), axis)
        return weight


WHOLE = Phase()


def phases(
    attrs: Mapping[str, Any], rows: int, cols: int
) -> Iterator[tuple[Phase, Window, int, int]]:
    """Phase, window, rows and columns of every part of a result of rows × cols; attrs: kernel,
    strides, pads. Phases without a row or column are left out.
    """
    strides = attrs["strides"]
    for py in range(min(strides[0], rows)):
        for px in range(min(strides[1], cols)):
            (rows_used, top), (cols_used, left) = _along(attrs, 0, py), _along(attrs, 1, px)
            kernel = max(rows_used[2], 1), max(cols_used[2], 1)
            window = Window(kernel=kernel, pads=(top, left, 0, 0))
            phase = Phase(first=(py, px), stride=strides, taps=(rows_used, cols_used))
            yield phase, window, -(-(rows - py) // strides[0]), -(-(cols - px) // strides[1])


def _along(attrs: Mapping[str, Any], axis: int, p: int) -> tuple[tuple[int, int, int], int]:
    """(first, step, count) of the kernel positions of a phase, and the padding before it (negative:
    input left out).
    """
    kernel, stride, pad = (attrs[name][axis] for name in ("kernel", "strides", "pads"))
    first = (p + pad) % stride
    count = len(range(first, kernel, stride))
    return (first, stride, count), count - 1 - (p + pad - first) // stride
