"""Convolutions that choose: weights of the array put pixels and channels elsewhere.

Of every block of pixels a Conv with ones takes some, one behind the other, as channels. Where a
Conv alone reads them, its own weights do it: they stand for more pixels, of which most get zeros.
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
"""Rows and columns that a Conv may get: with more a small machine loads its image many times."""
_WHY = "pixels moved by a convolution with ones: the array chooses what the host would move"


class Choice(Struct, frozen=True, kw_only=True):
    """Of every `apart` by `apart` pixels: for each channel of the result the channel, the row and
    the column that it is taken from.
    """

    apart: int
    channels: np.ndarray
    rows: np.ndarray
    columns: np.ndarray

    @property
    def is_twice(self) -> bool:
        """Whether anything is taken more than once."""
        taken = np.stack([self.channels, self.rows, self.columns])
        return np.unique(taken, axis=1).shape != taken.shape


def all_pixels(channels: int, apart: int, *, channels_first: bool) -> Choice:
    """Every channel of every pixel: those of one pixel behind one another, or (channels_first) the
    pixels of one channel.
    """
    sizes = (channels, apart, apart) if channels_first else (apart, apart, channels)
    found = np.unravel_index(np.arange(channels * apart**2), sizes)
    channel, row, column = found if channels_first else (found[2], *found[:2])
    return Choice(apart=apart, channels=channel, rows=row, columns=column)


def whole_pixels(channels: int, apart: int, places: Sequence[tuple[int, int]]) -> Choice:
    """All channels of the pixels at some rows and columns, one pixel behind the other."""
    rows, columns = np.repeat(np.array(places), channels, axis=0).T
    return Choice(
        apart=apart, channels=np.tile(np.arange(channels), len(places)), rows=rows, columns=columns
    )


def choose(graph: ir.Graph, node: ir.Node, x: ir.Value, choice: Choice) -> None:
    """A node that chooses from `x` becomes a Conv, or part of the only one that reads it."""
    if join(graph, node, x, choice, "pixels chosen by the weights of the convolution behind"):
        return
    channels = static_shape(x)[1]  # type: ignore[index]  # callers have looked at it
    size = (len(choice.channels), channels, choice.rows.max() + 1, choice.columns.max() + 1)
    ones = np.zeros(size, np.int8)
    ones[np.arange(size[0]), choice.channels, choice.rows, choice.columns] = 1
    convolve(graph, node, "Conv", x, ones, choice.apart)


def convolve(
    graph: ir.Graph,
    node: ir.Node,
    op_type: str,
    x: ir.Value,
    ones: np.ndarray,
    apart: int,
    *,
    pads: Sequence[int] = (0, 0, 0, 0),
    group: int = 1,
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
        "pads": (*pads,),
        **({"output_padding": (0, 0)} if op_type == "ConvTranspose" else {}),
        "group": group,
    }
    rewrite(node, op_type, [x, weight], attributes)
    node.metadata_props.update({REWRITE_KEY: _WHY, CHOICE_KEY: "ones"})


def take_order(graph: ir.Graph, node: ir.Node) -> bool:
    """A Gather of channels goes into the weights of the Conv behind it."""
    x, order = node.inputs[0], constant(operand(node, 1))
    if x is None or order is None or order.ndim != 1 or node.attributes.get_int("axis", 0) != 1:
        return False
    if quant_of(x) != quant_of(node.outputs[0]):
        return False
    order = order % static_shape(x)[1]  # type: ignore[index]  # callers have looked at it
    first = np.zeros_like(order)
    choice = Choice(apart=1, channels=order, rows=first, columns=first)
    return join(graph, node, x, choice, "channels taken in the order in which they lie")


def join(graph: ir.Graph, node: ir.Node, x: ir.Value, choice: Choice, why: str) -> bool:
    """The Conv that alone reads a choice makes it of `x` itself: over as many times as many pixels,
    as many times as far apart. False where it does not. why: for the user.
    """
    conv, apart = _reader_by_weights(node), choice.apart
    _, channels, *size = static_shape(x)  # type: ignore[misc]  # callers have looked at it
    if conv is None or any(n % apart for n in size) or choice.is_twice:  # int8 holds no sums
        return False
    ints, weight = conv.attributes.get_ints, conv.inputs[1]
    filters = constant(weight)
    assert weight is not None
    assert filters is not None
    if apart > 1 and ({*ints("dilations", ())} != {1} or apart * max(filters.shape[2:]) > _LARGEST):
        return False
    rows, columns = filters.shape[2:]
    spread = (len(filters), channels, rows * apart, columns * apart)
    blocks = np.zeros((*spread[:2], rows, apart, columns, apart), filters.dtype)
    # Indices with others between them: numpy puts their axis first.
    blocks[:, choice.channels, :, choice.rows, :, choice.columns] = filters.swapaxes(0, 1)
    attributes = {
        "kernel_shape": spread[2:],
        "strides": [apart * n for n in ints("strides", ())],
        "dilations": ints("dilations", ()),
        "pads": [apart * n for n in ints("pads", ())],
        "group": 1,
    }
    taps = add_constant(graph, f"{weight.name}/chosen", blocks.reshape(spread), quant_of(weight))
    merge_sources(conv, [node])
    rewrite(conv, "Conv", [x, taps, *conv.inputs[2:]], attributes)
    conv.metadata_props.setdefault(REWRITE_KEY, why)
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
