"""Where the channels of every value lie: concatenations that move no byte leave holes.

A concatenation that the machine reads as one map is no copy: its operands lie one behind the other
in memory, each beginning a channel block. Operators that work channel by channel keep the lanes of
what they read; the array puts its channels into any lanes.
"""

from collections.abc import Collection, Sequence

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.views import feature_shape
from opu_fuse.hw.layout import Pieces, extent
from opu_fuse.hw.spec import HwSpec

KEEPS_LANES = frozenset(
    {
        "add",
        "multiply",
        "relu",
        "clip",
        "leaky_relu",
        "table",
        "max_pool",
        "avg_pool",
        "pad",
        "upsample",
        "batch_norm",
    }
)
"""Operators that give every channel in the lane in which they read it."""


def lane_pieces(dfg: Dfg, hw: HwSpec, joined: Collection[int]) -> tuple[Pieces, ...]:
    """Pieces of every node's value, by index. joined: concatenations whose operands lie in memory
    one behind the other.
    """
    found: list[Pieces] = []
    for node in dfg.nodes:
        found.append(_pieces(dfg, hw, joined, found, node))
    return tuple(found)


def joined_operands(dfg: Dfg, index: int) -> tuple[int, ...]:
    """The maps that a concatenation puts one behind the other."""
    return tuple(j for i in dfg[index].operands for j in _leaves(dfg[i]))


def joined_starts(dfg: Dfg, pieces: Sequence[Pieces], index: int, lanes: int) -> list[int]:
    """First channel block of every operand of a joined concatenation."""
    at, starts = 0, []
    for operand in joined_operands(dfg, index):
        starts.append(at)
        at += -(-extent(pieces[operand]) // lanes)
    return starts


def is_depthwise(dfg: Dfg, node: Node) -> bool:
    """One filter per channel."""
    weight = dfg[node.operands[1]].shape
    return node.attrs["group"] == weight[0] and weight[1] == 1


def _pieces(
    dfg: Dfg, hw: HwSpec, joined: Collection[int], found: list[Pieces], node: Node
) -> Pieces:
    plain = ((0, feature_shape(node.shape)[0]),)
    if node.index in joined:
        at, pieces = 0, []
        for operand in joined_operands(dfg, node.index):
            pieces += [(at + first, count) for first, count in found[operand]]
            at += -(-extent(found[operand]) // hw.word_channels) * hw.word_channels
        return tuple(pieces)
    if node.kind is not Kind.CALL:
        return plain
    keeps = node.op in KEEPS_LANES or (
        node.op == "conv" and hw.array.depthwise and is_depthwise(dfg, node)
    )
    if node.is_virtual:
        keeps = feature_shape(dfg[node.operands[0]].shape) == feature_shape(node.shape)
    if not keeps:
        return plain
    read = [found[i] for i in node.operands if dfg[i].shape[:2] == node.shape[:2]]
    return max(read, key=len, default=plain)


def _leaves(node: Node) -> tuple[int, ...]:
    return node.operands if node.kind is Kind.TUPLE else (node.index,)
