"""The weight rows that are multiplied where most are zero.

Weights wider than 8 bits are the sum of several int8 (`quant.weight_parts`). The first is
multiplied as every weight is. The others are zero but for the few numbers that int8 does not hold,
so the array is passed only those of their rows that hold one: further kernel parts, which
accumulate in the same partial sums. Of one-hot weights (`Shape.needed`) the first term, too, is
passed without its zero rows.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct

from opu_fuse.hw.spec.hw_spec import HwSpec, Mode
from opu_fuse.layout.shape import Cells, Shape

Span = tuple[int, int]
_STEP_ROWS = 2
"""Weight rows that a further instruction costs: a cut must save more."""


class Needed(Struct, frozen=True, kw_only=True):
    """Nonzero weight rows of a mode: bool [segment][kernel row][column iteration][output group].

    first: of the first int8 term; None: all are multiplied;
    further: of each further term.
    """

    first: np.ndarray | None = None
    further: tuple[np.ndarray, ...] = ()

    def count(self, dense: int) -> int:
        """Rows of all terms. dense: rows of the first term if all are multiplied."""
        first = dense if self.first is None else int(self.first.sum())
        return first + sum(int(rows.sum()) for rows in self.further)


def needed_rows(
    shape: Shape, mode: Mode, hw: HwSpec, iterations: int, cols_per_iteration: int
) -> Needed:
    """The weight rows of a mode that are multiplied.

    iterations: column iterations;
    cols_per_iteration: kernel columns of each.
    """
    lanes = 0 if shape.slot < hw.word_bytes else mode.ic
    if shape.im2row is not None:
        return Needed(
            further=tuple([_im2row_rows(cells, mode.oc, iterations) for cells in shape.further])
        )
    first = shape.needed
    return Needed(
        first=None if first is None else _rows(first, lanes, mode.oc, cols_per_iteration),
        further=tuple(
            [_rows(cells, lanes, mode.oc, cols_per_iteration) for cells in shape.further]
        ),
    )


@lru_cache(maxsize=1024)
def _rows(cells: Cells, ic: int, oc: int, cols_per_iteration: int) -> np.ndarray:
    """The needed rows of a mode. ic: lanes of a segment; 0: a segment has all lanes."""
    result = cells.array
    inner = ic // cells.inner or result.shape[1]
    for axis, size in enumerate((oc // cells.out, inner, 1, cols_per_iteration)):
        result = _joined(result, axis, size)
    return np.ascontiguousarray(result.transpose(1, 2, 3, 0))


@lru_cache(maxsize=1024)
def _im2row_rows(cells: Cells, oc: int, iterations: int) -> np.ndarray:
    """Weight rows of im2row windows, each of which is one byte run."""
    groups = np.asarray(_joined(cells.array, 0, oc // cells.out).any(axis=(1, 2, 3)))
    return np.broadcast_to(groups, (1, 1, iterations, len(groups)))


def _joined(needed: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Combine each `size` neighbours along an axis by or."""
    if size == 1:
        return needed
    return np.logical_or.reduceat(needed, range(0, needed.shape[axis], size), axis)


@lru_cache(maxsize=1024)
def needed_parts(cells: Cells, width: int) -> np.ndarray:
    """Parts of `width` lanes that depthwise windows need: bool [part][kernel row][kernel col]."""
    return np.asarray(_joined(cells.array, 0, width // cells.out).any(axis=1))


def every_part(
    whole: tuple[Span, ...], further: Sequence[np.ndarray]
) -> Iterator[tuple[int, tuple[Span, ...]]]:
    """Yield (int8 term, box) of the instructions for a box of weight rows.

    A box is (first, count) along each axis of `needed_rows`.
    """
    yield 0, whole
    for number, rows in enumerate(further, 1):
        yield from ((number, box) for box in boxes_in(whole, rows))


def boxes_in(whole: tuple[Span, ...], rows: np.ndarray) -> Iterator[tuple[Span, ...]]:
    """Boxes that cover the needed rows of a box of weight rows."""
    inside = rows[tuple(slice(first, first + count) for first, count in whole)]
    for box in boxes(inside):
        yield _offset(box, whole)


def _offset(box: Sequence[Span], bounds: Sequence[Span]) -> tuple[Span, ...]:
    """A box relative to the start of `bounds`, in the coordinates of `bounds`."""
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
            yield _offset(_offset(box, begin), bounds)


def _best_cut(rows: np.ndarray) -> tuple[int, int] | None:
    """(axis, index) of the cut with the fewest rows in the bounds of both sides."""
    best, least = None, rows.size - _STEP_ROWS
    for axis, size in enumerate(rows.shape):
        for at in range(1, size):
            halves = (_bounds(part) for part in np.split(rows, [at], axis))
            left = sum(math.prod(n for _, n in half) for half in halves if half is not None)
            if left < least:
                best, least = (axis, at), left
    return best


def _bounds(rows: np.ndarray) -> tuple[Span, ...] | None:
    """The bounding box of the needed rows; None if there are none."""
    results = []
    for axis in range(rows.ndim):
        others = tuple(i for i in range(rows.ndim) if i != axis)
        indices = np.flatnonzero(rows.any(axis=others))
        if not len(indices):
            return None
        results.append((int(indices[0]), int(indices[-1] - indices[0] + 1)))
    return tuple(results)
