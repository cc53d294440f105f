"""GroupNorms of several groups, and InstanceNorms, as norms of rows of turned maps.

Machines normalise the channels of a pixel, or a whole map. Turned (`model/products.py`), the pixels
of a map (1, g s, h, w) are channels, and a group of s channels is s pixels of a row. These become a
row of their own, (1, h w, g, s), whose norm is that of a map of one row (`model/norms.py`). Of
groups of one channel each pixel is one. Scales and offsets are those of channels, so they come
after the turn back.
"""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.head_maps import turned_map
from opu_fuse.frontend.canonical.product_operands import MOST_ROWS
from opu_fuse.frontend.canonical.token_images import CHANNELS_FIRST, CHANNELS_LAST
from opu_fuse.frontend.editing import (
    add_constant,
    insert_before,
    move_before,
    reshape_before,
    rewrite,
    static_shape,
)
from opu_fuse.model.composites import ROWS_FIRST

_MOST_VALUES, _MOST_PIXELS, _WORD = 1 << 17, 1 << 12, 64
"""Values of a group with those of unused lanes, and pixels: what sums and parameters of machines
hold that are reckoned with, whose words have so many channels.
"""


def fits(shape: Sequence[int], groups: int) -> bool:
    """Whether a map of this shape has such groups, and machines hold one."""
    each, rest = divmod(shape[1], groups)
    pixels = math.prod(shape[2:])
    values = each * -(-pixels // _WORD) * _WORD
    known = not rest and (each == 1 or groups <= MOST_ROWS)
    return known and 1 < pixels <= _MOST_PIXELS and values <= _MOST_VALUES


def normalise_groups(
    graph: ir.Graph,
    node: ir.Node,
    x: ir.Value,
    groups: int,
    constants: tuple[np.ndarray, np.ndarray],
    epsilon: float,
) -> None:
    """Let a node compute the norm of a map x (1, c, h, w) or (1, c, n), which `fits`. constants:
    scale and offset of each channel.
    """
    shape = static_shape(x)
    assert shape is not None
    _, channels, *size = shape
    each, pixels = channels // groups, math.prod(size)
    name = f"{node.name}/groups"
    made = turned_map(node, x, 1, name=f"{name}/pixels")
    rows = (1, pixels, groups, each) if each > 1 else (1, pixels, 1, groups)
    made = reshape_before(node, made, rows, name=f"{name}/rows")
    made = _normalised(graph, node, made, each > 1, epsilon, name)
    made = reshape_before(node, made, (1, pixels, 1, channels), name=f"{name}/row")
    made = turned_map(node, made, 1, name=f"{name}/channels")
    made = reshape_before(node, made, shape, name=f"{name}/map")
    gain, offset = (
        add_constant(graph, f"{name}/{part}", data.reshape(-1, *(1,) * len(size)))
        for part, data in zip(("scale", "offset"), constants, strict=True)
    )
    scaled = insert_before(node, "Mul", [made, gain], name=f"{name}/scaled", shape=shape)
    rewrite(node, "Add", [scaled, offset])


def _normalised(
    graph: ir.Graph, node: ir.Node, value: ir.Value, by_rows: bool, epsilon: float, name: str
) -> ir.Value:
    """The norm of each row of a map, or of each pixel."""
    shape = static_shape(value)
    assert shape is not None
    there, back = (ROWS_FIRST, ROWS_FIRST) if by_rows else (CHANNELS_LAST, CHANNELS_FIRST)
    size = tuple(shape[axis] for axis in there)
    ones = np.ones((shape[1], 1) if by_rows else shape[1], np.float32)
    constants = [add_constant(graph, f"{name}/{n}", n * ones) for n in (1, 0)]
    perm = {"perm": there}
    value = move_before(node, "Transpose", [value], perm, name=f"{name}/last", shape=size)
    attributes = {"axis": 2 if by_rows else -1, "epsilon": epsilon}
    inputs = [value, *constants]
    value = insert_before(
        node, "LayerNormalization", inputs, attributes, name=f"{name}/norm", shape=size
    )
    perm = {"perm": back}
    return move_before(node, "Transpose", [value], perm, name=f"{name}/first", shape=shape)
