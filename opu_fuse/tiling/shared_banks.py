"""Tiles of a product with a norm and of other layers that share banks of partial sums.

Post takes longer for a norm than the array for its product, and the array waits. If the array also
computes tiles of other layers into each bank, both are busy:

    array │ norm 0, other 0 → bank A │ norm 1, other 1 → bank B │ norm 2, other 2 → A │ …
    post                             │ other 0, norm 0 (A)      │ other 1, norm 1 (B) │ …
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace as with_fields
from functools import lru_cache
from itertools import chain, islice

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.tiling.candidates import Fit, candidates, overflow
from opu_fuse.tiling.estimate import PIECE_LATENCY, Estimate, estimate
from opu_fuse.tiling.tile import Tile, ceil_div, feature_words, input_blocks, output_blocks

Tiled = tuple[Shape, Tile]

_WIDTHS = 7
"""Widths of a norm's tiles that are tried, the widest ones that leave words of a bank."""
_SHARES = (1, 2, 3, 4, 6, 8)
"""Tiles of another layer in a bank that are tried."""

_BURST = 8
"""Words of a burst that memory transfers in about the time of a shorter one."""
_INSTRUCTION = 12
"""Cycles between two instructions of post."""


def due(slot: int, tiles: int, slots: int) -> int:
    """Tiles of other layers that are scheduled before the end of a slot, numbered from 1. The last
    slots have the most, since what their tiles read may still be on its way.
    """
    return slot * tiles // slots


@lru_cache(maxsize=1024)
def shared_tiles(
    norm: Tiled, others: tuple[Tiled, ...], added: Shape, hw: HwSpec
) -> tuple[tuple[Tile, Tile], ...]:
    """Tiles of the norm and of an added layer, with fewer predicted cycles first: for each width of
    the norm's tiles the best of the layer. Empty if no bank holds both.

    norm: of a product whose post has several passes, over one row of pixels. others: layers that
    share its banks already.
    """
    found: list[tuple[float, tuple[Tile, Tile]]] = []
    for own in narrower(*norm, hw):
        shared, slots = [(norm[0], own), *others], own.pieces(norm[0], hw)
        room = hw.buffers.psum.bank_words - sum(_words(*each, slots, hw) for each in shared)
        fits = [
            fit
            for share in (_SHARES if slots > 1 else ())
            for fit in _others(added, hw, room // share)
            if fit.tile.pieces(added, hw) <= share * slots
        ]
        if fits:
            load = _load(shared, slots, hw)
            loads = (load.plus(added, fit.tile, fit.cost, hw) for fit in fits)
            costs = [(load.cycles, fit.tile) for load, fit in zip(loads, fits, strict=True)]
            least, tile = min(costs, key=lambda cost: cost[0])
            found.append((least, (own, tile)))
    return tuple([tiles for _, tiles in sorted(found, key=lambda each: each[0])])


def whole_input_tiles(
    norm: Tiled, others: Sequence[Tiled], added: Shape, hw: HwSpec
) -> Iterator[tuple[Tile, Tile]]:
    """Yield tiles of the norm of several widths, and the largest tile of an added layer that reads
    its whole input at a time, where a bank holds both.
    """
    _, blocks = input_blocks(added, hw.word_channels, 0, output_blocks(added, hw))
    tiles = [fit.tile for fit in _others(added, hw, hw.buffers.psum.bank_words - 1)]
    whole = [t for t in tiles if t.in_blocks == blocks and t.kernel == added.window.kernel]
    if not whole:
        return
    tile = min(whole, key=lambda t: t.pieces(added, hw))
    for own in narrower(*norm, hw):
        layers, slots = [(norm[0], own), *others], own.pieces(norm[0], hw)
        words = sum(_words(*each, slots, hw) for each in (*layers, (added, tile)))
        if tile.pieces(added, hw) <= slots > 1 and words <= hw.buffers.psum.bank_words:
            yield own, tile


@lru_cache(maxsize=1024)
def slot_tiles(
    norm: Shape, own: Tile, others: tuple[Shape, ...], hw: HwSpec
) -> tuple[Tile, ...] | None:
    """Tiles of layers that share the banks of a norm in tiles of a size; None if no bank holds all.

    Each has the tile with the fewest predicted cycles among those that fit what the layers before
    it leave.
    """
    chosen: tuple[Tiled, ...] = ((norm, own),)
    for shape in others:
        added = tile_beside(chosen, shape, hw)
        if added is None:
            return None
        chosen = *chosen, (shape, added)
    return tuple([tile for _, tile in chosen[1:]])


@lru_cache(maxsize=1024)
def tile_beside(chosen: tuple[Tiled, ...], shape: Shape, hw: HwSpec) -> Tile | None:
    """The best tile of a layer next to others, of which the first is a norm; None if none fits."""
    norm, own = chosen[0]
    slots = own.pieces(norm, hw)
    room = hw.buffers.psum.bank_words - sum(_words(*each, slots, hw) for each in chosen)

    load = _load(chosen, slots, hw)

    def cost(tile: Tile) -> float:
        pieces = tile.pieces(shape, hw)
        return load.plus(shape, tile, estimate(shape, hw, tile), hw).cycles + _INSTRUCTION * pieces

    tiles = _slices(shape, own, slots, hw)
    return min((t for t in tiles if _words(shape, t, slots, hw) <= room), key=cost, default=None)


@lru_cache(maxsize=1024)
def product_tile(values: Shape, own: Tile, hw: HwSpec) -> Tile | None:
    """The fastest tile of a product that reads all probabilities of a tile of scores at a time;
    None where none fits.
    """
    blocks = output_blocks(values, hw)
    _, in_blocks = input_blocks(values, hw.word_channels, 0, blocks)
    size = {"images": own.images, "rows": own.rows, "cols": own.cols, "in_blocks": in_blocks}
    alike = (
        replace(fit.tile, **size)
        for fit in _others(values, hw, hw.buffers.psum.bank_words)
        if fit.tile.blocks == blocks
    )
    fits = (tile for tile in dict.fromkeys(alike) if _fits(values, tile, hw))
    return min(fits, key=lambda tile: estimate(values, hw, tile).total_cycles, default=None)


@lru_cache(maxsize=256)
def source_tiles(norm: Shape, own: Tile, source: Shape, share: int, hw: HwSpec) -> tuple[Tile, ...]:
    """Tiles of a layer, so many of which fit into a bank next to a norm in tiles of a size, faster
    ones first.
    """
    room = hw.buffers.psum.bank_words - _words(norm, own, own.pieces(norm, hw), hw)
    fits = _others(source, hw, room // share)
    return tuple([fit.tile for fit in sorted(fits, key=lambda fit: fit.cost.total_cycles)])


@lru_cache(maxsize=256)
def whole_tile(shape: Shape, hw: HwSpec) -> Tile | None:
    """The tile of a layer with the fewest cycles of the array and of pieces; None if none fits."""
    fits = _others(shape, hw, hw.buffers.psum.bank_words)

    def cost(fit: Fit) -> float:
        return fit.cost.compute_cycles + _INSTRUCTION * fit.tile.pieces(shape, hw)

    best = min(fits, key=cost, default=None)
    return best and best.tile


def _slices(shape: Shape, own: Tile, slots: int, hw: HwSpec) -> Iterator[Tile]:
    """Yield tiles of a layer, as many rows as those of a norm, or parts of a row."""
    for tile in (fit.tile for fit in _others(shape, hw, hw.buffers.psum.bank_words - 1)):
        yield tile
        if shape.images > 1:
            other = replace(tile, images=own.images, rows=shape.out_rows, cols=shape.out_cols)
        else:
            other = replace(tile, cols=ceil_div(shape.out_cols, slots))
        if other != tile and _fits(shape, other, hw):
            yield other


def _words(shape: Shape, tile: Tile, slots: int, hw: HwSpec) -> int:
    """Most words of partial sums of a layer in a slot."""
    words = tile.images * shape.words(tile.rows, tile.cols) * tile.blocks
    return ceil_div(tile.pieces(shape, hw), slots) * words


def narrower(norm: Shape, tile: Tile, hw: HwSpec) -> Iterator[Tile]:
    """Tiles of a norm of other sizes, the largest that fit: several whole rows, or parts of one."""
    if norm.out_rows > 1:
        heights = {ceil_div(norm.out_rows, parts): None for parts in range(1, norm.out_rows + 1)}
        lower = (replace(tile, images=1, rows=rows, cols=norm.out_cols) for rows in heights)
        yield from islice((each for each in lower if _fits(norm, each, hw)), _WIDTHS)
        return
    most = norm.images if norm.tiles_hold_images else 1
    images = {ceil_div(most, parts): None for parts in range(1, most)}
    several = (replace(tile, images=count, rows=1, cols=norm.out_cols) for count in images)
    least = ceil_div(norm.out_cols * tile.blocks, hw.buffers.psum.bank_words - 1)
    widths = {ceil_div(norm.out_cols, parts): None for parts in range(least, norm.out_cols + 1)}
    tiles = chain(several, (replace(tile, images=1, rows=1, cols=cols) for cols in widths))
    yield from islice((each for each in tiles if _fits(norm, each, hw)), _WIDTHS)


def _fits(norm: Shape, tile: Tile, hw: HwSpec) -> bool:
    size = tile.images * tile.rows, tile.cols
    words = feature_words(norm, hw, tile.rows, tile.cols, tile.kernel, tile.images)
    words *= tile.in_blocks
    fits = overflow(norm, hw, size, size, tile.blocks) is None
    return fits and words <= hw.buffers.feature.bank_words


@lru_cache(maxsize=256)
def _others(shape: Shape, hw: HwSpec, words: int) -> tuple[Fit, ...]:
    """Tiles of a layer of at most so many words of partial sums."""
    if words < 1:
        return ()
    psum = with_fields(hw.buffers.psum, words=words * hw.buffers.psum.banks)
    less = with_fields(hw, buffers=with_fields(hw.buffers, psum=psum))
    return tuple([c for c in candidates(shape, less) if isinstance(c, Fit)])


def _short_runs(shape: Shape, tile: Tile, hw: HwSpec) -> int:
    """Cycles of a tile's transfers beyond those of their bytes: each row of some columns is a burst
    of its own.
    """
    blocks = tile.in_blocks + min(tile.blocks, output_blocks(shape, hw))
    whole = tile.cols >= shape.out_cols
    return 0 if whole else blocks * tile.images * tile.rows * max(_BURST - tile.cols, 0)


class _Load(Struct, frozen=True):
    """Cycles of array and post in each slot, and of memory in all."""

    array: Sequence[float]
    post: Sequence[float]
    memory: float

    def plus(self, shape: Shape, tile: Tile, cost: Estimate, hw: HwSpec) -> "_Load":
        """The load with a further layer. cost: of its tiles."""
        tiles = tile.pieces(shape, hw)
        array, post, slots = [*self.array], [*self.post], len(self.array)
        before = 0
        for slot in range(slots):
            after = due(slot + 1, tiles, slots)
            share, before = (after - before) / tiles, after
            array[slot] += share * cost.compute_cycles
            post[(slot + 1) % slots] += share * cost.post_cycles
        memory = cost.dram_bytes / hw.dram.rate + tiles * _short_runs(shape, tile, hw)
        return _Load(array, post, self.memory + memory)

    @property
    def cycles(self) -> float:
        """Cycles of all slots: the array works on one, post on the one before; on the last one of
        the unit before, which is alike, during the first.
        """
        slots = sum(map(max, self.array, self.post)) + len(self.array) * PIECE_LATENCY
        return max(slots, self.memory)


def _load(layers: Sequence[Tiled], slots: int, hw: HwSpec) -> _Load:
    """The load of layers that share banks, the norm first."""
    load = _Load([0.0] * slots, [0.0] * slots, 0.0)
    for shape, tile in layers:
        load = load.plus(shape, tile, estimate(shape, hw, tile), hw)
    return load
