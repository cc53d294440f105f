"""Changes of view, and maps as the machine sees them."""

import math
from collections.abc import Sequence

from opu_fuse.dfg.graph import Dfg, Kind, Node

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


def same_storage(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes of a map are stored alike: as many channels, and as many pixels in the
    same order. Rows and columns may differ where every pixel has its own word.
    """
    (channels, *pixels), (others, *other_pixels) = feature_shape(a), feature_shape(b)
    return channels == others and math.prod(pixels) == math.prod(other_pixels)


def shape_read(dfg: Dfg, view: int) -> Map:
    """Channels, rows and columns of a stored map as a reader of this view of it sees them.

    A dense layer reads a flattened map with the rows and columns with which it is stored.
    """
    shape, stored = dfg[view].shape, dfg[dfg.base(view)].shape
    return feature_shape(shape if same_storage(shape, stored) else stored)


def keeps_rows(dfg: Dfg, view: int) -> bool:
    """Whether a reader of a change of view sees its value in the rows in which it is stored."""
    return shape_read(dfg, view) == feature_shape(dfg[dfg.base(view)].shape)


def values_in_other_rows(dfg: Dfg) -> set[int]:
    """Stored values that are also read in other rows and columns."""
    return {dfg.base(n.index) for n in dfg.calls if n.is_virtual and not keeps_rows(dfg, n.index)}


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


def readers_of(dfg: Dfg, value: int) -> list[Node]:
    """Calls that read a value, directly or through views and tuples."""
    calls: list[Node] = []
    stack = list(dfg.users[value])
    while stack:
        node = dfg[stack.pop()]
        if node.is_virtual or node.kind in {Kind.TUPLE, Kind.TUPLE_GET}:
            stack.extend(dfg.users[node.index])
        else:
            calls.append(node)
    return calls
