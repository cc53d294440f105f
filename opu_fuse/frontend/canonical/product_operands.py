"""Where the operands of a matrix product are in maps.

A product of batches of matrices has *heads*, which are channels of a map, and *sequences*, which
are its rows. Which batch axis is which follows from where the elements are, however Reshape,
Transpose, Split, Slice and Gather have put them in place: these are evaluated on element indices.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice

import numpy as np
import onnx_ir as ir
from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.frontend.canonical.element_order import Source, sources
from opu_fuse.frontend.canonical.joined_heads import size_of
from opu_fuse.frontend.editing import constant, is_standard, static_shape
from opu_fuse.model.operator_sets import ELEMENT_WISE, NORMS

MOST_ROWS = 1024
"""Rows of a product by rows. Each has a tile of its own."""
MOST_CHOICES = 64
"""Sets of batch axes that are tried as sequences."""
_Part = tuple[int, int, bool]
_Origin = tuple[Source, tuple[ir.Node, ...], np.ndarray | None]
"""A source, functions of its elements, and the elements of the normalisation among these."""


class Heads(Struct, frozen=True, kw_only=True):
    """Heads of an operand in a map: of each the first channel, channels, and whether its pixels are
    summed. functions: of single elements, which the operand is of the map. One of them may be a
    normalisation of what is summed.
    """

    map: ir.Value
    parts: tuple[_Part, ...]
    functions: tuple[ir.Node, ...]


class Matrices(Struct, frozen=True, kw_only=True):
    """A batch of products of matrices (n, k) and (k, m), and its operands.

    sequences: batch axes that are rows of maps. The other ones are heads.
    """

    batch: tuple[int, ...]
    rows: int
    summed: int
    columns: int
    transposed: tuple[bool, bool] = (False, False)
    sequences: tuple[int, ...] = ()

    @property
    def heads(self) -> tuple[int, ...]:
        """Batch axes that are channels of maps."""
        return tuple([axis for axis in range(len(self.batch)) if axis not in self.sequences])

    @property
    def head_count(self) -> int:
        return math.prod(self.batch[axis] for axis in self.heads)

    @property
    def row_count(self) -> int:
        """Rows of every map."""
        return math.prod(self.batch[axis] for axis in self.sequences)


def matrices_of(node: ir.Node) -> Matrices | None:
    """The matrices of a MatMul or Gemm of two computed values; None for others."""
    shapes = [static_shape(v) for v in node.inputs]
    if len(shapes) != 2 or any(constant(v) is not None for v in node.inputs):
        return None
    first, second = shapes
    if first is None or second is None or min(len(first), len(second)) < 2 or 0 in first + second:
        return None
    attrs = node.attributes
    if attrs.get_float("alpha", 1.0) != 1.0:
        return None
    transposed = (bool(attrs.get_int("transA", 0)), bool(attrs.get_int("transB", 0)))
    n, k = first[:-3:-1] if transposed[0] else first[-2:]
    m = second[-2 if transposed[1] else -1]
    batch = np.broadcast_shapes(first[:-2], second[:-2])
    return Matrices(batch=batch, rows=n, summed=k, columns=m, transposed=transposed)


def located(values: Sequence[ir.Value], of: Matrices) -> tuple[Matrices, tuple[Heads | None, ...]]:
    """The matrices with their sequences, and where the heads of both operands are in maps; None
    where they are no parts of one.

    A batch axis along which such an operand is broadcast is none of sequences.
    """
    best = of, (None,) * len(values)
    origins = [list(_origins(value)) for value in values]
    for axes in _choices(of):
        own = replace(of, sequences=axes)
        found = tuple([_located(known, own, i) for i, known in enumerate(origins)])
        if None not in found:
            return own, found
        is_broadcast = any(
            heads is None and _repeats(value, own)
            for value, heads in zip(values, found, strict=True)
        )
        key = (found.count(None), own.head_count)
        if not is_broadcast and key < (best[1].count(None), best[0].head_count):
            best = own, found
    return best


def heads_of(value: ir.Value, of: Matrices, index: int) -> Heads | None:
    """Where the heads of operand `index` are in a map; None where they are no parts of one."""
    return _located(_origins(value), of, index)


def _choices(of: Matrices) -> Iterator[tuple[int, ...]]:
    """Sets of batch axes that make few enough rows, small ones first."""
    axes = [axis for axis, size in enumerate(of.batch) if size > 1]
    sets = (chosen for count in range(len(axes) + 1) for chosen in combinations(axes, count))
    fit = (chosen for chosen in sets if math.prod(of.batch[a] for a in chosen) <= MOST_ROWS)
    return islice(fit, MOST_CHOICES)


def _repeats(value: ir.Value, of: Matrices) -> bool:
    """Whether an operand has the same matrix in several sequences."""
    own = size_of(value)[:-2]
    own = (1,) * (len(of.batch) - len(own)) + own
    return any(own[axis] != of.batch[axis] for axis in of.sequences)


def _located(origins: Iterable[_Origin], of: Matrices, index: int) -> Heads | None:
    for source, functions, normalised in origins:
        if normalised is not None and not _are_summed(normalised, of, index):
            continue
        parts: list[_Part] = []
        for block in _blocks(source.elements, of, index):
            part = _part_of(source, block)
            if part is None:
                break
            parts.append(part)
        else:
            return Heads(map=source.value, parts=tuple(parts), functions=functions)
    return None


def _origins(value: ir.Value) -> Iterator[_Origin]:
    """Sources of a value, and functions of single elements that are computed on the way from it."""
    found = sources(value)
    yield from ((source, (), None) for source in found)
    function = found[0].value.producer() if found else None
    read = None if function is None else _argument(function)
    if function is None or read is None:
        return
    order, is_norm = found[0].elements, is_standard(function, *NORMS)
    for source, functions, inner in _origins(read):
        if is_norm and inner is not None:
            continue
        normalised = order if is_norm else None if inner is None else inner.reshape(-1)[order]
        elements = source.elements.reshape(-1)[order]
        yield replace(source, elements=elements), (*functions, function), normalised


def _are_summed(elements: np.ndarray, of: Matrices, index: int) -> bool:
    """Whether a product sums what an operand normalises, the last axis of these elements."""
    blocks = list(_blocks(elements, of, index))
    return all(
        np.all(block[:, :1] % of.summed == 0)
        and np.array_equal(block, block[:, :1] + np.arange(of.summed)[:, None])
        for block in blocks
    )


def _argument(node: ir.Node) -> ir.Value | None:
    """What an elementwise operator with scalar constants reads, or a normalisation of the last axis
    of several matrices; None for others.
    """
    if is_standard(node, *NORMS):
        shape, axis = static_shape(node.outputs[0]), node.attributes.get_int("axis", -1)
        known = all(constant(v) is not None for v in node.inputs[1:])
        last = shape is not None and len(shape) > 3 and axis % len(shape) == len(shape) - 1
        return node.inputs[0] if known and last and len(node.outputs) == 1 else None
    computed = [v for v in node.inputs if v is not None and constant(v) is None]
    scalars = all(data.size == 1 for v in node.inputs if (data := constant(v)) is not None)
    if not is_standard(node, *ELEMENT_WISE) or len(computed) != 1 or not scalars:
        return None
    same = static_shape(computed[0]) == static_shape(node.outputs[0])
    return computed[0] if same else None


def _blocks(elements: np.ndarray, of: Matrices, index: int) -> Iterator[np.ndarray]:
    """Of every head the element numbers (rows, summed, pixels of a row)."""
    turned = of.transposed[index] != (index == 0)
    whole = np.broadcast_to(elements, (*of.batch, *elements.shape[-2:]))
    first, second = len(of.batch), len(of.batch) + 1
    last = (second, first) if turned else (first, second)
    whole = whole.transpose(*of.heads, *of.sequences, *last)
    yield from whole.reshape(of.head_count, of.row_count, *whole.shape[-2:])


def _part_of(source: Source, block: np.ndarray) -> _Part | None:
    """(first channel, channels, whether the pixels are summed) of a map that a block is; None for
    other blocks.
    """
    shape = size_of(source.value)
    if len(shape) not in {2, 3, 4} or shape[0] != 1:
        return None
    pixels = math.prod(shape[2:])
    for turned in (False, True)[: 2 if len(shape) == 4 else 1]:
        grid = block.transpose(2, 0, 1) if turned else block.transpose(1, 0, 2)
        first, offset = divmod(int(grid[0, 0, 0]), pixels)
        whole = grid[0].size == pixels and not offset
        if whole and np.array_equal(grid.reshape(-1), np.arange(grid.size) + grid[0, 0, 0]):
            return first, len(grid), turned
    return None
