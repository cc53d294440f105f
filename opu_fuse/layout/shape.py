"""Sizes of one pass through the machine, as tiling, cost and scheduling need them.

Coordinates: *input* pixels feed the array (or the copy path), *pre-pool* pixels are its results
(partial sums), *final* pixels leave the post chain. Without pooling, pre-pool and final pixels are
the same.
"""

import math

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.hw.im2row_window import row_words
from opu_fuse.hw.spec.hw_spec import HwSpec, Mode
from opu_fuse.layout.permutation import Permutation
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
        """Source rows or columns that kernel positions k0 .. k1 - 1 alone read; see `span`."""
        d = self.dilations[axis]
        begin = first * self.strides[axis] - self.pads[axis] + k0 * d
        end = begin + (count - 1) * self.strides[axis] + (k1 - k0 - 1) * d + 1
        start = min(max(begin, 0), extent - 1)
        stop = max(min(end, extent), start + 1)
        return start, stop, begin - start

    def reads(self, axis: int, count: int, extent: int) -> int:
        """Number of source rows (axis 0) or columns (axis 1) that `count` outputs read.

        For windows without dilation. Strides larger than the kernel leave gaps, which do not count.
        """
        start, stop, _ = self.span(axis, 0, count, extent)
        return stop - start - (count - 1) * max(self.strides[axis] - self.kernel[axis], 0)


POINT = Window(kernel=(1, 1))


class Side(Struct, frozen=True, kw_only=True):
    """A map that a post stage reads from the residual buffer.

    before_pool: the stage precedes the pool and reads at pre-pool pixels, else at final ones;
    broadcast: one pixel serves all.
    """

    before_pool: bool = False
    broadcast: bool = False


class Im2row(Struct, frozen=True, kw_only=True):
    """The im2row transform that `load.unfold` applies to an input map."""

    kernel_rows: int
    """Rows of the window."""
    stride: int
    """Rows between windows."""
    pad: int
    """Padding rows above an image."""
    in_rows: int
    """Rows of an image before the transform."""
    rows: int
    """Rows of an image after the transform: one per output row."""
    words: int
    """Words of an image row before the transform."""

    def row_words(self, words: int) -> int:
        """Feature words of an im2row row that is built from `words` image words."""
        return row_words(words, self.kernel_rows)


class Cells(Struct, frozen=True, kw_only=True):
    """Sparsity map of weights, by cell of lanes.

    out, inner: output and input lanes of a cell; size: shape of the bitmap (cells of output lanes,
    cells of input lanes, kernel rows, kernel columns); bits: the packed bitmap, 1 if any weight of
    the cell is not zero.
    """

    out: int
    inner: int
    size: tuple[int, int, int, int]
    bits: bytes

    @property
    def array(self) -> np.ndarray:
        """The bitmap as bool array of shape `size`."""
        bits = np.frombuffer(self.bits, np.uint8)
        return np.unpackbits(bits, count=math.prod(self.size)).reshape(self.size).astype(bool)

    def from_lane(self, lane: int) -> "Cells":
        """The cells of the output lanes from a multiple of `out` on."""
        left = self.array[lane // self.out :]
        return replace(self, size=left.shape, bits=np.packbits(left).tobytes())


class Shape(Struct, frozen=True, kw_only=True):
    """Sizes of a layer. Channels are counted in lanes, holes included."""

    array: bool
    """Whether the inner-product array runs, else the copy path."""
    in_channels: int
    in_rows: int
    in_cols: int
    slot: int
    """Bytes of an input pixel in a feature word (word_bytes: one pixel per word)."""
    window: Window
    """Window of the convolution; stride and padding of the copy path."""
    groups: int
    """Groups of the convolution."""
    pre_pool_channels: int
    pre_pool_rows: int
    pre_pool_cols: int
    pool: Window | None
    """Window of the pool, None without pooling."""
    out_rows: int
    out_cols: int
    sides: tuple[Side, ...] = ()
    """Maps that post stages read."""
    tables: int = 0
    """Tables that post stages look up."""
    depthwise: bool = False
    """One filter per lane, computed window by window."""
    pre: int = 0
    """Units before the array that the input passes."""
    gated: bool = False
    """The only unit before the array multiplies by a gate."""
    upsample: tuple[int, int] = (1, 1)
    """Rows and columns stored per final pixel."""
    in_runs: tuple[tuple[int, int], ...] = ()
    """(first lane, lanes) of the runs of lanes that hold input channels, ascending; (): all of
    `in_channels` do."""
    px: int = 1
    """Neighbouring pixels in a partial-sum word. Also in an output and a residual word, unless
    `spread`."""
    spread: bool = False
    """Post writes one pixel per output word although partial-sum words hold `px`."""
    out_slot: int = 0
    """With `spread`, the slot of an output and a residual word whose lanes hold the channels;
    channels are counted from its first lane."""
    first_lane: int = 0
    """Lane of the first output channel."""
    pool_kind: PoolKind = PoolKind.MAX
    """Kind of the pool; meaningless without one."""
    param_words: int = 0
    """Parameter words of post per channel block."""
    sums: bool = False
    """Every weight of the depthwise window is 1."""
    images: int = 1
    """Images of these sizes, stacked along the rows, whose windows do not overlap
    (`layout/batch.py`). Also the token sequences of a product by rows."""
    phased: bool = False
    """The pass computes only some rows and columns of its map (one phase of a sub-pixel
    decomposition)."""
    needed: Cells | None = None
    """Sparsity map of the weights' first int8 term; None: all its weight rows are multiplied."""
    further: tuple[Cells, ...] = ()
    """Sparsity maps of the second and later int8 terms, where weights are the sum of several."""
    pools_with_halo: bool = False
    """A tile stores a pooling halo for its successor: the largest values of the rows that windows
    of both read."""
    computed: bool = False
    """The weights are a map: its pixels are the output channels."""
    zeros: bool = False
    """Unused lanes of the output are zero, since a product of two maps reads them."""
    repacks: bool = False
    """The channels are copied so that words hold several pixels, each in a slot of its own."""
    unit: bool = False
    """The input is the unit matrix, a constant. Weights are computed."""
    passes: int = 0
    """Passes of post over a tile before the one with results: they compute statistics of pixels,
    from all channels."""
    exponentials: bool = False
    """A post stage looks up exponentials."""
    whole_map: bool = False
    """The statistics of these passes are of a whole map (of each image), so that a tile is one."""
    permute: Permutation | None = None
    """The store permutes the pixels."""
    im2row: Im2row | None = None
    """The input is an im2row map, whose columns have `slot` bytes (any number)."""

    def words(self, rows: int, cols: int) -> int:
        """Partial-sum words of one channel block of rows × cols pixels."""
        return rows * -(-cols // self.px)

    def sweeps(self, mode: Mode) -> int:
        """Instructions that compute the pixels of a word, each those of some slots."""
        return self.px // mode.px if self.repacks else 1

    @property
    def stored_px(self) -> int:
        """Neighbouring pixels in an output and a residual word."""
        return 1 if self.spread else self.px

    def stored_words(self, rows: int, cols: int) -> int:
        """Output words of one channel block of rows × cols pixels."""
        return rows * -(-cols // self.stored_px)

    def side_words(self, pre_pool: int, final: int) -> tuple[int, ...]:
        """Residual words of one channel block, by side.

        pre_pool, final: words of the block before and after the pool.
        """
        return tuple(
            1 if side.broadcast else pre_pool if side.before_pool else final for side in self.sides
        )

    def side_cols(self, side: Side) -> int:
        """Columns of the map that a side reads."""
        return 1 if side.broadcast else self.pre_pool_cols if side.before_pool else self.out_cols

    @property
    def kernel(self) -> tuple[int, int]:
        """Rows and columns of the convolution's kernel."""
        rows, cols = self.window.kernel
        return (rows if self.im2row is None else self.im2row.kernel_rows), cols

    @property
    def tiles_hold_images(self) -> bool:
        """Whether a tile may hold several images: their rows are contiguous, and no second operand
        is one pixel, which serves the whole tile.
        """
        return not (self.phased or self.im2row or any(side.broadcast for side in self.sides))

    @property
    def column_parts(self) -> int:
        """Instructions in which post reads a tile's columns, each those of one digit
        (`Permutation.strided`).
        """
        strided = None if self.permute is None else self.permute.strided
        return 1 if strided is None else strided.size

    @property
    def column(self) -> int:
        """Columns of a compute tile per input pixel: `slot` for im2row maps, which count bytes."""
        return 1 if self.im2row is None else self.slot

    @property
    def column_bytes(self) -> int:
        """Bytes of one column of a compute tile: the slot size that the compute engine uses."""
        return self.slot // self.column

    @property
    def pre_words(self) -> int:
        """Words per channel block that the units before the array load: constants, or a gate."""
        return 1 if self.gated else PARAM_WORDS * self.pre

    @property
    def pre_constants(self) -> int:
        """Words per channel block of `pre_words` that are constants."""
        return 0 if self.gated else self.pre_words

    def packed(self, hw: HwSpec, read: int, written: int) -> "Shape":
        """This shape with slots of `read` bytes for input and `written` bytes for output pixels."""
        px = hw.word_bytes // written
        return replace(self, slot=read, px=px, pools_with_halo=self.pools_with_halo and px == 1)

    @property
    def halo_rows(self) -> int:
        """Pre-pool rows of the pooling halo: two tiles read them, the upper one computes them."""
        pool = self.pool_window
        return pool.kernel[0] - pool.strides[0] if self.pools_with_halo else 0

    def reads_halo(self, row: int) -> bool:
        """Whether a tile reads the pooling halo of its predecessor.

        row: first final row of the tile, counted across all images.
        """
        return self.pools_with_halo and row % self.out_rows != 0

    def stores_halo(self, rows: int) -> bool:
        """Whether a tile of `rows` final rows has a successor that reads its pooling halo."""
        return self.pools_with_halo and rows < self.out_rows

    @property
    def pool_window(self) -> Window:
        return self.pool or POINT
