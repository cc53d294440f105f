"""The form of a layer's shape that runs fastest: im2row, pixels per word, pooling halos."""

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
def fastest_shape(shape: Shape, hw: HwSpec, in_slot: int, out_slot: int) -> Shape:
    """Return `Shape.packed` in its fastest form.

    in_slot, out_slot: bytes of an input and of an output pixel in a word.

    im2row on load is used where it saves array cycles. A mode of several pixels, which post
    spreads, or pooling halos are used where the closed form predicts fewer cycles.
    """
    packed = shape.packed(hw, in_slot, out_slot)
    best = im2row(packed, hw) or packed
    for spread in _spreads(packed, hw):
        other = im2row(spread, hw) or spread
        if _saves_array_cycles(other, best, hw) and _saves_cycles(other, best, hw):
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

    Post can do so if it neither pools nor normalises pixels, and one slot has all output channels.
    """
    if not shape.array or shape.depthwise or shape.pre or shape.px > 1 or shape.pool:
        return
    if shape.computed or shape.zeros or shape.passes:
        return
    for px in sorted({mode.px for mode in hw.array.modes} - {1}):
        width = hw.word_channels // px
        slot = shape.first_lane // width
        first, channels = shape.first_lane - slot * width, shape.pre_pool_channels - slot * width
        if channels <= width:
            own = {"first_lane": first, "pre_pool_channels": channels, "out_slot": slot}
            further = tuple([cells.from_lane(slot * width) for cells in shape.further])
            needed = shape.needed and shape.needed.from_lane(slot * width)
            yield replace(shape, px=px, spread=True, further=further, needed=needed, **own)


def _saves_array_cycles(shape: Shape, reference: Shape, hw: HwSpec) -> bool:
    """Whether a form takes fewer array cycles than a reference that may run in no mode."""
    before, after = array_cycles(reference, hw), array_cycles(shape, hw)
    return after is not None and (before is None or after < before)


def _saves_cycles(shape: Shape, reference: Shape, hw: HwSpec) -> bool:
    """Whether tiles fit in both forms, and the closed form predicts fewer cycles."""
    before, after = _estimate(reference, hw), _estimate(shape, hw)
    return before is not None and after is not None and after.total_cycles < before.total_cycles


def _estimate(shape: Shape, hw: HwSpec) -> Estimate | None:
    """Estimate of the best tile; None if none fits."""
    try:
        return choose_tile("", shape, hw)[1]
    except DoesNotFit:
        return None
