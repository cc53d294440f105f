"""How a layer sees its maps as they are stored: slots, unfolded rows, maxima that tiles leave."""

from functools import lru_cache

from msgspec.structs import replace

from opu_fuse.cost.tiling import choose_tile
from opu_fuse.cost.unfolding import unfolded
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.spec import HwSpec
from opu_fuse.layout.shape import Shape

HIDDEN = 2
"""Times as long as post the array takes where a tile may wait for the maxima of the one above."""


@lru_cache(maxsize=1024)
def stored_shape(shape: Shape, hw: HwSpec, read: int, written: int) -> Shape:
    """`Shape.packed`, unfolded where the machine can and the layer takes fewer cycles then; maxima
    are carried from tile to tile where the closed form finds that faster.
    """
    plain = shape.packed(hw, read, written)
    found = unfolded(plain, hw) or plain
    if not found.carries:
        return found
    alone = replace(found, carries=False)
    try:
        (_, with_it), (_, without) = (choose_tile("", shape, hw) for shape in (found, alone))
    except DoesNotFit:
        return alone
    # Tiles then wait for post and for the memory, which has to be hidden behind the array.
    hidden = with_it.compute_cycles >= HIDDEN * with_it.post_cycles
    return found if hidden and with_it.total_cycles < without.total_cycles else alone
