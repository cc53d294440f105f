"""Loop nests: what a step of libopu computes.

A generic operator (`host/kernel.py`) with addresses in place of maps. Operands may be anywhere in
their tensors, so that a concatenation is one nest for each operand.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct

from opu_fuse.affine import AffineMap, identity_map
from opu_fuse.host.kernel import GenericOp, Input, Instr, Iterator, Result, literal

LOOPS = 8
"""Loops that a nest has at most, after merging."""


ZERO = {"float32": literal(np.float32(0)), "float64": literal(np.float64(0))}
"""Floating-point types that libopu computes with -> their zero."""


class Operand(Struct, frozen=True, kw_only=True):
    """Elements of a tensor that a nest reads or writes.

    offset: of the first one; strides: of each loop; tables: for a loop, offsets that its index is
    looked up in, in addition to its stride. All in elements.
    """

    value: str
    dtype: str
    offset: int = 0
    strides: tuple[int, ...]
    tables: Mapping[int, tuple[int, ...]] = {}


class Nest(Struct, frozen=True, kw_only=True):
    """Loops around a payload whose values are numbered as those of a generic operator.

    Results that the payload reads have been written before.
    """

    extents: tuple[int, ...]
    inputs: tuple[Operand, ...]
    results: tuple[Operand, ...]
    body: tuple[Instr, ...] = ()
    yields: tuple[int, ...] = (0,)
    constants: Mapping[str, np.ndarray] = {}
    """Data of inputs that are no values of the model."""


class TopK(Struct, frozen=True, kw_only=True):
    """The k first of `count` elements, of each of some rows that follow each other. values: ""
    where only the indices, int64, are wanted.
    """

    source: str
    values: str
    indices: str
    dtype: str
    rows: int
    count: int
    k: int
    largest: bool

    @property
    def names(self) -> dict[str, str]:
        """Field -> the value that it names."""
        found = {"source": self.source, "values": self.values, "indices": self.indices}
        return {field: value for field, value in found.items() if value}


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements from one index to the next, of each axis."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def copy(source: str, target: str, dtype: str, size: int) -> Nest:
    """All elements in order."""
    return Nest(
        extents=(size,),
        inputs=(Operand(value=source, dtype=dtype, strides=(1,)),),
        results=(Operand(value=target, dtype=dtype, strides=(1,)),),
    )


def fill(target: str, dtype: str, size: int, text: str) -> Nest:
    """Every element becomes a literal (`host.kernel.literal`)."""
    return Nest(
        extents=(size,),
        inputs=(),
        results=(Operand(value=target, dtype=dtype, strides=(1,)),),
        body=(Instr(op="const", dtype=dtype, literal=text),),
        yields=(1,),
    )


def number(dtype: str, value: float) -> str:
    """The literal of a number."""
    return literal(np.dtype(dtype).type(value))


def least(dtype: str) -> str:
    """The literal that every maximum replaces."""
    kind = np.dtype(dtype)
    return literal(kind.type(-np.inf) if kind.kind == "f" else np.iinfo(kind).min)


def most(dtype: str) -> str:
    """The literal that every minimum replaces."""
    kind = np.dtype(dtype)
    return literal(kind.type(np.inf) if kind.kind == "f" else np.iinfo(kind).max)


def nests_of(op: GenericOp) -> list[Nest]:
    """A generic operator: what results start from, then its loops, those that gather outermost."""
    nests: list[Nest] = []
    for r in op.results:
        size = math.prod(r.shape)
        if r.init is not None:
            nests.append(copy(r.init, r.value, r.dtype, size))
        elif r.fill is not None:
            nests.append(fill(r.value, r.dtype, size, r.fill))
    order = sorted(range(len(op.loops)), key=lambda n: op.loops[n].kind is Iterator.PARALLEL)
    place = {loop: n for n, loop in enumerate(order)}
    nests.append(
        Nest(
            extents=tuple(op.loops[n].extent for n in order),
            inputs=tuple(_operand(x, order) for x in op.inputs),
            results=tuple(_operand(r, order) for r in op.results),
            body=tuple(replace(i, dim=place.get(i.dim, 0)) for i in op.body),
            yields=op.yields,
        )
    )
    return nests


def _operand(x: Input | Result, order: Sequence[int]) -> Operand:
    offset, strides = address(x.map, x.shape)
    return Operand(
        value=x.value, dtype=x.dtype, offset=offset, strides=tuple(strides[n] for n in order)
    )


def address(index: AffineMap, shape: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Offset and stride of each loop, of a tensor that is accessed through a map."""
    offset, strides = 0, [0] * index.dims
    for expression, step in zip(index.results, row_major(shape), strict=True):
        offset += expression.offset * step
        for loop, factor in expression.terms:
            strides[loop] += factor * step
    return offset, tuple(strides)


def whole(value: str, dtype: str, shape: Sequence[int], loops: Iterable[int], dims: int) -> Operand:
    """A tensor, each axis along a loop; -1: index 0."""
    strides = [0] * dims
    for loop, step in zip(loops, row_major(shape), strict=True):
        if loop >= 0:
            strides[loop] += step
    return Operand(value=value, dtype=dtype, strides=tuple(strides))


class Axes(Struct, frozen=True, kw_only=True):
    """Loops over a tensor, some axes outermost. order: axis of each loop; loops: loop of each axis;
    kept: the same, with -1 for those axes; retained: the shape with size 1 there.
    """

    order: tuple[int, ...]
    loops: tuple[int, ...]
    kept: tuple[int, ...]
    retained: tuple[int, ...]


def outermost(axes: Sequence[int], shape: Sequence[int]) -> Axes:
    """The loops of a reduction over some axes."""
    order = (*axes, *(n for n in range(len(shape)) if n not in axes))
    loops = tuple(order.index(n) for n in range(len(shape)))
    return Axes(
        order=order,
        loops=loops,
        kept=tuple(-1 if n in axes else loop for n, loop in enumerate(loops)),
        retained=tuple(1 if n in axes else size for n, size in enumerate(shape)),
    )


def placed(
    source: str,
    target: str,
    dtype: str,
    shape: Sequence[int],
    into: Sequence[int],
    before: Sequence[int],
) -> list[Nest]:
    """A tensor copied into one of shape `into`, `before` elements from its start along each axis;
    what is outside is left out. Empty where nothing is inside.
    """
    sizes = [
        min(size, wide - first) - max(0, -first)
        for size, wide, first in zip(shape, into, before, strict=True)
    ]
    if min(sizes) <= 0:
        return []
    rows, wide = row_major(shape), row_major(into)
    inner, outer = (
        sum(max(0, sign * first) * step for first, step in zip(before, steps, strict=True))
        for sign, steps in ((-1, rows), (1, wide))
    )
    return [
        Nest(
            extents=tuple(sizes),
            inputs=(Operand(value=source, dtype=dtype, offset=inner, strides=rows),),
            results=(Operand(value=target, dtype=dtype, offset=outer, strides=wide),),
        )
    ]


def plain(value: str, dtype: str, shape: Sequence[int]) -> Operand:
    """A tensor with a loop for each axis."""
    offset, strides = address(identity_map(len(shape)), shape)
    return Operand(value=value, dtype=dtype, offset=offset, strides=strides)


def simplified(nest: Nest) -> Nest:
    """Without loops of one iteration; loops that continue each other in every operand merged."""
    indexed = {i.dim for i in nest.body if i.op == "index"}
    kept = [n for n, extent in enumerate(nest.extents) if extent > 1 or n in indexed]
    groups: list[list[int]] = []
    for loop in kept:
        if groups and _continue(nest, groups[-1][-1], loop, indexed):
            groups[-1].append(loop)
        else:
            groups.append([loop])
    place = {g[-1]: n for n, g in enumerate(groups)}
    last = [g[-1] for g in groups]

    def renumbered(x: Operand) -> Operand:
        gone = sum(t[0] for loop, t in x.tables.items() if loop not in kept)
        return Operand(
            value=x.value,
            dtype=x.dtype,
            offset=x.offset + gone,
            strides=tuple(x.strides[n] for n in last),
            tables={place[n]: t for n, t in x.tables.items() if n in kept},
        )

    return Nest(
        extents=tuple(math.prod(nest.extents[n] for n in g) for g in groups),
        inputs=tuple(map(renumbered, nest.inputs)),
        results=tuple(map(renumbered, nest.results)),
        body=tuple(replace(i, dim=place.get(i.dim, 0)) for i in nest.body),
        yields=nest.yields,
        constants=nest.constants,
    )


def _continue(nest: Nest, outer: int, inner: int, indexed: set[int]) -> bool:
    """Whether a step of the outer loop continues the inner one, in every operand."""
    if {outer, inner} & indexed:
        return False
    return all(
        not {outer, inner} & x.tables.keys()
        and x.strides[outer] == x.strides[inner] * nest.extents[inner]
        for x in (*nest.inputs, *nest.results)
    )
