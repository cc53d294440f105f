"""Copies of narrow maps for readers that want several pixels in a word.

A copy is a shuffle that leaves every channel in its place: the array computes it and packs the
pixels, and it forwards its operand's integers. A part of a map that a point convolution computes is
computed again instead, by a convolution of its channels alone (`AGAIN` in its attributes).
"""

from collections.abc import Collection, Iterable, Iterator

import numpy as np
from msgspec.structs import replace

from opu_fuse.dfg.copy_node import copy_node
from opu_fuse.dfg.graph import Access, Dfg, Kind, Node
from opu_fuse.dfg.renumber import renumbered
from opu_fuse.dfg.views import feature_shape

AGAIN = "again"
"""Attribute of a convolution that computes channels of another one: its products are none of the
model's."""
PACKS = "packs"
"""Attribute of a convolution that reads whole words and computes words of several pixels."""
_ACTIVATIONS = frozenset({"table", "relu", "clip", "leaky_relu"})


def packs(node: Node) -> bool:
    """Whether a node computes the pixels of a word one after the other: a copy of a value with
    other pixels in a word, or the first of its maps that has several.
    """
    in_place = node.op == "shuffle" and node.attrs["order"] == _in_place(node)
    return in_place or bool({AGAIN, PACKS} & {*node.attrs})


def _in_place(node: Node) -> tuple[int, ...]:
    """The order in which a shuffle reads channels that remain where they are."""
    return tuple(range(feature_shape(node.shape)[0]))


def copy_name(dfg: Dfg, value: int) -> str:
    """Name of the copy of a value."""
    return f"{dfg[value].name}/packed"


def layer_of_part(dfg: Dfg, value: int) -> tuple[Node, ...]:
    """The point convolution, its bias and activations that compute a map of which a Split cuts a
    value; () for other values.
    """
    split = dfg[dfg[value].operands[0]] if dfg[value].kind is Kind.TUPLE_GET else None
    if split is None or split.op != "split" or split.attrs["axis"] != 1:
        return ()
    return _point_layer(dfg, dfg[split.operands[0]])


def first_of_sums(dfg: Dfg, value: int) -> tuple[Node, ...]:
    """The point convolution, its bias and activations that compute the first map of a chain of
    residual sums; () for other values.
    """
    node = dfg[value]
    while node.op == "add" and node.owner is None and {*node.access} == {Access.FULL}:
        node = dfg[min(node.operands)]  # what is computed first is the residual
    return () if node.index == value else _point_layer(dfg, node)


def _point_layer(dfg: Dfg, node: Node) -> tuple[Node, ...]:
    """A point convolution, its bias and activations, of which a node is the last; else ()."""
    after = list[Node]()
    while node.op in _ACTIVATIONS and len(node.operands) == 1:
        after.append(node)
        node = dfg[node.operands[0]]
    if node.owner is not None:
        after.append(node)
        node = dfg[node.owner]
    layer, attrs = (node, *reversed(after)), node.attrs
    if node.op != "conv" or attrs["group"] > 1 or any(attrs["pads"]):
        return ()
    point = attrs["kernel"] == attrs["strides"] == (1, 1)
    constants = [dfg[i] for each in layer for i in each.operands[1:]]
    rows = all(c.const is not None and len(c.const) == node.shape[1] for c in constants)
    return layer if point and rows else ()


def with_packed_copies(
    dfg: Dfg, readers: Iterable[tuple[int, int]], again: Collection[int] = ()
) -> Dfg:
    """A graph in which these nodes read copies: (index of the value, of a convolution or of the
    tuple of a concat, which then has whole words and leaves several pixels to the value's).

    again: values that are computed again instead of copied; they have a `layer_of_part`.
    """
    nodes, copies = list(dfg.nodes), dict[int, int]()
    for value, reader in readers:
        if value not in copies:
            name = copy_name(dfg, value)
            if value in again:
                nodes += _computed_again(dfg, value, name, len(nodes))
            else:
                attrs, index = {"order": _in_place(dfg[value])}, len(nodes)
                nodes.append(
                    copy_node(dfg, value, name, "shuffle", attrs, index=index, reader=reader)
                )
            copies[value] = len(nodes) - 1
            if nodes[reader].kind is Kind.TUPLE:
                for first in first_of_sums(dfg, value)[:1]:
                    attrs = {**first.attrs, PACKS: True}
                    nodes[first.index] = replace(nodes[first.index], attrs=attrs)
        operands = (copies[i] if i == value else i for i in nodes[reader].operands)
        nodes[reader] = replace(nodes[reader], operands=tuple(operands))
    return renumbered(dfg, nodes)[0]


def _computed_again(dfg: Dfg, value: int, name: str, index: int) -> Iterator[Node]:
    """The nodes of a `layer_of_part`, with the channels of that part alone.

    name: of the convolution; index: of the first node.
    """
    conv, *after = layer_of_part(dfg, value)
    part = dfg[value]
    first = sum(dfg[part.operands[0]].attrs["sizes"][: part.attrs["index"]])
    channels = slice(first, first + feature_shape(part.shape)[0])
    made = {conv.operands[0]: conv.operands[0]}
    for node in (conv, *after):
        operands = list[int]()
        for operand in node.operands:
            if operand not in made:
                constant = _rows(dfg[operand], channels, f"{name}/{dfg[operand].name}", index)
                made[operand], index = index, index + 1
                yield constant
            operands.append(made[operand])
        own = name if node is conv else f"{name}/{node.name}"
        yield replace(
            node,
            index=index,
            name=own,
            operands=tuple(operands),
            shape=part.shape,
            value=own,
            tensor="",
            owner=None if node.owner is None else made[node.owner],
            attrs={**node.attrs, AGAIN: True} if node is conv else node.attrs,
            ir_node=None if node is conv else node.ir_node,
        )
        made[node.index], index = index, index + 1


def _rows(constant: Node, channels: slice, name: str, index: int) -> Node:
    """The weights or biases of some output channels."""
    assert constant.const is not None
    const, quant = np.ascontiguousarray(constant.const[channels]), constant.quant
    if quant is not None and quant.axis == 0:
        quant = replace(quant, scale=quant.scale[channels])
    return replace(
        constant, index=index, name=name, value=name, shape=const.shape, const=const, quant=quant
    )
