"""Convolutions that choose: weights of the array put pixels and channels elsewhere.

Of every block of pixels a Conv with ones takes some, one behind the other, as channels. Where a
Conv alone reads them, its own weights do it: they stand for more pixels, of which most get zeros.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    detach,
    is_standard,
    merge_sources,
    operand,
    quant_of,
    rewrite,
    sole_reader,
    static_shape,
)
from opu_fuse.quant import CHOICE_KEY, REWRITE_KEY, QuantParams

Place = tuple[int, int]
"""A row and a column."""
Blocks = Sequence[tuple[Place, slice]]
"""Which pixel's channels become which channels."""
_LARGEST = 9
"""Rows and columns that a Conv may get: with more a small machine loads its image many times."""
_WHY = "pixels moved by a convolution with ones: the array chooses what the host would move"


def choose(graph: ir.Graph, node: ir.Node, x: ir.Value, apart: int, blocks: Blocks) -> bool:
    """A node becomes a Conv, or part of the only one that reads it."""
    if _join(graph, node, x, apart, blocks):
        return True
    channels = static_shape(x)[1]  # type: ignore[index]  # callers have looked at it
    rows, columns = (max(axis) + 1 for axis in zip(*(p for p, _ in blocks), strict=True))
    ones = np.zeros((len(blocks) * channels, channels, rows, columns), np.int8)
    for (row, column), part in blocks:
        ones[part, :, row, column] = np.eye(channels, dtype=np.int8)
    stand_for_parts(node)
    convolve(graph, node, "Conv", x, ones, apart)
    return True


def blocks_of(x: ir.Value, places: Sequence[Place]) -> Blocks:
    """All channels of one pixel behind those of another."""
    channels = static_shape(x)[1]  # type: ignore[index]  # callers have looked at it
    return [(p, slice(i * channels, (i + 1) * channels)) for i, p in enumerate(places)]


def convolve(
    graph: ir.Graph, node: ir.Node, op_type: str, x: ir.Value, ones: np.ndarray, apart: int
) -> None:
    """A node becomes a Conv or ConvTranspose whose weights are `ones` (int8 zeros and ones): exact
    where its result is rounded as its operand.
    """
    rounded = quant_of(node.outputs[0]) is not None
    weight = add_constant(
        graph,
        f"{node.name}/ones",
        ones if rounded else ones.astype(np.float32),
        QuantParams(scale=(1.0,)) if rounded else None,
    )
    attributes = {
        "kernel_shape": ones.shape[2:],
        "strides": (apart, apart),
        "dilations": (1, 1),
        "pads": (0, 0, 0, 0),
        **({"output_padding": (0, 0)} if op_type == "ConvTranspose" else {}),
        "group": 1,
    }
    rewrite(node, op_type, [x, weight], attributes)
    node.metadata_props.update({REWRITE_KEY: _WHY, CHOICE_KEY: "ones"})


def take_order(graph: ir.Graph, node: ir.Node) -> bool:
    """A Gather of channels goes into the weights of the Conv behind it."""
    x, order = node.inputs[0], constant(operand(node, 1))
    conv = _reader_by_weights(node)
    if x is None or order is None or order.ndim != 1 or node.attributes.get_int("axis", 0) != 1:
        return False
    if conv is None or quant_of(x) != quant_of(node.outputs[0]):
        return False
    weight, channels = conv.inputs[1], static_shape(x)[1]  # type: ignore[index]  # `run` has looked
    filters, order = constant(weight), order % channels
    assert weight is not None
    assert filters is not None
    if len(np.unique(order)) < order.size:
        return False
    moved = np.zeros((len(filters), channels, *filters.shape[2:]), filters.dtype)
    moved[:, order] = filters
    ordered = add_constant(graph, f"{weight.name}/ordered", moved, quant_of(weight))
    conv.replace_input_with(0, x)
    conv.replace_input_with(1, ordered)
    merge_sources(conv, [node])
    conv.metadata_props.setdefault(REWRITE_KEY, "channels taken in the order in which they lie")
    detach(node)
    return True


def _join(graph: ir.Graph, node: ir.Node, x: ir.Value, apart: int, blocks: Blocks) -> bool:
    """The Conv behind becomes one over as many times as many pixels, as many times as far apart."""
    conv = _reader_by_weights(node)
    _, channels, *size = static_shape(x)  # type: ignore[misc]  # callers have looked at it
    if conv is None or any(n % apart for n in size):
        return False
    ints, weight = conv.attributes.get_ints, conv.inputs[1]
    filters = constant(weight)
    if {*ints("dilations", ())} != {1} or weight is None or filters is None:
        return False
    rows, columns = (apart * n for n in filters.shape[2:])
    if max(rows, columns) > _LARGEST:
        return False
    joined = np.zeros((len(filters), channels, rows, columns), filters.dtype)
    for (row, column), part in blocks:
        joined[:, :, row::apart, column::apart] += filters[:, part]
    attributes = {
        "kernel_shape": joined.shape[2:],
        "strides": [apart * n for n in ints("strides", ())],
        "dilations": (1, 1),
        "pads": [apart * n for n in ints("pads", ())],
        "group": 1,
    }
    taps = add_constant(graph, f"{weight.name}/joined", joined, quant_of(weight))
    merge_sources(conv, [node])
    rewrite(conv, "Conv", [x, taps, *conv.inputs[2:]], attributes)
    conv.metadata_props[REWRITE_KEY] = "pixels chosen by the weights of the convolution behind"
    detach(node)
    return True


def _reader_by_weights(node: ir.Node) -> ir.Node | None:
    """The Conv that alone reads a node's result, when its weights are known, and those of one
    channel can be those of another.
    """
    conv = sole_reader(node.outputs[0])
    if conv is None or not is_standard(conv, "Conv") or conv.inputs[0] is not node.outputs[0]:
        return None
    weight = operand(conv, 1)
    filters, rounded = constant(weight), None if weight is None else quant_of(weight)
    if filters is None or filters.ndim != 4 or conv.attributes.get_int("group", 1) != 1:
        return None
    return conv if rounded is None or rounded.axis in {None, 0} else None


def stand_for_parts(node: ir.Node) -> None:
    """Of a Concat: for those, too, whose results it joins."""
    if node.op_type == "Concat":
        merge_sources(node, [p for v in node.inputs if v is not None and (p := v.producer())])
