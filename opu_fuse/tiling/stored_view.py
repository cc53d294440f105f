"""How a layer sees its maps as they are stored: slots, unfolded rows, maxima that tiles leave."""

from collections.abc import Iterator
from functools import lru_cache

from msgspec.structs import replace

from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.tiling.candidates import choose_tile
from opu_fuse.tiling.estimate import Estimate
from opu_fuse.tiling.im2row import array_cycles, im2row

HIDDEN = 2
"""Times as long as post the array takes where a tile may wait for the maxima of the one above."""


@lru_cache(maxsize=1024)
def stored_shape(shape: Shape, hw: HwSpec, read: int, written: int) -> Shape:
    """`Shape.packed`, unfolded where the machine can and the layer takes fewer cycles then; in a
    mode of several pixels, which post spreads, or with maxima carried from tile to tile where the
    closed form finds that faster.
    """
    plain = shape.packed(hw, read, written)
    found = im2row(plain, hw) or plain
    for spread in _spreads(plain, hw):
        other = im2row(spread, hw) or spread
        if _fewer(other, found, hw) and _faster(other, found, hw):
            found = other
    if not found.carries:
        return found
    alone = replace(found, carries=False)
    with_it, without = _estimate(found, hw), _estimate(alone, hw)
    if with_it is None or without is None:
        return alone
    # Tiles then wait for post and for the memory, which has to be hidden behind the array.
    hidden = with_it.compute_cycles >= HIDDEN * with_it.post_cycles
    return found if hidden and with_it.total_cycles < without.total_cycles else alone


def _spreads(shape: Shape, hw: HwSpec) -> Iterator[Shape]:
    """With several pixels in a partial-sum word, where post can give each a word of its own: it
    pools nothing and reads no other map.
    """
    if not shape.array or shape.depthwise or shape.pre or shape.px > 1 or shape.pool or shape.sides:
        return
    for px in sorted({mode.px for mode in hw.array.modes} - {1}):
        if shape.pre_pool_channels * px <= hw.word_channels:
            yield replace(shape, px=px, spread=True)


def _fewer(shape: Shape, than: Shape, hw: HwSpec) -> bool:
    """Whether the array takes fewer cycles."""
    now, then = array_cycles(than, hw), array_cycles(shape, hw)
    return then is not None and (now is None or then < now)


def _faster(shape: Shape, than: Shape, hw: HwSpec) -> bool:
    """Whether the closed form finds a layer faster."""
    now, then = _estimate(than, hw), _estimate(shape, hw)
    return then is not None and now is not None and then.total_cycles < now.total_cycles


def _estimate(shape: Shape, hw: HwSpec) -> Estimate | None:
    """Of the best tile; None: none fits."""
    try:
        return choose_tile("", shape, hw)[1]
    except DoesNotFit:
        return None
