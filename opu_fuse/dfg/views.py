"""Changes of view, and maps as the machine sees them."""

from collections.abc import Sequence

from opu_fuse.dfg.graph import Dfg, Kind

Map = tuple[int, int, int]
"""Channels, rows, columns."""


def follow_views(dfg: Dfg, index: int) -> int:
    """The node whose bytes a value shares: changes of view are looked through.

    Not beyond the last map a machine can hold: behind a value of another rank, which only the host
    makes, the view is made there too and has bytes of its own. So has a view of floats that is
    rounded behind it.
    """
    base = index
    while dfg[index].is_virtual:
        source = dfg[index].operands[0]
        if dfg[index].quant is not None and dfg[source].quant is None:
            break
        index = source
        if is_map(dfg[index].shape):
            base = index
    return base


def is_map(shape: Sequence[int]) -> bool:
    """(1, c, h, w) or (1, n)."""
    return len(shape) in {2, 4} and shape[0] == 1


def feature_shape(shape: Sequence[int]) -> Map:
    """(channels, rows, cols) of a model value: (1, c, h, w), or anything else as single pixel."""
    if len(shape) == 4:
        return shape[1], shape[2], shape[3]
    channels = 1
    for extent in shape:
        channels *= extent
    return channels, 1, 1


def elements(dfg: Dfg, index: int) -> tuple[int, ...]:
    """Operands of a node in order, tuples replaced by their elements."""
    found: list[int] = []
    for operand in dfg[index].operands:
        found += dfg[operand].operands if dfg[operand].kind is Kind.TUPLE else (operand,)
    return tuple(found)


def values_read(dfg: Dfg, node: int) -> list[int]:
    """Non-constant values a call reads, tuples looked through, in operand order."""
    found: list[int] = []
    stack = list(reversed(dfg[node].operands))
    while stack:
        operand = dfg[stack.pop()]
        if operand.kind is Kind.TUPLE:
            stack.extend(reversed(operand.operands))
        elif operand.kind is not Kind.CONST:
            found.append(operand.index)
    return found
