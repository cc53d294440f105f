"""Heads of a product's operands as maps, and their products."""

import math

import numpy as np
import onnx_ir as ir
from msgspec import Struct

from opu_fuse.frontend.canonical.joined_heads import Joined, size_of
from opu_fuse.frontend.canonical.product_operands import Heads
from opu_fuse.frontend.canonical.token_images import CHANNELS_FIRST, CHANNELS_LAST
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    is_standard,
    move_before,
    quant_of,
    reshape_before,
    static_shape,
    values_of,
)
from opu_fuse.model.operator_sets import NORMS
from opu_fuse.model.products import PRODUCT, PRODUCT_BY_ROWS, TURN


class Factor(Struct, frozen=True, kw_only=True):
    """A head of an operand: map (1, k, h, w) whose channels are summed. turned: its source has them
    as pixels.
    """

    value: ir.Value
    turned: bool

    @property
    def pixels(self) -> tuple[int, int]:
        return self.value.shape[2], self.value.shape[3]  # type: ignore[index,return-value]  # made here


def part_of(
    node: ir.Node,
    heads: Heads,
    part: tuple[int, int, bool],
    rows: int,
    joined: Joined,
    name: str,
) -> Factor:
    """Channels of a map, functions of them, turned if need be. What is normalised is turned before,
    as norms are those of channels.
    """
    source, (first, count, turned) = heads.map, part
    shape = static_shape(source)
    assert shape is not None
    channels, begun = shape[1], 0
    for head in joined.get(source, ()):
        size = size_of(head)[1]
        if (begun, size) == (first, count):
            source, channels, first = head, size, 0
            break
        begun += size
    size = size_of(source)[2:]
    value = reshape_before(node, source, (1, channels, *(1,) * (2 - len(size)), *size), name=name)
    size = size_of(value)[2:]
    if count != channels:
        value = channels_of(node, value, first, count, name=name, number=first)
    if rows > 1:  # after the Slice, which cuts a map as it is stored
        size = rows, math.prod(size) // rows
        value = reshape_before(node, value, (1, count, *size), name=f"{name}/{first}/rows")
    if turned and any(is_standard(function, *NORMS) for function in heads.functions):
        value, turned = turned_map(node, value, rows, name=f"{name}/{first}"), False
    for number, function in enumerate(heads.functions):
        value = _function_of(node, function, value, f"{name}/{first}/function{number}")
    if turned:
        value = turned_map(node, value, rows, name=f"{name}/{first}")
    return Factor(value=value, turned=turned)


def _function_of(node: ir.Node, function: ir.Node, value: ir.Value, name: str) -> ir.Value:
    """A function of the elements of a map, or a normalisation of its channels."""
    quant, shape, attributes = quant_of(function.outputs[0]), size_of(value), values_of(function)
    is_norm = is_standard(function, *NORMS)
    if is_norm:
        attributes["axis"], shape = -1, tuple(shape[axis] for axis in CHANNELS_LAST)
        perm = {"perm": CHANNELS_LAST}
        value = move_before(node, "Transpose", [value], perm, name=f"{name}/last", shape=shape)
    inputs = [v if constant(v) is not None else value for v in function.inputs]
    value = insert_before(
        node, function.op_type, inputs, attributes, name=name, shape=shape, quant=quant
    )
    if not is_norm:
        return value
    perm, shape = {"perm": CHANNELS_FIRST}, tuple(shape[axis] for axis in CHANNELS_FIRST)
    return move_before(node, "Transpose", [value], perm, name=f"{name}/first", shape=shape)


def turned_map(node: ir.Node, value: ir.Value, rows: int, *, name: str) -> ir.Value:
    """A map of so many rows whose channels and columns are exchanged."""
    _, count, *size = size_of(value)
    cols = math.prod(size) // rows
    value = reshape_before(node, value, (1, count, rows, cols), name=f"{name}/row")
    perm, shape = {"perm": TURN}, (1, cols, rows, count)
    return move_before(node, "Transpose", [value], perm, name=f"{name}/turned", shape=shape)


def channels_of(
    node: ir.Node, value: ir.Value, first: int, count: int, *, name: str, number: int
) -> ir.Value:
    """`count` channels of a map from `first` on. number: of the part, for its name."""
    assert node.graph is not None
    ends = (np.array([first]), np.array([first + count]), np.array([1]))
    numbers = [add_constant(node.graph, f"{name}/slice", end) for end in ends]
    shape = (1, count, *size_of(value)[2:])
    return move_before(node, "Slice", [value, *numbers], name=f"{name}/{number}", shape=shape)


def product(node: ir.Node, rows: int, maps: Factor, second: Factor, name: str) -> ir.Value:
    """The product of two maps of one head, by rows if it has several."""
    size, weights, equation = size_of(second.value), second.value, PRODUCT_BY_ROWS
    columns = size[3]
    if rows == 1:
        columns, equation = math.prod(size[2:]), PRODUCT
        row = (1, size[1], 1, columns)
        weights = reshape_before(node, weights, row, name=f"{name}/weights")
    return insert_before(
        node,
        "Einsum",
        [maps.value, weights],
        {"equation": equation},
        name=f"{name}/map",
        shape=(1, columns, *maps.pixels),
        quant=quant_of(node.outputs[0]),
    )
