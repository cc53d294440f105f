"""Chains of operators that only move values, evaluated on element indices.

A value is traced back through such operators. Of every value on the way the result is known as a
selection of its elements, however the exporter has spelt it.
"""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from msgspec import Struct

from opu_fuse.frontend.editing import constant, is_standard, operand, quant_of, static_shape
from opu_fuse.model.known_values import slice_ranges
from opu_fuse.model.operator_sets import VIEWS

LARGEST = 1 << 25
"""Largest number of elements that are traced: 128 MiB of indices. The scores of 12 heads and 1500
tokens are below it."""
Move = Callable[[np.ndarray, ir.Node, ir.Value], np.ndarray | None]


class Source(Struct, frozen=True, kw_only=True):
    """Where the elements of a value come from.

    value: what they are elements of; links: the operators between, in graph order; elements: for
    each element of the result its number in `value`.
    """

    value: ir.Value
    links: tuple[ir.Node, ...]
    elements: np.ndarray


def sources(value: ir.Value) -> list[Source]:
    """The sources of a value, the furthest first and the value itself last; empty if its shape is
    unknown or too large. A link that requantises is none.
    """
    chain: list[tuple[ir.Node, ir.Value]] = []
    values = [value]
    while (node := values[-1].producer()) is not None and is_standard(node, *MOVES):
        read = operand(node, 0)
        if read is None or quant_of(values[-1]) not in {None, quant_of(read)}:
            break
        chain.append((node, values[-1]))
        values.append(read)
    found = [_evaluated(values[n], chain[:n]) for n in range(len(values) - 1, -1, -1)]
    return [source for source in found if source is not None]


def _evaluated(value: ir.Value, chain: list[tuple[ir.Node, ir.Value]]) -> Source | None:
    shape = static_shape(value)
    if shape is None or 0 in shape or np.prod(shape) > LARGEST:
        return None
    elements = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    for node, made in reversed(chain):
        moved = MOVES[node.op_type](elements, node, made)
        if moved is None:
            return None
        elements = moved
    links = tuple(node for node, _ in reversed(chain))
    return Source(value=value, links=links, elements=elements)


def _reshape(numbers: np.ndarray, node: ir.Node, made: ir.Value) -> np.ndarray | None:
    size = static_shape(made)
    known = all(constant(v) is not None for v in node.inputs[1:])
    return numbers.reshape(size) if size is not None and known else None


def _expand(numbers: np.ndarray, node: ir.Node, made: ir.Value) -> np.ndarray | None:
    size = static_shape(made)
    known = constant(operand(node, 1)) is not None
    return np.broadcast_to(numbers, size) if size is not None and known else None


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
    ranges = slice_ranges(node)
    return None if ranges is None else numbers[np.ix_(*ranges)]


def _split(numbers: np.ndarray, node: ir.Node, made: ir.Value) -> np.ndarray | None:
    axis = node.attributes.get_int("axis", 0)
    sizes = [shape[axis] for v in node.outputs if (shape := static_shape(v))]
    if len(sizes) < len(node.outputs):
        return None
    return np.split(numbers, np.cumsum(sizes)[:-1], axis)[node.outputs.index(made)]


MOVES: dict[str, Move] = {
    "Expand": _expand,
    "Gather": _gather,
    **dict.fromkeys(VIEWS, _reshape),
    "Slice": _slice,
    "Split": _split,
    "Transpose": _transpose,
}
