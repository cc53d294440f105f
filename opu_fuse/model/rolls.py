"""Cyclic shifts of the pixels of a map: a Concat of the two parts that Slices cut it into.

Windows of a shifted image are such rolls right before a permutation of pixels, and the image is
rolled back after it. A machine whose stores permute pixels rolls them as well (`composites.py`);
the front end marks a model with it (`quant.NORMS_KEY`) and leaves these Concats alone.
"""

from collections.abc import Iterator, Sequence

import onnx_ir as ir
from msgspec import Struct

from opu_fuse.model.known_values import known_shape, slice_ranges
from opu_fuse.model.opsets import STANDARD
from opu_fuse.model.unused import is_alive
from opu_fuse.quant import META_KEY, NORMS_KEY

ROLL = "Roll"
"""Name of the operator among those that a machine runs in its own form."""
_PIXELS = (2, 3)


class Roll(Struct, frozen=True, kw_only=True):
    """A roll along rows or columns.

    source: a map (1, c, h, w). nodes: the Slices and the Concat. back: (rows, columns) that the
    pixels move up or to the left.
    """

    source: ir.Value
    nodes: tuple[ir.Node, ...]
    back: tuple[int, int]


def rolls(graph: ir.Graph | ir.Function | None) -> bool:
    """Whether the machine of a model runs rolls."""
    return graph is not None and ROLL in graph.meta.get(NORMS_KEY, ())


def roll_of(node: ir.Node) -> Roll | None:
    """The roll whose last node is `node`, else None."""
    if node.op_type != "Concat" or node.domain not in STANDARD or len(node.inputs) != 2:
        return None
    axis = node.attributes.get_int("axis", 0) % 4
    parts = [None if v is None else v.producer() for v in node.inputs]
    cuts = [part for part in parts if part is not None and _is_slice(part)]
    if len(cuts) < 2 or axis not in _PIXELS or cuts[0].inputs[0] is not cuts[1].inputs[0]:
        return None
    source, ranges = cuts[0].inputs[0], [slice_ranges(cut) for cut in cuts]
    shape = known_shape(source)
    if source is None or len(shape) != 4 or shape[0] != 1 or None in ranges:
        return None
    if not _only_reader(node, cuts) or not _same_quants([source, *node.inputs, *node.outputs]):
        return None
    first, second = ([*part] for part in ranges if part is not None)
    own = first.pop(axis), second.pop(axis)
    back, size = own[0].start, shape[axis]
    whole = [range(n) for i, n in enumerate(shape) if i != axis]
    if first != whole or second != whole or own != (range(back, size), range(back)) or not back:
        return None
    by = (back, 0) if axis == _PIXELS[0] else (0, back)
    return Roll(source=source, nodes=(*cuts, node), back=by)


def is_rolled(part: ir.Value) -> bool:
    """Whether a roll exchanges a part of a map with the other one."""
    return any(roll_of(use.node) is not None for use in part.uses())


def _is_slice(node: ir.Node) -> bool:
    return node.op_type == "Slice" and node.domain in STANDARD


def _only_reader(node: ir.Node, parts: Sequence[ir.Node]) -> bool:
    """Whether nothing but a node reads what parts compute. Rewrites leave readers of no use."""
    results = [part.outputs[0] for part in parts]
    readers = {use.node for v in results for use in v.uses()}
    others = {other for other in readers if other is not node and is_alive(other)}
    return not others and not any(v.is_graph_output() for v in results)


def _same_quants(values: Sequence[ir.Value | None]) -> bool:
    """Whether all values that are rounded are rounded alike."""
    quants = [v.meta.get(META_KEY) for v in values if v is not None]
    return all(q == quants[0] for q in quants if q is not None)


def rolls_before(value: ir.Value, readers: set[ir.Node] | None) -> Iterator[Roll]:
    """The rolls that compute a value, the last one first, each read by the next one alone. readers:
    of the value; None: any.
    """
    while (node := value.producer()) is not None and (roll := roll_of(node)) is not None:
        if readers is not None and not read_only_by(value, readers):
            return
        yield roll
        value, readers = roll.source, {*roll.nodes}


def nodes_of(found: Sequence[Roll]) -> list[ir.Node]:
    """Nodes of rolls, the last roll first, in graph order."""
    return [node for roll in reversed(found) for node in roll.nodes]


def sum_of(found: Sequence[Roll]) -> tuple[int, int]:
    """Rows and columns of all rolls."""
    return sum(roll.back[0] for roll in found), sum(roll.back[1] for roll in found)


def read_only_by(value: ir.Value, nodes: set[ir.Node]) -> bool:
    """Whether nothing but these nodes reads a value."""
    return not value.is_graph_output() and all(u.node in nodes for u in value.uses())
