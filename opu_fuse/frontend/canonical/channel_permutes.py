"""Channels that are chosen or put in another order, however it is spelt, become one Gather.

Exporters write it in operators that move single values: Reshape, Transpose and Gather, or Slice,
Squeeze, Split. Each chain of those between two images is run on the numbers of its values; where
these come out as whole channels, the Gather of channels (which machines know) takes its place, or
nothing where all stay where they are.
A Reshape, Transpose, Reshape that interleaves groups is known as it is (`model/composites.py`).
"""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    is_standard,
    merge_sources,
    operand,
    quant_of,
    rewrite,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.composites import interleaving, slice_ranges

_LARGEST = 1 << 22
"""Values of an image that are looked at."""
Move = Callable[[np.ndarray, ir.Node, ir.Value], np.ndarray | None]


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    ends = standard_nodes(model.graph, "Gather", "Reshape", "Slice", "Transpose")
    changed = [_choose(model.graph, node) for node in ends]
    return any(changed)


def _choose(graph: ir.Graph, node: ir.Node) -> bool:
    target = static_shape(node.outputs[0])
    if target is None or len(target) != 4 or interleaving(node) is not None:
        return False
    chain = _chain(node, target)
    several = len(chain) > 1
    source = chain[-1].inputs[0] if several or (chain and node.op_type == "Gather") else None
    shape = static_shape(source)
    order = None if shape is None else _order(chain, shape)
    if source is None or order is None:
        return False
    if np.array_equal(order, np.arange(shape[1])):  # type: ignore[index]  # `order` came from it
        rewrite(node, "Identity", [source])
        return True
    if not several:
        return False
    merge_sources(node, chain[1:])
    indices = add_constant(graph, f"{node.name}/order", order.astype(np.int64))
    rewrite(node, "Gather", [source, indices], {"axis": 1})
    return True


def _chain(node: ir.Node, target: tuple[int, ...]) -> list[ir.Node]:
    """From a node back to the nearest image of as many rows and columns, all that only moves
    values; empty without one.
    """
    chain, rounding = [node], quant_of(node.outputs[0])
    while is_standard(chain[-1], *_MOVES):
        value = operand(chain[-1], 0)
        shape = static_shape(value)
        if value is None or shape is None or quant_of(value) not in {None, rounding}:
            return []
        if len(shape) == 4 and (shape[0], *shape[2:]) == (1, *target[2:]):
            return chain if rounding in {None, quant_of(value)} else []
        producer = value.producer()
        if producer is None:
            return []
        chain.append(producer)
    return []


def _order(chain: list[ir.Node], shape: tuple[int, ...]) -> np.ndarray | None:
    """For each channel of the result that of the image; None where they do not stay whole."""
    count = int(np.prod(shape))
    if count > _LARGEST or 0 in shape:
        return None
    numbers = np.arange(count).reshape(shape)
    values = [link.inputs[0] for link in chain[:-1]]
    for link, made in zip(reversed(chain), [*reversed(values), chain[0].outputs[0]], strict=True):
        moved = _MOVES[link.op_type](numbers, link, made)  # type: ignore[arg-type]  # links read what they are linked by
        if moved is None:
            return None
        numbers = moved
    order = numbers[0, :, 0, 0] // (shape[2] * shape[3])
    wanted = np.arange(count).reshape(shape)[:, order]
    return order if np.array_equal(numbers, wanted) else None


def _reshape(numbers: np.ndarray, node: ir.Node, made: ir.Value) -> np.ndarray | None:
    size = static_shape(made)
    known = constant(operand(node, 1)) is not None
    return numbers.reshape(size) if size is not None and known else None


def _transpose(numbers: np.ndarray, node: ir.Node, made: ir.Value) -> np.ndarray:
    del made
    return numbers.transpose(node.attributes.get_ints("perm", range(numbers.ndim)[::-1]))


def _gather(numbers: np.ndarray, node: ir.Node, made: ir.Value) -> np.ndarray | None:
    del made
    indices = constant(operand(node, 1))
    axis = node.attributes.get_int("axis", 0)
    return None if indices is None else np.take(numbers, indices, axis=axis)


def _slice(numbers: np.ndarray, node: ir.Node, made: ir.Value) -> np.ndarray | None:
    del made
    taken = slice_ranges(node)
    return None if taken is None else numbers[np.ix_(*taken)]


def _split(numbers: np.ndarray, node: ir.Node, made: ir.Value) -> np.ndarray | None:
    axis = node.attributes.get_int("axis", 0)
    sizes = [shape[axis] for v in node.outputs if (shape := static_shape(v))]
    if len(sizes) < len(node.outputs):
        return None
    return np.split(numbers, np.cumsum(sizes)[:-1], axis)[node.outputs.index(made)]


_MOVES: dict[str, Move] = {
    "Gather": _gather,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Transpose": _transpose,
}
