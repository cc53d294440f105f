"""A permutation of the pixels of a map, as the stores of a pass perform it.

The pixels of a row number and of a column number are digits of mixed radix, most significant first:
windows of 7 x 7 pixels have rows (h / 7, 7) and columns (w / 7, 7). Every digit has a stride in the
result. So a rectangle of pixels is stored as a few nests of loops with constant strides, each of
them one instruction.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

MOST_STEP = 4
"""Largest stride of a run: the words between are beats without data, which cost less than a burst
for each word."""
_ANY = 1 << 62
"""Count of the images of a batch, which are whole."""


class Axis(NamedTuple):
    """A digit: its values, and words of the result between neighbours."""

    size: int
    stride: int


Nest = tuple[Axis, ...]
"""Loops, the outermost first."""


class Run(NamedTuple):
    """Words of a rectangle that one instruction stores.

    source: its first word, counted in the rectangle; target: the first one in the result; nest: at
    most three loops, of which the innermost is a run.
    """

    source: int
    target: int
    nest: Nest


class Transfers(NamedTuple):
    """What stores move: instructions, runs of neighbouring words, and words with those between."""

    instructions: int
    runs: int
    words: int


class Permutation(Struct, frozen=True, kw_only=True):
    """Where the pixels of a map go.

    rows, cols: digits of row and column; the last ones of `cols` are `strided`; strided: the digit
    over which post iterates outermost: it reads columns with a stride, so that neighbours of the
    result are stored one after the other.
    before, after: rows and columns by which the map, and the result, are rolled back.
    result_cols: columns of a result that is rolled.
    """

    rows: Nest
    cols: Nest
    strided: Axis | None = None
    before: tuple[int, int] = (0, 0)
    after: tuple[int, int] = (0, 0)
    result_cols: int = 0

    @property
    def pixels(self) -> int:
        """Pixels of the map."""
        own = self.strided.size if self.strided else 1
        return own * math.prod(axis.size for axis in (*self.rows, *self.cols))

    @property
    def is_rolled(self) -> bool:
        """Whether the map or the result is rolled."""
        return self.before != (0, 0) or self.after != (0, 0)

    @property
    def step(self) -> int:
        """Words of the result between two neighbours of a row."""
        return self.cols[-1].stride if self.cols else 1

    def runs(self, rect: tuple[int, int, int, int]) -> Iterator[Run]:
        """The stores of a rectangle (row, rows, column, columns), rows counted across images."""
        if self.is_rolled:
            yield from compressed(rolled_targets(self, rect))
            return
        row, rows, col, cols = rect
        images = Axis(_ANY, self.pixels)
        strided = self.strided or Axis(1, 0)
        col, cols = col // strided.size, cols // strided.size
        across = list(_parts(self.cols, col, col + cols))
        for part in range(strided.size):
            source, target = part * rows * cols, part * strided.stride
            # The rows of a part of the columns are no neighbours.
            at_once = rows if len(across) == 1 else 1
            for y in range(row, row + rows, at_once):
                for first, nest in _parts((images, *self.rows), y, y + at_once):
                    for begin, inner in across:
                        whole = *nest, *inner
                        yield from _split(source, target + first + begin, _merged(whole))
                        source += math.prod(axis.size for axis in whole)

    def transfers(self, rect: tuple[int, int, int, int]) -> Transfers:
        """What the stores of a rectangle move."""
        return _transfers(self, rect)

    def cuts(self) -> tuple[list[int], list[int]]:
        """Rows and columns of tiles that consist of whole digits."""
        own = 1 if self.strided is None else self.strided.size
        return _suffixes(self.rows, 1), _suffixes(self.cols, own)

    def complete(self, pixels: int) -> int:
        """Leading pixels of the result that are stored when as many of the map are."""
        whole = self.pixels
        for count, stride in () if self.is_rolled else (*self.rows, *self.cols):
            if whole // count != stride:
                break
            whole = stride
        return pixels // whole * whole


def permutation(extents: Sequence[int], order: Sequence[int], cols: int) -> Permutation | None:
    """The permutation that views pixels in `extents` and exchanges them into `order`, of a map with
    so many columns. None if no product of extents ends with a row.
    """
    sizes = [extents[axis] for axis in order]
    strides = [math.prod(sizes[place + 1 :]) for place in range(len(order))]
    axes = [Axis(n, strides[order.index(axis)]) for axis, n in enumerate(extents)]
    inside: list[Axis] = []
    width = 1
    while axes and width < cols:
        count, stride = axes.pop()
        part = cols // width
        if count > part:
            if cols % width or count % part:
                return None
            axes.append(Axis(count // part, stride * part))
            count = part
        inside.insert(0, Axis(count, stride))
        width *= count
    if width != cols:
        return None
    return Permutation(rows=_merged(axes), cols=_merged(inside))


def with_strided_reads(found: Permutation, most: int) -> Permutation:
    """The permutation with the innermost digit of columns, of at most `most` values, read with a
    stride, if only it is between pixels that are neighbours in the result.
    """
    if len(found.cols) < 2 or found.step <= MOST_STEP or found.cols[-1].size > most:
        return found
    if found.is_rolled:
        return found
    *cols, strided = found.cols
    if cols[-1].stride > 1:
        return found
    return Permutation(rows=found.rows, cols=tuple(cols), strided=strided)


def rolled(
    found: Permutation, before: tuple[int, int], after: tuple[int, int], cols: int
) -> Permutation:
    """The permutation of a map that is rolled back `before`, whose result, of so many columns, is
    rolled back `after` it.
    """
    return replace(found, before=before, after=after, result_cols=cols)


def rolled_targets(found: Permutation, rect: tuple[int, int, int, int]) -> np.ndarray:
    """Words of the result of the pixels of a rectangle, in their order."""
    row, rows, col, cols = rect
    height, width = (math.prod(axis.size for axis in axes) for axes in (found.rows, found.cols))
    image, y = np.divmod(np.arange(row, row + rows), height)
    down = _strides(found.rows, (y - found.before[0]) % height)
    across = _strides(found.cols, (np.arange(col, col + cols) - found.before[1]) % width)
    y, x = np.divmod(np.add.outer(down, across), found.result_cols)
    y, x = y - found.after[0], (x - found.after[1]) % found.result_cols
    within = y % (found.pixels // found.result_cols) * found.result_cols + x
    return (image[:, None] * found.pixels + within).reshape(-1)


def _strides(axes: Nest, numbers: np.ndarray) -> np.ndarray:
    """Words of the result of numbers whose digits are axes."""
    words = np.zeros_like(numbers)
    for count, stride in reversed(axes):
        numbers, digits = np.divmod(numbers, count)
        words += digits * stride
    return words


def compressed(targets: np.ndarray) -> Iterator[Run]:
    """Stores of consecutive words to these words of a result: runs of neighbours, rows of runs and
    blocks of rows with equal strides, each as long as possible.
    """
    starts = np.flatnonzero(np.diff(targets, prepend=targets[0] - 2) != 1).tolist()
    sizes = np.diff([*starts, targets.size]).tolist()
    nests = [(int(targets[at]), (Axis(n, 1),)) for at, n in zip(starts, sizes, strict=True)]
    for _ in range(2):
        nests = [*_joined(nests)]
    source = 0
    for target, nest in nests:
        yield Run(source, target, _merged(nest[:-1]) + nest[-1:])
        source += math.prod(axis.size for axis in nest)


def _joined(nests: Sequence[tuple[int, Nest]]) -> Iterator[tuple[int, Nest]]:
    """Equal nests at equal distances, as one with one more loop."""
    at = 0
    while at < len(nests):
        (first, nest), count, stride = nests[at], 1, 0
        for target, other in nests[at + 1 :]:
            distance = target - first - (count - 1) * stride
            if other != nest or distance < 1 or distance != (stride or distance):
                break
            count, stride = count + 1, distance
        yield first, (Axis(count, stride), *nest)
        at += count


def _suffixes(axes: Nest, size: int) -> list[int]:
    sizes: list[int] = []
    for axis in reversed(axes):
        sizes += [size * n for n in range(1, axis.size) if axis.size % n == 0]
        size *= axis.size
    return [*sizes, size]


@lru_cache(maxsize=1 << 14)
def _transfers(found: Permutation, rect: tuple[int, int, int, int]) -> Transfers:
    instructions = count = words = 0
    for run in found.runs(rect):
        *outer, (length, step) = run.nest
        times = math.prod(axis.size for axis in outer)
        instructions += 1
        count, words = count + times, words + times * ((length - 1) * step + 1)
    return Transfers(instructions, count, words)


def _parts(axes: Nest, first: int, end: int) -> Iterator[tuple[int, Nest]]:
    """(first word, nest) of the numbers first .. end - 1, in ascending order."""
    if not axes:
        yield 0, ()
        return
    (_, stride), *rest = axes
    inner = tuple(rest)
    size = math.prod(axis.size for axis in inner)
    digit, begin = divmod(first, size)
    last, rest_end = divmod(end, size)
    if begin:
        stop = rest_end if digit == last else size
        for word, nest in _parts(inner, begin, stop):
            yield digit * stride + word, nest
        if digit == last:
            return
        digit += 1
    if digit < last:
        yield digit * stride, (Axis(last - digit, stride), *inner)
    if rest_end:
        for word, nest in _parts(inner, 0, rest_end):
            yield last * stride + word, nest


def _merged(axes: Sequence[Axis]) -> Nest:
    """The same loops, without those of one value, neighbours joined where they are one."""
    merged: list[Axis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        if merged and merged[-1].stride == axis.size * axis.stride:
            axis = Axis(merged.pop().size * axis.size, axis.stride)
        merged.append(axis)
    return tuple(merged)


def _split(source: int, target: int, nest: Nest) -> Iterator[Run]:
    """Instructions of a nest: a run, rows of it, and blocks of these."""
    if not nest or nest[-1].stride > MOST_STEP:
        nest = *nest, Axis(1, 1)
    outer, inner = nest[:-3], nest[-3:]
    size = math.prod(axis.size for axis in inner)
    targets = [target]
    for count, stride in outer:
        targets = [at + i * stride for at in targets for i in range(count)]
    starts = accumulate([source, *[size] * (len(targets) - 1)])
    yield from (Run(*item, inner) for item in zip(starts, targets, strict=True))
