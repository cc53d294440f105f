"""Geometry of one pass through the machine: what tiling, cost and scheduling need to know about
a group.

Coordinates: *input* pixels feed the array (or the copy path), *mid* pixels are its results
(partial sums), *final* pixels leave the post chain. Without pooling mid and final are the same.
"""

import math

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.hw.im2row_window import row_words
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.units.array import PARAM_WORDS
from opu_fuse.units.pool import PoolKind


class Window(Struct, frozen=True, kw_only=True):
    """A sliding window: kernel, strides, dilations as (rows, cols); pads as (top, left, bottom,
    right).
    """

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)

    def span(self, axis: int, first: int, count: int, extent: int) -> tuple[int, int, int]:
        """Source rows (axis 0) or columns (axis 1) read for outputs first .. first + count - 1.

        Returns (start, stop, origin): start and stop are clipped to 0 .. extent (at least one
        element), origin is where output `first` begins, relative to start (negative inside the
        padding).
        """
        return self.part_span(axis, first, count, extent, 0, self.kernel[axis])

    def part_span(
        self, axis: int, first: int, count: int, extent: int, k0: int, k1: int
    ) -> tuple[int, int, int]:
        """The same for kernel positions k0 .. k1 - 1 only."""
        d = self.dilations[axis]
        begin = first * self.strides[axis] - self.pads[axis] + k0 * d
        end = begin + (count - 1) * self.strides[axis] + (k1 - k0 - 1) * d + 1
        start = min(max(begin, 0), extent - 1)
        stop = max(min(end, extent), start + 1)
        return start, stop, begin - start

    def reads(self, axis: int, count: int, extent: int) -> int:
        """Of so many source rows or columns, those that some of `count` outputs reads. Windows
        without dilation only: between them there may be gaps.
        """
        start, stop, _ = self.span(axis, 0, count, extent)
        return stop - start - (count - 1) * max(self.strides[axis] - self.kernel[axis], 0)


POINT = Window(kernel=(1, 1))


class Side(Struct, frozen=True, kw_only=True):
    """A map that a stage reads from the residual buffer: at mid pixels if the stage stands before
    the pool, else at final ones. broadcast: one pixel stands for all.
    """

    before_pool: bool = False
    broadcast: bool = False


class Im2row(Struct, frozen=True, kw_only=True):
    """What unfolded rows are made of. kernel_rows, stride, pad: rows of the window, between windows
    and above the image; in_rows, words: of an image, and image words of its rows; rows: unfolded
    ones of an image.
    """

    kernel_rows: int
    stride: int
    pad: int
    in_rows: int
    rows: int
    words: int

    def row_words(self, words: int) -> int:
        """Feature words of an unfolded row that is made of so many image words."""
        return row_words(words, self.kernel_rows)


class Cells(Struct, frozen=True, kw_only=True):
    """Where weights are not zero. out, inner: output and input lanes of a cell; size: of the bits,
    (cells of output lanes, cells of input lanes, kernel rows, kernel columns).
    """

    out: int
    inner: int
    size: tuple[int, int, int, int]
    bits: bytes

    @property
    def array(self) -> np.ndarray:
        """bool, in this size."""
        bits = np.frombuffer(self.bits, np.uint8)
        return np.unpackbits(bits, count=math.prod(self.size)).reshape(self.size).astype(bool)


class Shape(Struct, frozen=True, kw_only=True):
    """Sizes of a layer. slot: bytes an input pixel takes in a feature word (word_bytes: a full
    word).

    array: whether the inner-product array runs (else the copy path); depthwise: one filter per
    lane, by windows; groups: of the convolution; window: of the convolution (stride and padding of
    the copy path); pool: None without pooling; sides: maps that stages read; tables: that stages
    look up; pre: units before the array that the input passes; gated: the one unit before the array
    multiplies by a gate; upsample: rows and columns stored per final pixel; px: neighbouring pixels
    in a partial-sum word, and in an output and a residual word unless post spreads them;
    first_lane: of the first output channel; pool_kind: where there is a pool; param_words: of post,
    for a channel block; sums: every weight of a depthwise window is 1; images: so many of these
    sizes below each other, whose windows do not see each other (`layout/batch.py`); phased: it
    makes some rows and columns of its map; further: where weights are the sum of several int8,
    what is not zero of each but the first; carries: a tile finds the maxima of rows that windows of
    the tile below see, too, for that one; im2row: its input is a map of unfolded rows, whose
    columns take `slot` bytes, any number. Channels are counted in lanes, holes included.
    """

    array: bool
    in_channels: int
    in_rows: int
    in_cols: int
    slot: int
    window: Window
    groups: int
    pre_pool_channels: int
    pre_pool_rows: int
    pre_pool_cols: int
    pool: Window | None
    out_rows: int
    out_cols: int
    sides: tuple[Side, ...] = ()
    tables: int = 0
    depthwise: bool = False
    pre: int = 0
    gated: bool = False
    upsample: tuple[int, int] = (1, 1)
    px: int = 1
    spread: bool = False
    first_lane: int = 0
    pool_kind: PoolKind = PoolKind.MAX
    param_words: int = 0
    sums: bool = False
    images: int = 1
    phased: bool = False
    further: tuple[Cells, ...] = ()
    carries: bool = False
    im2row: Im2row | None = None

    def words(self, rows: int, cols: int) -> int:
        """Partial-sum words of one channel block of rows × cols pixels."""
        return rows * -(-cols // self.px)

    @property
    def stored_px(self) -> int:
        """Neighbouring pixels in an output and a residual word."""
        return 1 if self.spread else self.px

    def stored_words(self, rows: int, cols: int) -> int:
        """Output words of one channel block of rows × cols pixels."""
        return rows * -(-cols // self.stored_px)

    def side_words(self, pre_pool: int, final: int) -> tuple[int, ...]:
        """Residual words of one channel block of every side, beside so many mid and final words."""
        return tuple(
            1 if side.broadcast else pre_pool if side.before_pool else final for side in self.sides
        )

    @property
    def kernel(self) -> tuple[int, int]:
        """Rows and columns of the convolution's kernel."""
        rows, cols = self.window.kernel
        return (rows if self.im2row is None else self.im2row.kernel_rows), cols

    @property
    def column(self) -> int:
        """Columns of compute's tiles for a pixel: unfolded ones count bytes."""
        return 1 if self.im2row is None else self.slot

    @property
    def column_bytes(self) -> int:
        """Bytes of such a column: what compute takes for a slot."""
        return self.slot // self.column

    @property
    def pre_words(self) -> int:
        """Words of a channel block that the units before the array are given: constants, a gate."""
        return 1 if self.gated else PARAM_WORDS * self.pre

    @property
    def pre_constants(self) -> int:
        """Those of them that are constants."""
        return 0 if self.gated else self.pre_words

    def packed(self, hw: HwSpec, read: int, written: int) -> "Shape":
        """With slots of `read` and `written` bytes for its pixels in memory."""
        px = hw.word_bytes // written
        return replace(self, slot=read, px=px, carries=self.carries and px == 1)

    @property
    def carried(self) -> int:
        """Mid rows that two tiles see, one above the other, and only the upper one makes."""
        pool = self.pool_window
        return pool.kernel[0] - pool.strides[0] if self.carries else 0

    def reads_halo(self, row: int) -> bool:
        """Whether a tile that begins with a final row, counted through all images, finds maxima of
        the tile above.
        """
        return self.carries and row % self.out_rows != 0

    def stores_halo(self, rows: int) -> bool:
        """Whether a tile of so many final rows has one below that finds its maxima."""
        return self.carries and rows < self.out_rows

    @property
    def pool_window(self) -> Window:
        return self.pool or POINT
