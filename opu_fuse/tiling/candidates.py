"""Choosing a tile: enumerate the candidates, drop those that do not fit, take the cheapest by
`cost.estimate`.
"""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.pixel_packing import can_fetch
from opu_fuse.layout.shape import POINT, Shape
from opu_fuse.tiling.chunks import count_loads
from opu_fuse.tiling.estimate import Estimate, estimate, weight_rows
from opu_fuse.tiling.tile import (
    POST_BUFFERS,
    Tile,
    ceil_div,
    feature_words,
    groups_per_block,
    input_blocks,
    input_segments,
    kernel_iterations,
    output_blocks,
    output_groups,
    own_rows,
    pre_pool_size,
    undivided,
)
from opu_fuse.units.base import ModuleKind
from opu_fuse.units.norm_pass import EXPONENTIALS
from opu_fuse.units.table import TABLE_WORDS

WIDTHS_TRIED = 2
"""Widest tiles tried per height and channel count: narrower ones move more halo for the same
work.
"""

MOST_LOADS = 1000
"""Feature and weight loads above which a layer with a large window gets a tile of fewer loads:
instructions of so many would dominate the program.
"""

SLOWER = 1.25
"""Factor by which the cycles of a layer may grow for fewer loads."""

LARGE_WINDOW = 4
"""Weight banks that the window of a channel block may fill before it counts as large."""


class Overflow(Struct, frozen=True, kw_only=True):
    """Why a tile does not fit: a buffer, the words needed and its capacity in words."""

    buffer: str
    needed: int
    limit: int

    @property
    def gap(self) -> int:
        return self.needed - self.limit


class Fit(Struct, frozen=True, kw_only=True):
    """A tile that fits, with its estimated cost. wait: cycles of a norm before for the pixels of
    the first tile.
    """

    tile: Tile
    cost: Estimate
    wait: int = 0

    def rank(self, *, co_scheduled: bool) -> tuple[float, int]:
        """Sort key; the lowest tile is chosen.

        It is the one with the fewest cycles, then the widest, whose first tile needs the fewest
        rows. A co-scheduled layer takes the largest tile, since its partner takes longer anyway.
        """
        tile = self.tile
        size = tile.images * tile.rows * tile.cols * tile.blocks
        return -size if co_scheduled else self.cost.total_cycles + self.wait, -tile.cols


class Refused(Struct, frozen=True, kw_only=True):
    """A tile size that does not fit.

    size: rows, columns and channel blocks;
    images: images of the batch per tile;
    why: the buffer that overflows.
    """

    size: tuple[int, int, int]
    images: int
    why: Overflow


def candidates(shape: Shape, hw: HwSpec, *, whole_buffers: bool = False) -> Iterator[Fit | Refused]:
    """Yield every tile that is tried, the largest first, in all loop orders.

    Of tiles that differ in columns only, the widest that fit are tried. whole_buffers: undivided
    tiles.
    """
    hw = undivided(hw) if whole_buffers else hw
    fits: Counter[tuple[int, int, int]] = Counter()
    orders: dict[int, list[tuple[int, bool]]] = {}
    for images, rows, blocks, cols in _sizes(shape, hw):
        if fits[images, rows, blocks] == WIDTHS_TRIED:
            continue
        pre_pool = pre_pool_size(shape, rows, cols, images)
        chunk = _in_chunk(shape, hw, pre_pool, blocks, images, parts=whole_buffers)
        if isinstance(chunk, Overflow):
            yield Refused(size=(rows, cols, blocks), images=images, why=chunk)
            continue
        final, summed = (images * rows, cols), (images * pre_pool[0], pre_pool[1])
        problem, whole_post = _overflow_of_post(shape, hw, final, summed, blocks)
        if problem is not None:
            yield Refused(size=(rows, cols, blocks), images=images, why=problem)
            continue
        if not whole_post:  # the widest tiles: they shall not keep narrower ones with two banks out
            fits[images, rows, blocks] += 1
        if blocks not in orders:
            orders[blocks] = list(loop_orders(shape, hw, blocks))
        for mode, outer in orders[blocks]:
            tile = Tile(
                rows=rows,
                cols=cols,
                blocks=blocks,
                mode=mode,
                in_blocks=chunk[0],
                kernel=chunk[1],
                weights_outer=outer,
                images=images,
                undivided=whole_buffers,
                whole_post=whole_post,
            )
            wait = _wait_for_norm(shape, hw, cols)
            yield Fit(tile=tile, cost=estimate(shape, hw, tile), wait=wait)


def _wait_for_norm(shape: Shape, hw: HwSpec, cols: int) -> int:
    """Cycles of statistics and result of a norm for the first tile of a layer of tokens.

    Post normalises the next tile while the array computes this one, if there are several. What
    computes the operand is not known here; other layers lose little by narrower tiles.
    """
    tokens = shape.out_rows * shape.images == 1 and shape.window == POINT
    if not (hw.has(ModuleKind.NORM) and tokens and shape.array) or shape.computed or shape.passes:
        return 0
    return 2 * cols * ceil_div(shape.in_channels, hw.word_channels) * hw.cycles_per_word


def choose_tile(
    name: str, shape: Shape, hw: HwSpec, *, co_scheduled: bool = False
) -> tuple[Tile, Estimate]:
    """The fit of the lowest rank. co_scheduled: another group's tiles are interleaved with its own,
    so that tiles which need whole buffers come last.

    Raises DoesNotFit, with the smallest gap seen, when no tile fits.
    """
    best = _best(shape, hw, co_scheduled=co_scheduled)
    if isinstance(best, Fit):
        return best.tile, best.cost
    raise DoesNotFit(
        name,
        f"its smallest tile needs {best.needed} words of the {best.buffer} buffer, a bank holds "
        f"{best.limit}",
        f"raise buffers.{best.buffer}.words in the spec, or split the operator",
    )


@lru_cache(maxsize=4096)
def _best(shape: Shape, hw: HwSpec, *, co_scheduled: bool) -> Fit | Overflow:
    """The fit of the lowest rank, or the smallest gap. Layers alike share a search, also across
    repeated partitions.
    """
    whole = (False, True) if shape.whole_map else (False,)
    tried = [c for each in whole for c in candidates(shape, hw, whole_buffers=each)]
    fits = [c for c in tried if isinstance(c, Fit)]
    if not fits:
        gaps = [c.why for c in tried if isinstance(c, Refused)]
        # Of a norm the smallest tile's: a larger buffer for others does not help.
        return gaps[-1] if shape.passes else min(gaps, key=lambda why: why.gap)
    if co_scheduled:
        fits = [fit for fit in fits if not fit.tile.whole_buffers] or fits
    best = min(fits, key=lambda c: c.rank(co_scheduled=co_scheduled))
    if has_many_loads(shape, hw, best.tile):
        best = _with_fewer_loads(shape, hw, fits, SLOWER * best.cost.total_cycles)
    return best


def has_large_window(shape: Shape, hw: HwSpec, tile: Tile) -> bool:
    """Whether tiles split the kernel, or weight banks hold only a small part of it."""
    if not shape.array or shape.depthwise:
        return shape.array and tile.kernel != shape.window.kernel
    mode = hw.array.modes[tile.mode]
    rows = prod(kernel_iterations(shape, mode, hw)) * groups_per_block(mode, hw)
    banks = rows * hw.mode_row_words(mode) / hw.buffers.weight.bank_words
    return tile.kernel != shape.window.kernel or banks > LARGE_WINDOW


def has_many_loads(shape: Shape, hw: HwSpec, tile: Tile) -> bool:
    """Whether the parts of a large window take more loads than tiles are chosen by their cycles."""
    return has_large_window(shape, hw, tile) and count_loads(shape, tile, hw) > MOST_LOADS


def _with_fewer_loads(shape: Shape, hw: HwSpec, fits: list[Fit], cycles: float) -> Fit:
    """The tile of the fewest loads among those of at most `cycles` cycles, undivided ones included.

    The array computes so long with a part of a large window that it may wait for the next part.
    """
    whole = (c for c in candidates(shape, hw, whole_buffers=True) if isinstance(c, Fit))
    near = [c for c in (*fits, *whole) if c.cost.total_cycles <= cycles]
    return min(near, key=lambda c: (count_loads(shape, c.tile, hw), c.rank(co_scheduled=False)))


def _sizes(shape: Shape, hw: HwSpec) -> Iterator[tuple[int, int, int, int]]:
    """Candidate (images, rows, blocks, cols), each an even cut of its extent, largest first."""
    blocks = output_blocks(shape, hw)
    if shape.whole_map:
        yield 1, shape.out_rows, blocks, shape.out_cols
        return
    block_cuts = [blocks] if shape.passes else _cuts(blocks)
    col_cuts, row_cuts = _cuts(ceil_div(shape.out_cols, shape.px)), _cuts(shape.out_rows)
    if shape.passes:  # few pixels fit: each counts
        pieces = ceil_div(shape.out_cols, max(1, hw.buffers.psum.bank_words // blocks))
        col_cuts = sorted({*col_cuts, ceil_div(shape.out_cols, pieces)}, reverse=True)
    if shape.permute is not None:
        own = shape.permute.cuts()
        row_cuts = sorted({*row_cuts, *own[0]}, reverse=True)
        col_cuts = sorted({*own[1], *(col_cuts if shape.column_parts == 1 else ())}, reverse=True)
    image_cuts = _cuts(shape.images) if shape.tiles_hold_images else []
    several = [(images, shape.out_rows) for images in image_cuts if images > 1]
    for images, rows in [*several, *((1, rows) for rows in row_cuts)]:
        for count in block_cuts:
            for cols in col_cuts:
                yield images, rows, count, min(cols * shape.px, shape.out_cols)


def _cuts(extent: int) -> list[int]:
    """Sizes of even cuts of `extent` into 1 .. 16 parts, then into powers of two and single
    elements, without repeats.
    """
    doubled = (1 << n for n in range(6, extent.bit_length()))
    parts = [*range(1, 17), 20, 24, 32, 48, *doubled, extent]
    return sorted({ceil_div(extent, p) for p in parts if p <= extent}, reverse=True)


def _in_chunk(
    shape: Shape, hw: HwSpec, pre_pool: tuple[int, int], blocks: int, images: int, *, parts: bool
) -> tuple[int, tuple[int, int]] | Overflow:
    """Input blocks and kernel part per feature chunk: as much as a feature bank holds.

    The kernel is cut only if the window of one pixel takes more than half a bank (parts: if it does
    not fit). Tiles of more pixels then read the same rows for all of them, so that a few kernel
    rows at a time load less.
    """
    limit = hw.buffers.feature.bank_words
    _, inputs = input_blocks(shape, hw.word_channels, 0, blocks)
    kernel = shape.window.kernel
    block_words = feature_words(shape, hw, *pre_pool, kernel, images)
    needed = block_words * blocks
    if not shape.array or (shape.depthwise and (needed <= limit or blocks > 1)):
        over = Overflow(buffer="feature", needed=needed, limit=limit)
        return over if over.gap > 0 else (blocks, kernel)
    if block_words <= limit:
        most = limit // block_words
        if shape.pre and hw.buffers.pre is not None:
            words = shape.pre_words * (images if shape.gated else 1)
            if words > hw.buffers.pre.bank_words:
                return Overflow(buffer="pre", needed=words, limit=hw.buffers.pre.bank_words)
            most = min(most, hw.buffers.pre.bank_words // words)
        return min(most, inputs), kernel
    if images == 1 and (parts or feature_words(shape, hw, 1, 1, kernel) > limit // 2):
        part = _kernel_part(shape, hw, pre_pool)
        if part is not None:
            most = limit // feature_words(shape, hw, *pre_pool, part)
            return 1 if shape.depthwise else min(most, inputs), part
    return Overflow(buffer="feature", needed=block_words, limit=limit)


def _kernel_part(shape: Shape, hw: HwSpec, pre_pool: tuple[int, int]) -> tuple[int, int] | None:
    """The largest part of a kernel, whole rows of it where possible, whose input under a tile
    of pre-pool pixels fits a feature bank. None: not even that of one row and iteration does.
    """
    limit, (rows, cols) = hw.buffers.feature.bank_words, shape.window.kernel
    down, across = 1, min(hw.word_bytes // shape.slot, cols)  # of one compute instruction, at least
    if shape.depthwise:
        down, across = min(hw.array.window_side, rows), min(hw.array.window_side, cols)
    # Windows of a sum share their weights. A single pixel waits for its weights, and reads nothing
    # twice: with few rows per load, the first ones are ready sooner.
    most = down if shape.sums or (shape.pre_pool_rows, shape.pre_pool_cols) == (1, 1) else rows
    tall = ((count, cols) for count in range(most // down * down, 0, -down))
    narrow = ((down, count) for count in range(cols // across * across, 0, -across))
    fits = (
        part for part in chain(tall, narrow) if feature_words(shape, hw, *pre_pool, part) <= limit
    )
    return next(fits, None)


def equal_chunks(shape: Shape, tile: Tile, hw: HwSpec, times: int = 1) -> Tile:
    """The tile with input channels in equal chunks, `times` as many: a slow memory cannot load a
    large one while the array uses a small one.
    """
    if not shape.array or shape.depthwise:
        return tile
    _, several = input_blocks(shape, hw.word_channels, 0, tile.blocks)
    chunks = min(times * ceil_div(several, tile.in_blocks), several)
    return replace(tile, in_blocks=ceil_div(several, chunks))


def _overflow_of_post(
    shape: Shape, hw: HwSpec, final: tuple[int, int], pre_pool: tuple[int, int], blocks: int
) -> tuple[Overflow | None, bool]:
    """The bank that a tile overflows, if any, and whether it needs whole buffers of post.

    Products of two maps share banks with other layers, and do not get these.
    """
    problem = overflow(shape, hw, final, pre_pool, blocks)
    norm_of_sum = shape.passes and shape.sides and not shape.computed
    if problem is None or problem.buffer not in POST_BUFFERS or not norm_of_sum:
        return problem, False
    return overflow(shape, undivided(hw, POST_BUFFERS), final, pre_pool, blocks), True


def overflow(
    shape: Shape,
    hw: HwSpec,
    final: tuple[int, int],
    pre_pool: tuple[int, int],
    blocks: int,
    *,
    stacked: bool = False,
) -> Overflow | None:
    """The bank that a tile overflows, features aside; None if it fits.

    final, pre_pool: its final and pre-pool rows and columns. stacked: in a fused stack, where
    several post instructions may compute a norm, each with statistics of its own.
    """
    buffers, several = hw.buffers, stacked or shape.column_parts > 1
    pixels, stored = shape.words(*pre_pool), shape.stored_words(*final)
    # All passes of a norm read the second operands of all blocks. Results may be a few at a time.
    at_once = blocks if shape.passes and (shape.sides or several) else 1
    demands = [
        ("psum", pixels * blocks, buffers.psum.bank_words),
        ("output", stored * at_once, buffers.output.bank_words),
        ("param", blocks * shape.param_words, buffers.param.bank_words),
    ]
    if shape.sides:
        words = sum(shape.side_words(pixels, stored))
        demands.append(("residual", words * at_once, buffers.residual.bank_words))
    if shape.stores_halo(final[0]):
        demands.append(("residual", final[1], buffers.residual.bank_words))
    if shape.tables and buffers.table is not None:
        demands.append(("table", shape.tables * TABLE_WORDS, buffers.table.bank_words))
    if shape.exponentials and buffers.norm is not None:
        demands.append(("norm", EXPONENTIALS, buffers.norm.bank_words))
    if shape.depthwise:
        needed = blocks * hw.word_parts * hw.row_words
        demands.append(("weight", needed, buffers.weight.bank_words))
    elif shape.array:
        at_a_time = 1 if shape.passes else blocks  # all blocks of a norm: groups one by one
        most = at_a_time * hw.word_channels**2 // hw.macs
        demands.append(("weight", most * hw.row_words, buffers.weight.bank_words))
    for buffer, needed, limit in demands:
        if needed > limit:
            return Overflow(buffer=buffer, needed=needed, limit=limit)
    return None


def loop_orders(shape: Shape, hw: HwSpec, blocks: int) -> Iterator[tuple[int, bool]]:
    """(mode, whether weight-stationary) of tiles of `blocks` channel blocks."""
    if not shape.array:
        yield 0, False
        return
    if shape.depthwise:
        yield 0, False
        yield 0, True
        return
    inputs, total = input_blocks(shape, hw.word_channels, 0, blocks), output_blocks(shape, hw)
    typical = int(shape.first_lane > 0 and blocks < total)  # not the partial one
    own = blocks == total > 1 and total - 1 in own_rows(shape, hw, inputs)
    work = {}
    for index, mode in enumerate(hw.array.modes):
        # Pixels of a map that are weights begin a group.
        if not can_fetch(shape, mode, hw) or (shape.computed and shape.first_lane % mode.oc):
            continue
        if shape.needed is not None:  # of all blocks: they differ
            work.setdefault(weight_rows(shape, mode, hw, inputs, blocks), index)
            continue
        segments = input_segments(shape, mode, hw, *inputs) * shape.sweeps(mode)
        work.setdefault(segments * output_groups(shape, mode, hw, typical, blocks - own), index)
    best = work[min(work)]
    yield best, False
    yield best, True
