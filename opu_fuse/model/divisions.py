"""Divisions of all channels of a map by the first one, as the canonical form writes them.

    y = x / (relu(x[:, :1]) + epsilon)

The rewrite that inserts one (`canonical/linear_attention.py`) makes the second channel of x zero,
which no later step can know: it marks the Div with `quant.DIVISION_KEY`.
"""

import onnx_ir as ir
from msgspec import Struct

from opu_fuse.model.known_values import const_array
from opu_fuse.quant import DIVISION_KEY

_CHAIN = ("Add", "Relu", "Slice")


class Division(Struct, frozen=True, kw_only=True):
    """source: the map; nodes: Slice, Relu, Add and Div; epsilon: of the Add."""

    source: ir.Value
    nodes: tuple[ir.Node, ...]
    epsilon: float


def is_divisor(node: ir.Node) -> bool:
    """Whether a node is the Slice of a division."""
    for _ in range(len(_CHAIN)):
        uses = node.outputs[0].uses()
        if len(uses) != 1:
            return False
        node = next(iter(uses)).node
    return division(node) is not None


def division(last: ir.Node) -> Division | None:
    """The division whose Div is `last`; None for other nodes."""
    if last.op_type != "Div" or DIVISION_KEY not in last.metadata_props:
        return None
    source, below = last.inputs
    nodes = [last]
    for kind in _CHAIN:
        node = None if below is None else below.producer()
        if below is None or node is None or node.op_type != kind or len(below.uses()) != 1:
            return None
        nodes.append(node)
        below = node.inputs[0]
    epsilon = const_array(nodes[1].inputs[1])
    if source is None or below is not source or epsilon is None:
        return None
    return Division(source=source, nodes=tuple(reversed(nodes)), epsilon=float(epsilon.item()))
