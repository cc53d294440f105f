"""The additional weight rows of weights wider than 8 bits.

Such weights are the sum of several int8 (`quant.weight_parts`). The first is multiplied as every
weight is. The others are zero but for the few numbers that int8 does not hold, so the array is
given only those of their rows that hold one: further kernel parts, which accumulate in the same
partial sums.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from opu_fuse.hw.spec.hw_spec import HwSpec, Mode
from opu_fuse.layout.shape import Cells, Shape

Span = tuple[int, int]
_STEP_ROWS = 2
"""An instruction of its own has to save more weight rows than that."""


def needed_rows(
    shape: Shape, mode: Mode, hw: HwSpec, visits: int, unfold: int
) -> tuple[np.ndarray, ...]:
    """Nonzero weight rows of a mode, for every int8 term but the first.

    Each is bool [segment][kernel row][column iteration][output group]. visits, unfold: column
    iterations, and kernel columns of each.
    """
    if not shape.further:
        return ()
    if shape.im2row is not None:
        return tuple([_unfolded_rows(cells, mode.oc, visits) for cells in shape.further])
    lanes = 0 if shape.slot < hw.word_bytes else mode.ic
    return tuple([_rows(cells, lanes, mode.oc, unfold) for cells in shape.further])


@lru_cache(maxsize=1024)
def _rows(cells: Cells, ic: int, oc: int, unfold: int) -> np.ndarray:
    """ic: lanes of a segment, 0: it has all of them; unfold: kernel columns of a visit."""
    result = cells.array
    for axis, size in enumerate((oc // cells.out, ic // cells.inner or result.shape[1], 1, unfold)):
        result = _joined(result, axis, size)
    return np.ascontiguousarray(result.transpose(1, 2, 3, 0))


@lru_cache(maxsize=1024)
def _unfolded_rows(cells: Cells, oc: int, visits: int) -> np.ndarray:
    """Weight rows of im2row windows, each of which is one byte run."""
    groups = np.asarray(_joined(cells.array, 0, oc // cells.out).any(axis=(1, 2, 3)))
    return np.broadcast_to(groups, (1, 1, visits, len(groups)))


def _joined(found: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Combine each `size` neighbours along an axis by or."""
    if size == 1:
        return found
    return np.logical_or.reduceat(found, range(0, found.shape[axis], size), axis)


@lru_cache(maxsize=1024)
def needed_parts(cells: Cells, width: int) -> np.ndarray:
    """Which parts of so many lanes depthwise windows need: bool [part][kernel row][kernel col]."""
    return np.asarray(_joined(cells.array, 0, width // cells.out).any(axis=1))


def every_part(
    whole: tuple[Span, ...], further: Sequence[np.ndarray]
) -> Iterator[tuple[int, tuple[Span, ...]]]:
    """(which of the int8, box) of the instructions for a box of weight rows, (first, count) along
    the axes of `needed_rows`.
    """
    yield 0, whole
    for number, rows in enumerate(further, 1):
        inside = rows[tuple(slice(first, first + count) for first, count in whole)]
        for box in boxes(inside):
            yield number, _moved(box, whole)


def _moved(box: Sequence[Span], bounds: Sequence[Span]) -> tuple[Span, ...]:
    """What is counted from the beginning of bounds, counted as these are."""
    return tuple((low + first, count) for (low, _), (first, count) in zip(bounds, box, strict=True))


def boxes(rows: np.ndarray) -> Iterator[tuple[Span, ...]]:
    """Disjoint boxes that cover the needed rows, as (first, count) along each axis.

    A box is cut in two where that saves more rows than the additional instruction costs.
    """
    bounds = _bounds(rows)
    if bounds is None:
        return
    inside = rows[tuple(slice(first, first + count) for first, count in bounds)]
    cut = None if inside.all() else _best_cut(inside)
    if cut is None:
        yield bounds
        return
    axis, at = cut
    for first, part in zip((0, at), np.split(inside, [at], axis), strict=True):
        for box in boxes(part):
            begin = [(first if axis == i else 0, 0) for i in range(rows.ndim)]
            yield _moved(_moved(box, begin), bounds)


def _best_cut(rows: np.ndarray) -> tuple[int, int] | None:
    """(axis, index) of the cut with the fewest rows in the bounds of both sides."""
    best, least = None, rows.size - _STEP_ROWS
    for axis, size in enumerate(rows.shape):
        for at in range(1, size):
            left = sum(_volume(_bounds(part)) for part in np.split(rows, [at], axis))
            if left < least:
                best, least = (axis, at), left
    return best


def _bounds(rows: np.ndarray) -> tuple[Span, ...] | None:
    """The bounding box of the needed rows; None if there are none."""
    results = []
    for axis in range(rows.ndim):
        others = tuple(i for i in range(rows.ndim) if i != axis)
        places = np.flatnonzero(rows.any(axis=others))
        if not len(places):
            return None
        results.append((int(places[0]), int(places[-1] - places[0] + 1)))
    return tuple(results)


def _volume(bounds: Sequence[Span] | None) -> int:
    return 0 if bounds is None else int(np.prod([count for _, count in bounds]))
