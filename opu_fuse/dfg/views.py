"""Changes of view, and maps as the machine sees them."""

from collections.abc import Sequence

from opu_fuse.dfg.graph import Dfg, Kind

Map = tuple[int, int, int]
"""Channels, rows, columns."""


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
    results: list[int] = []
    for operand in dfg[index].operands:
        results += dfg[operand].operands if dfg[operand].kind is Kind.TUPLE else (operand,)
    return tuple(results)


def values_read(dfg: Dfg, node: int) -> list[int]:
    """Non-constant values a call reads, tuples looked through, in operand order."""
    results: list[int] = []
    stack = list(reversed(dfg[node].operands))
    while stack:
        operand = dfg[stack.pop()]
        if operand.kind is Kind.TUPLE:
            stack.extend(reversed(operand.operands))
        elif operand.kind is not Kind.CONST:
            results.append(operand.index)
    return results
