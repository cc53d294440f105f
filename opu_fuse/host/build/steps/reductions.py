"""Sums and what is made of them: ONNX's reductions, Softmax, norms. Floats: within the rounding of
their sums. Functions as in `elementwise.py`.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.build.linalg.site import Site
from opu_fuse.host.build.steps.elementwise import Lowering, call, constant
from opu_fuse.host.build.steps.nest import (
    ZERO,
    Nest,
    Operand,
    fill,
    least,
    most,
    number,
    outermost,
    plain,
    row_major,
    whole,
)

_SOFTMAX_BY_AXIS = 13
"""Opset from which Softmax works along one axis."""


def _gathered(
    site: Site,
    axes: Sequence[int],
    op: str,
    start: str,
    target: str,
    *,
    square: bool = False,
    source: str = "",
) -> list[Nest]:
    """A reduction of operand 0, or of a value of its shape, over some axes into `target`, which
    retains them with size 1.
    """
    shape, dtype = site.shape(0), site.result.dtype
    by = outermost(axes, shape)
    body = Payload([dtype, dtype])
    value = body.emit("mul", 0, 0) if square else 0
    value = body.emit(op, 1, value)
    return [
        fill(target, dtype, math.prod(by.retained), start),
        Nest(
            extents=tuple(shape[n] for n in by.order),
            inputs=(whole(source or site.node.input[0], dtype, shape, by.loops, len(shape)),),
            results=(whole(target, dtype, by.retained, by.kept, len(shape)),),
            body=body.instructions,
            yields=(value,),
        ),
    ]


def _reduction(op: str, *, mean: bool = False, square: bool = False) -> Lowering:
    def lower(site: Site) -> list[Nest] | None:
        axes, dtype = _axes(site), site.result.dtype
        if axes is None or (mean and dtype not in ZERO):
            return None
        starts = {
            "add": number(dtype, 0),
            "mul": number(dtype, 1),
            "max": least(dtype),
            "min": most(dtype),
        }
        target = site.node.output[0]
        nests = _gathered(site, axes, op, starts[op], target, square=square)
        if mean:
            count = math.prod(site.shape(0)[n] for n in axes)
            nests.append(_scaled(target, dtype, math.prod(site.result_shape), count))
        return nests

    return lower


def _running(op: str) -> Lowering:
    """CumSum and CumProd: the total so far goes along the axis."""

    def lower(site: Site) -> list[Nest] | None:
        known, shape, dtype = site.constant(1), site.shape(0), site.result.dtype
        if known is None:
            return None
        axis, name = int(known.reshape(())) % len(shape), site.node.output[0]
        axes, steps = outermost([axis], shape), row_major(shape)
        reverse = bool(site.integer("reverse", 0))
        strides = [steps[n] for n in axes.order]
        first = (shape[axis] - 1) * strides[0] if reverse else 0
        strides[0] *= -1 if reverse else 1
        body = Payload([dtype] * 3)
        total = body.emit(op, 1, 0)

        def moving(value: str) -> Operand:
            return Operand(value=value, dtype=dtype, offset=first, strides=tuple(strides))

        start = number(dtype, op == "mul")
        so_far = whole(f"{name}:total", dtype, axes.retained, axes.kept, len(shape))
        return [
            fill(so_far.value, dtype, math.prod(axes.retained), start),
            Nest(
                extents=tuple(shape[n] for n in axes.order),
                inputs=(moving(site.node.input[0]),),
                results=(so_far, moving(name)),
                body=body.instructions,
                yields=(total, 1 if site.integer("exclusive", 0) else total),
            ),
        ]

    return lower


def _scaled(target: str, dtype: str, size: int, count: int) -> Nest:
    """Every element divided by a number, in place."""
    body = Payload([dtype])
    value = body.emit("div", 0, body.const(count, dtype))
    result = Operand(value=target, dtype=dtype, strides=(1,))
    return Nest(
        extents=(size,), inputs=(), results=(result,), body=body.instructions, yields=(value,)
    )


def _axes(site: Site) -> list[int] | None:
    rank = len(site.shape(0))
    axes = site.constant(1) if site.has(1) else site.attribute("axes")
    if site.has(1) and axes is None:
        return None
    if axes is None or len(np.ravel(np.asarray(axes))) == 0:
        return None if site.integer("noop_with_empty_axes", 0) else list(range(rank))
    return sorted({int(x) % rank for x in np.ravel(np.asarray(axes))})


def _global_mean(site: Site) -> list[Nest] | None:
    axes = list(range(2, len(site.shape(0))))
    if site.result.dtype not in ZERO:
        return None
    target = site.node.output[0]
    nests = _gathered(site, axes, "add", ZERO[site.result.dtype], target)
    count = math.prod(site.shape(0)[2:])
    return [*nests, _scaled(target, site.result.dtype, math.prod(site.result_shape), count)]


def _each(
    site: Site,
    axes: Sequence[int],
    target: str,
    operands: Sequence[str],
    emit: Callable[[Payload], int],
) -> Nest:
    """Every element of the operand's shape. operands: of that shape; all but the first without
    the axes.
    """
    dtype, shape = site.result.dtype, site.shape(0)
    retained = [1 if n in axes else size for n, size in enumerate(shape)]
    loops = [-1 if n in axes else n for n in range(len(shape))]
    body = Payload([dtype] * (len(operands) + 1))
    value = emit(body)
    inputs = [plain(operands[0], dtype, shape)]
    inputs += [whole(x, dtype, retained, loops, len(shape)) for x in operands[1:]]
    return Nest(
        extents=shape,
        inputs=tuple(inputs),
        results=(plain(target, dtype, shape),),
        body=body.instructions,
        yields=(value,),
    )


def softmax(site: Site, opset: int, *, log: bool = False) -> list[Nest] | None:
    """Maximum, exponentials of the differences, their sum, quotient."""
    dtype, shape = site.result.dtype, site.shape(0)
    if dtype not in ZERO:
        return None
    axis = site.integer("axis", -1 if opset >= _SOFTMAX_BY_AXIS else 1) % len(shape)
    axes = [axis] if opset >= _SOFTMAX_BY_AXIS else list(range(axis, len(shape)))
    source, name = site.node.input[0], site.node.output[0]
    top, total, powers = f"{name}:max", f"{name}:sum", f"{name}:exp"

    def power(body: Payload) -> int:
        return body.emit("exp", body.emit("sub", 0, 1))

    def difference(body: Payload) -> int:
        return body.emit("sub", body.emit("sub", 0, 1), call(body, "log", 2))

    nests = _gathered(site, axes, "max", least(dtype), top)
    nests.append(_each(site, axes, powers, (source, top), power))
    nests += _gathered(site, axes, "add", ZERO[dtype], total, source=powers)
    if log:
        return [*nests, _each(site, axes, name, (source, top, total), difference)]
    return [*nests, _each(site, axes, name, (powers, total), lambda body: body.emit("div", 0, 1))]


def _layer_norm(site: Site) -> list[Nest] | None:
    """Over the last axes; scale and bias along them."""
    rank = len(site.shape(0))
    axes = range(site.integer("axis", -1) % rank, rank)
    return _normalised(site, axes, [n for n in range(rank) if n not in axes])


def _instance_norm(site: Site) -> list[Nest] | None:
    """Of every image and channel; scale and bias of each channel."""
    rank = len(site.shape(0))
    return _normalised(site, range(2, rank), [n for n in range(rank) if n != 1])


def _normalised(site: Site, axes: Sequence[int], others: Sequence[int]) -> list[Nest] | None:
    """Mean, differences, mean of their squares; then scale and bias without the axes `others`."""
    dtype, shape = site.result.dtype, site.shape(0)
    if dtype not in ZERO:
        return None
    count = math.prod(shape[n] for n in axes)
    rows = math.prod(shape) // count
    name, epsilon = site.node.output[0], float(site.number("epsilon", 1e-5))
    mean, centred, variance = f"{name}:mean", f"{name}:centred", f"{name}:variance"

    def normalised(body: Payload) -> int:
        return body.emit("div", 0, body.emit("sqrt", body.emit("add", 1, constant(body, epsilon))))

    nests = _gathered(site, axes, "add", ZERO[dtype], mean)
    nests.append(_scaled(mean, dtype, rows, count))
    subtract = _each(
        site, axes, centred, (site.node.input[0], mean), lambda body: body.emit("sub", 0, 1)
    )
    nests.append(subtract)
    nests += _gathered(site, axes, "add", ZERO[dtype], variance, square=True, source=centred)
    nests.append(_scaled(variance, dtype, rows, count))
    nests.append(_each(site, axes, name, (centred, variance), normalised))
    for n, op in ((1, "mul"), (2, "add")):
        if site.has(n):
            nests.append(_along(site, name, site.node.input[n], others, op))
    return nests


def _along(site: Site, target: str, factor: str, others: Sequence[int], op: str) -> Nest:
    """The result times (or plus) a tensor that has only the axes that are not in `others`."""
    return _each(site, others, target, (target, factor), lambda body: body.emit(op, 0, 1))


REDUCTIONS: Mapping[str, Lowering] = {
    "ReduceSum": _reduction("add"),
    "ReduceProd": _reduction("mul"),
    "ReduceMax": _reduction("max"),
    "ReduceMin": _reduction("min"),
    "ReduceMean": _reduction("add", mean=True),
    "ReduceSumSquare": _reduction("add", square=True),
    "CumSum": _running("add"),
    "CumProd": _running("mul"),
    "GlobalAveragePool": _global_mean,
    "LayerNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm,
}
"""Operator of ONNX -> its nests."""
