"""Tokens as the pixels of a channels-last image, for the steps that give them that form.

An operator that treats all tokens alike computes the same on an image: (1, 1, n, c) for tokens
(n, c) or (1, n, c), (1, b, n, c) for a batch (b, n, c), whose sequences become rows.
"""

import math

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_after,
    is_standard,
    quant_of,
    reshape_before,
    static_shape,
)

CHANNELS_FIRST, CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)
"""Permutations of a channels-last map to channels-first, and back."""
IMAGE_RANK = 4


def is_image(value: ir.Value) -> bool:
    """Whether a value has the shape of a map (1, h, w, c)."""
    shape = static_shape(value)
    return shape is not None and len(shape) == IMAGE_RANK and shape[0] == 1 and 0 not in shape


def image_shape(value: ir.Value) -> tuple[int, ...] | None:
    """The shape of several tokens as an image; None for other values."""
    shape = static_shape(value)
    if shape is None or len(shape) < 2 or 0 in shape or math.prod(shape[:-1]) == 1:
        return None
    if len(shape) == 3 and shape[1] > 1:
        return (1, *shape)
    return (1, 1, math.prod(shape[:-1]), shape[-1])


def map_of(value: ir.Value | None, *, any_axis: bool = False) -> ir.Value | None:
    """The channels-last map that a Reshape made these tokens of; None if it requantises.

    any_axis: the Reshape need not keep the last axis.
    """
    node = None if value is None else value.producer()
    if value is None or node is None or not is_standard(node, "Reshape"):
        return None
    source, size, shape = node.inputs[0], static_shape(node.inputs[0]), static_shape(value)
    if source is None or size is None or shape is None or not is_image(source):
        return None
    if size[2] == 1 < size[1]:  # heads of one: tokens are the columns of an image
        return None
    same_quant = quant_of(value) in {None, quant_of(source)}
    keeps_channels = shape[-1:] == size[-1:] and math.prod(shape) == math.prod(size)
    return source if same_quant and (keeps_channels or any_axis) else None


def as_image(node: ir.Node, value: ir.Value) -> ir.Value:
    """Insert a Reshape of several tokens to an image before `node`. Return the image."""
    shape = image_shape(value)
    assert shape is not None
    return reshape_before(node, value, shape, name=f"{node.name}/image")


def is_token(value: ir.Value | None) -> bool:
    """Whether a value is one token, such as (1, 1, c), and no row (1, c)."""
    shape = static_shape(value)
    return shape is not None and len(shape) > 2 and math.prod(shape[:-1]) == 1 and shape[-1] > 0


def as_row(graph: ir.Graph, node: ir.Node) -> bool:
    """Let a node of the last axis of one token read and write rows (1, c). Returns whether it did.

    Constants that are no tokens remain: a matrix, or one number for each channel.
    """
    result = node.outputs[0]
    target = static_shape(result)
    tokens = {i: v for i, v in enumerate(node.inputs) if v is not None and is_token(v)}
    if target is None or not tokens or not is_token(result):
        return False
    if any((q := quant_of(v)) is not None and q.axis is not None for v in tokens.values()):
        return False
    for index, value in tokens.items():
        name, data, shape = f"{node.name}/row{index or ''}", constant(value), static_shape(value)
        assert shape is not None
        row = (1, shape[-1])
        if data is None:
            image = reshape_before(node, value, row, name=name)
        else:
            image = add_constant(graph, name, data.reshape(row), quant_of(value))
        node.replace_input_with(index, image)
    if "axis" in node.attributes:
        node.attributes["axis"] = ir.AttrInt64("axis", -1)
    size = add_constant(graph, f"{node.name}/token_shape", np.asarray(target, np.int64))
    name, row = f"{node.name}/token", (1, target[-1])
    insert_after(node, result, "Reshape", (size,), name=name, shape=row)
    return True


def reshape_after(graph: ir.Graph, node: ir.Node, source: ir.Value) -> None:
    """Let a node's results have the pixels of the map `source`, and restore their shapes after."""
    size = static_shape(source)
    assert size is not None
    pixel_count = math.prod(size[:-1])
    for number, result in enumerate(node.outputs):
        tokens = static_shape(result)
        assert tokens is not None
        name = f"{node.name}/rows{number or ''}"
        shape = add_constant(graph, f"{name}_shape", np.asarray(tokens, np.int64))
        pixels = (*size[:-1], math.prod(tokens) // pixel_count)
        insert_after(node, result, "Reshape", (shape,), name=name, shape=pixels)
