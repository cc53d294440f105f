"""Operators whose results are indices or are looked up by computed indices, as loop nests.

Every function takes a `Site` of one node and gives the nests that compute its result, or None where
the node has a form that libopu does not know.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.build.linalg.site import Site, TensorType
from opu_fuse.host.build.steps.nest import (
    Nest,
    Operand,
    TopK,
    fill,
    least,
    most,
    outermost,
    plain,
    row_major,
    whole,
)
from opu_fuse.host.kernel import INDEX_DTYPE, Instr, literal

_ZERO = literal(np.int64(0))


def best_place(site: Site, *, largest: bool) -> list[Nest] | None:
    """ArgMax and ArgMin: the best value so far and its index go along the axis."""
    shape, kind = site.shape(0), site.inputs[0]
    assert kind is not None
    axis = site.integer("axis", 0) % len(shape)
    axes, target = outermost([axis], shape), site.node.output[0]
    count = math.prod(axes.retained)
    best = f"{target}:best"
    last = bool(site.integer("select_last_index", 0))
    compare = ("ge" if last else "gt") if largest else ("le" if last else "lt")
    body = Payload([kind.dtype, kind.dtype, INDEX_DTYPE])
    better = body.emit(compare, 0, 1)
    index = body.append(Instr(op="index", dtype=INDEX_DTYPE, dim=0))
    yields = (body.emit("select", better, 0, 1), body.emit("select", better, index, 2))
    return [
        fill(best, kind.dtype, count, least(kind.dtype) if largest else most(kind.dtype)),
        fill(target, INDEX_DTYPE, count, _ZERO),
        Nest(
            extents=tuple(shape[n] for n in axes.order),
            inputs=(whole(site.node.input[0], kind.dtype, shape, axes.loops, len(shape)),),
            results=(
                whole(best, kind.dtype, axes.retained, axes.kept, len(shape)),
                whole(target, INDEX_DTYPE, axes.retained, axes.kept, len(shape)),
            ),
            body=body.instructions,
            yields=yields,
        ),
    ]


def top(
    node: onnx.NodeProto, types: Mapping[str, TensorType], constants: Mapping[str, np.ndarray]
) -> list[Nest | TopK] | None:
    """TopK: rows along its axis, in their order."""
    source, count = node.input[0], constants.get(node.input[1]) if len(node.input) > 1 else None
    kind = types[source]
    attributes = {a.name: a.i for a in node.attribute}
    if kind.shape is None or count is None or 0 in kind.shape or not int(count.reshape(())):
        return None
    axis = attributes.get("axis", -1) % len(kind.shape)
    k, size = int(count.reshape(())), kind.shape[axis]
    names = [*node.output, ""][:2]
    ends = [axis == len(kind.shape) - 1 or not name for name in names]
    rows = [name if end else f"{name}:rows" for name, end in zip(names, ends, strict=True)]
    moved = source if axis == len(kind.shape) - 1 else f"{source}:rows of {node.output[0]}"
    steps: list[Nest | TopK] = []
    if moved != source or source in constants:
        moved = f"{source}:rows of {node.output[0]}"
        steps.append(_to_rows(source, moved, kind.dtype, kind.shape, axis))
    steps.append(
        TopK(
            source=moved,
            values=rows[0],
            indices=rows[1] or f"{node.output[0]}:indices",
            dtype=kind.dtype,
            rows=math.prod(kind.shape) // size,
            count=size,
            k=k,
            largest=bool(attributes.get("largest", 1)),
        )
    )
    shape = [k if n == axis else length for n, length in enumerate(kind.shape)]
    for name, row, end, dtype in zip(names, rows, ends, (kind.dtype, "int64"), strict=True):
        if not end:
            steps.append(_to_rows(name, row, dtype, shape, axis, back=True))
    return steps


def _to_rows(
    value: str, rows: str, dtype: str, shape: Sequence[int], axis: int, *, back: bool = False
) -> Nest:
    """A value with an axis moved to the end; back: from there."""
    order = [*(n for n in range(len(shape)) if n != axis), axis]
    loops = [order.index(n) for n in range(len(shape))]
    moved = [shape[n] for n in order]
    ends = (whole(value, dtype, shape, loops, len(shape)), plain(rows, dtype, moved))
    source, target = reversed(ends) if back else ends
    return Nest(extents=tuple(moved), inputs=(source,), results=(target,))


def looked_up(site: Site) -> list[Nest] | None:
    """Gather, GatherElements and GatherND of computed indices."""
    lower = {"Gather": _gather, "GatherElements": _gather_elements, "GatherND": _gather_nd}
    return lower[site.node.op_type](site)


def _gather(site: Site) -> list[Nest]:
    """Loops: axes before, axes of the indices, axes after."""
    shape, index_shape = site.shape(0), site.shape(1)
    axis, rank = site.integer("axis", 0) % len(shape), len(site.result_shape)
    after = len(index_shape) - 1
    loops = [n if n < axis else -1 if n == axis else n + after for n in range(len(shape))]
    index_loops = range(axis, axis + len(index_shape))
    steps = row_major(shape)
    return _at(
        site, loops, [whole(site.node.input[1], _int(site), index_shape, index_loops, rank)],
        [(shape[axis], steps[axis])],
    )  # fmt: skip


def _gather_elements(site: Site) -> list[Nest]:
    shape, index_shape = site.shape(0), site.shape(1)
    axis = site.integer("axis", 0) % len(shape)
    loops = [-1 if n == axis else n for n in range(len(shape))]
    indices = plain(site.node.input[1], _int(site), index_shape)
    return _at(site, loops, [indices], [(shape[axis], row_major(shape)[axis])])


def _gather_nd(site: Site) -> list[Nest]:
    """An operand for each of the axes that the last axis of the indices names."""
    shape, index_shape, batch = site.shape(0), site.shape(1), site.integer("batch_dims", 0)
    named, rank = index_shape[-1], len(site.result_shape)
    steps, lead = row_major(shape), len(index_shape) - 1
    first = batch + named
    loops = [*range(batch), *[-1] * named, *(lead + n - first for n in range(first, len(shape)))]
    operand = whole(site.node.input[1], _int(site), index_shape, [*range(lead), -1], rank)
    operands = [
        Operand(value=operand.value, dtype=operand.dtype, offset=n, strides=operand.strides)
        for n in range(named)
    ]
    axes = range(batch, first)
    return _at(site, loops, operands, [(shape[n], steps[n]) for n in axes])


def _int(site: Site) -> str:
    kind = site.inputs[1]
    assert kind is not None
    return kind.dtype


def _at(
    site: Site,
    loops: Sequence[int],
    indices: Sequence[Operand],
    axes: Sequence[tuple[int, int]],
) -> list[Nest]:
    """loops: of each axis of the data, -1 where an index says the place; axes: their sizes and the
    elements from one place to the next.
    """
    dtype, shape = site.result.dtype, site.result_shape
    data = whole(site.node.input[0], dtype, site.shape(0), loops, len(shape))
    body = Payload([dtype, *(x.dtype for x in indices), dtype])
    total = -1
    for n, (size, step) in enumerate(axes, 1):
        index = body.cast(n, INDEX_DTYPE)
        inside = Instr(op="within", dtype=INDEX_DTYPE, args=(index,), literal=str(size))
        part = body.emit("mul", body.append(inside), body.const(step, INDEX_DTYPE))
        total = part if total < 0 else body.emit("add", total, part)
    reach = sum((size - 1) * step for size, step in axes)
    value = body.append(Instr(op="at", dtype=dtype, args=(0, total), literal=str(reach)))
    return [
        Nest(
            extents=shape,
            inputs=(data, *indices),
            results=(plain(site.node.output[0], dtype, shape),),
            body=body.instructions,
            yields=(value,),
        )
    ]


def one_hot(site: Site) -> list[Nest] | None:
    """OneHot: on where the index of its axis is the place, counted from the end if negative."""
    depth = site.constant(1)
    kinds = [t for t in site.inputs if t is not None]
    if depth is None or len(kinds) != 3:
        return None
    shape, index_shape, dtype = site.result_shape, site.shape(0), site.result.dtype
    axis, rank = site.integer("axis", -1) % len(shape), len(shape)
    loops = [n + (n >= axis) for n in range(len(index_shape))]
    off, on = (
        Operand(value=site.node.input[2], dtype=dtype, offset=n, strides=(0,) * rank)
        for n in (0, 1)
    )
    body = Payload([kinds[0].dtype, dtype, dtype, dtype])
    place = body.cast(0, INDEX_DTYPE)
    size = body.const(shape[axis], INDEX_DTYPE)
    negative = body.emit("lt", place, body.const(0, INDEX_DTYPE))
    place = body.emit("select", negative, body.emit("add", place, size), place)
    here = body.append(Instr(op="index", dtype=INDEX_DTYPE, dim=axis))
    value = body.emit("select", body.emit("eq", here, place), 2, 1)
    return [
        Nest(
            extents=shape,
            inputs=(whole(site.node.input[0], kinds[0].dtype, index_shape, loops, rank), off, on),
            results=(plain(site.node.output[0], dtype, shape),),
            body=body.instructions,
            yields=(value,),
        )
    ]
