"""Changes of view, and maps as the machine sees them."""

from collections.abc import Sequence

from opu_fuse.dfg.graph import Dfg

Map = tuple[int, int, int]
"""Channels, rows, columns."""


def follow_views(dfg: Dfg, index: int) -> int:
    """The node whose bytes a value shares: changes of view are looked through."""
    while dfg[index].is_virtual:
        index = dfg[index].operands[0]
    return index


def feature_shape(shape: Sequence[int]) -> Map:
    """(channels, rows, cols) of a model value: (1, c, h, w), or anything else as single pixel."""
    if len(shape) == 4:
        return shape[1], shape[2], shape[3]
    channels = 1
    for extent in shape:
        channels *= extent
    return channels, 1, 1
