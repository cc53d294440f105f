"""Gathers of pixels and channels as convolutions with one-hot weights.

A strided Conv selects values of every block of pixels and writes them as channels. If one Conv is
the only reader, its own weights absorb the selection: its kernel grows and is mostly zeros.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from msgspec import Struct

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

_LARGEST = 9
"""Largest kernel of such a Conv: with more rows a small machine reloads its map many times."""
_WHY = "pixels moved by a convolution with one-hot weights, which the host would move otherwise"


class Choice(Struct, frozen=True, kw_only=True):
    """A selection of values from every block of pixels.

    block: rows and columns of a block, the stride of the convolution.
    channels, rows, columns: source of each result channel within a block, [result channels].
    """

    block: int
    channels: np.ndarray
    rows: np.ndarray
    columns: np.ndarray

    @property
    def is_twice(self) -> bool:
        """Whether any value is selected more than once."""
        sources = np.stack([self.channels, self.rows, self.columns])
        return np.unique(sources, axis=1).shape != sources.shape


def all_pixels(channels: int, block: int, *, channels_first: bool) -> Choice:
    """Select every value of a block.

    The channels of a pixel are consecutive or, with channels_first, the pixels of a channel.
    """
    sizes = (channels, block, block) if channels_first else (block, block, channels)
    indices = np.unravel_index(np.arange(channels * block**2), sizes)
    channel, row, column = indices if channels_first else (indices[2], *indices[:2])
    return Choice(block=block, channels=channel, rows=row, columns=column)


def whole_pixels(channels: int, block: int, positions: Sequence[tuple[int, int]]) -> Choice:
    """Select all channels of the pixels at `positions` (row, column), pixel by pixel."""
    rows, columns = np.repeat(np.array(positions), channels, axis=0).T
    return Choice(
        block=block,
        channels=np.tile(np.arange(channels), len(positions)),
        rows=rows,
        columns=columns,
    )


def choose(graph: ir.Graph, node: ir.Node, x: ir.Value, choice: Choice) -> None:
    """Replace a node that selects from `x` by a Conv, or absorb it into its only reader."""
    if join(graph, node, x, choice, "pixels selected by the weights of the next convolution"):
        return
    channels = static_shape(x)[1]  # type: ignore[index]  # callers have checked it
    size = (len(choice.channels), channels, choice.rows.max() + 1, choice.columns.max() + 1)
    ones = np.zeros(size, np.int8)
    ones[np.arange(size[0]), choice.channels, choice.rows, choice.columns] = 1
    convolve(graph, node, "Conv", x, ones, choice.block)


def convolve(
    graph: ir.Graph,
    node: ir.Node,
    op_type: str,
    x: ir.Value,
    ones: np.ndarray,
    stride: int,
    *,
    pads: Sequence[int] = (0, 0, 0, 0),
    group: int = 1,
) -> None:
    """Replace a node by a Conv or ConvTranspose with weights `ones` (int8 zeros and ones).

    This is bit-exact if result and operand have the same quantisation. stride: of rows and columns.
    """
    is_quantised = quant_of(node.outputs[0]) is not None
    weight = add_constant(
        graph,
        f"{node.name}/ones",
        ones if is_quantised else ones.astype(np.float32),
        QuantParams(scale=(1.0,)) if is_quantised else None,
    )
    attributes = {
        "kernel_shape": ones.shape[2:],
        "strides": (stride, stride),
        "dilations": (1, 1),
        "pads": (*pads,),
        **({"output_padding": (0, 0)} if op_type == "ConvTranspose" else {}),
        "group": group,
    }
    rewrite(node, op_type, [x, weight], attributes)
    node.metadata_props.update({REWRITE_KEY: _WHY, CHOICE_KEY: "ones"})


def take_order(graph: ir.Graph, node: ir.Node) -> bool:
    """Absorb a Gather of channels into the weights of the Conv that reads it."""
    x, order = node.inputs[0], constant(operand(node, 1))
    if x is None or order is None or order.ndim != 1 or node.attributes.get_int("axis", 0) != 1:
        return False
    if quant_of(x) != quant_of(node.outputs[0]):
        return False
    order = order % static_shape(x)[1]  # type: ignore[index]  # callers have checked it
    zeros = np.zeros_like(order)
    choice = Choice(block=1, channels=order, rows=zeros, columns=zeros)
    return join(graph, node, x, choice, "channels read in the order of the stored map")


def join(graph: ir.Graph, node: ir.Node, x: ir.Value, choice: Choice, why: str) -> bool:
    """Absorb a selection into the only Conv that reads it, which then reads `x`.

    Kernel, strides and pads grow by the factor `choice.block`. Returns whether it was absorbed.
    why: the explanation for the user.
    """
    conv, stride = _reader_by_weights(node), choice.block
    _, channels, *size = static_shape(x)  # type: ignore[misc]  # callers have checked it
    # Duplicates would add up in one weight, which int8 may not hold.
    if conv is None or any(n % stride for n in size) or choice.is_twice:
        return False
    ints, weight = conv.attributes.get_ints, conv.inputs[1]
    filters = constant(weight)
    assert weight is not None
    assert filters is not None
    if stride > 1 and (
        {*ints("dilations", ())} != {1} or stride * max(filters.shape[2:]) > _LARGEST
    ):
        return False
    rows, columns = filters.shape[2:]
    kernel_shape = (len(filters), channels, rows * stride, columns * stride)
    blocks = np.zeros((*kernel_shape[:2], rows, stride, columns, stride), filters.dtype)
    # numpy moves the axis of index arrays that slices separate to the front.
    blocks[:, choice.channels, :, choice.rows, :, choice.columns] = filters.swapaxes(0, 1)
    attributes = {
        "kernel_shape": kernel_shape[2:],
        "strides": [stride * n for n in ints("strides", ())],
        "dilations": ints("dilations", ()),
        "pads": [stride * n for n in ints("pads", ())],
        "group": 1,
    }
    taps = add_constant(
        graph, f"{weight.name}/chosen", blocks.reshape(kernel_shape), quant_of(weight)
    )
    merge_sources(conv, [node])
    rewrite(conv, "Conv", [x, taps, *conv.inputs[2:]], attributes)
    conv.metadata_props.setdefault(REWRITE_KEY, why)
    detach(node)
    return True


def _reader_by_weights(node: ir.Node) -> ir.Node | None:
    """The Conv that is the only reader of a node, if its weights can be rearranged.

    They must be constant, not grouped, and without a scale per input channel.
    """
    conv = sole_reader(node.outputs[0])
    if conv is None or not is_standard(conv, "Conv") or conv.inputs[0] is not node.outputs[0]:
        return None
    weight = operand(conv, 1)
    filters, weight_quant = constant(weight), None if weight is None else quant_of(weight)
    if filters is None or filters.ndim != 4 or conv.attributes.get_int("group", 1) != 1:
        return None
    return conv if weight_quant is None or weight_quant.axis in {None, 0} else None
