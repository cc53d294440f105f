"""The stored view of a layer's maps: slots, im2row rows, pooling halos."""

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
"""Least ratio of array to post cycles at which the wait for a pooling halo is hidden."""


@lru_cache(maxsize=1024)
def stored_shape(shape: Shape, hw: HwSpec, read: int, written: int) -> Shape:
    """Return `Shape.packed` in its fastest form.

    im2row on load is used where it saves array cycles. A mode of several pixels, which post
    spreads, or pooling halos are used where the closed form predicts fewer cycles.
    """
    plain = shape.packed(hw, read, written)
    best = im2row(plain, hw) or plain
    for spread in _spreads(plain, hw):
        other = im2row(spread, hw) or spread
        if _fewer(other, best, hw) and _faster(other, best, hw):
            best = other
    if not best.pools_with_halo:
        return best
    no_halo = replace(best, pools_with_halo=False)
    with_halo, without = _estimate(best, hw), _estimate(no_halo, hw)
    if with_halo is None or without is None:
        return no_halo
    # Tiles then wait for post and memory; long array times hide that latency.
    hidden = with_halo.compute_cycles >= HIDDEN * with_halo.post_cycles
    return best if hidden and with_halo.total_cycles < without.total_cycles else no_halo


def _spreads(shape: Shape, hw: HwSpec) -> Iterator[Shape]:
    """Yield forms with several pixels per partial-sum word, which post spreads over output words.

    Post can do so if it neither pools nor reads another map, nor normalises pixels.
    """
    if not shape.array or shape.depthwise or shape.pre or shape.px > 1 or shape.pool or shape.sides:
        return
    if shape.computed or shape.zeros or shape.passes:
        return
    for px in sorted({mode.px for mode in hw.array.modes} - {1}):
        if shape.pre_pool_channels * px <= hw.word_channels:
            yield replace(shape, px=px, spread=True)


def _fewer(shape: Shape, than: Shape, hw: HwSpec) -> bool:
    """Whether the array takes fewer cycles."""
    now, then = array_cycles(than, hw), array_cycles(shape, hw)
    return then is not None and (now is None or then < now)


def _faster(shape: Shape, than: Shape, hw: HwSpec) -> bool:
    """Whether the closed form predicts fewer cycles."""
    now, then = _estimate(than, hw), _estimate(shape, hw)
    return then is not None and now is not None and then.total_cycles < now.total_cycles


def _estimate(shape: Shape, hw: HwSpec) -> Estimate | None:
    """Estimate of the best tile; None if none fits."""
    try:
        return choose_tile("", shape, hw)[1]
    except DoesNotFit:
        return None
