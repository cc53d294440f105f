"""ONNX operators without a generic form, as loop nests. Floats: within the rounding of their sums.

Every function takes a `Site` of one node and gives the nests that compute its result, or None where
the node has a form that libopu does not know.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.build.linalg.site import Site
from opu_fuse.host.build.steps.nest import Nest, Operand, fill, least, plain, whole
from opu_fuse.host.build.steps.windows import convolution, pool
from opu_fuse.host.kernel import Instr, literal

Lowering = Callable[[Site], list[Nest] | None]
_SOFTMAX_BY_AXIS = 13
"""Opset from which Softmax works along one axis."""
ZERO = {"float32": literal(np.float32(0)), "float64": literal(np.float64(0))}


def extended(site: Site, emit: Callable[[Payload, tuple[int, ...]], int]) -> list[Nest] | None:
    """An element-wise operator by its payload."""
    kinds = [t for t in site.inputs if t is not None]
    if len(kinds) != len(site.inputs) or any(k.dtype != site.result.dtype for k in kinds):
        return None
    shape = site.result_shape
    body = Payload([*(k.dtype for k in kinds), site.result.dtype])
    value = emit(body, tuple(range(len(kinds))))
    inputs = []
    for n, kind in enumerate(kinds):
        own = site.shape(n)
        lead = len(shape) - len(own)
        loops = [lead + i if size > 1 else -1 for i, size in enumerate(own)]
        inputs.append(whole(site.node.input[n], kind.dtype, own, loops, len(shape)))
    return [
        Nest(
            extents=shape,
            inputs=tuple(inputs),
            results=(plain(site.node.output[0], site.result.dtype, shape),),
            body=body.instructions,
            yields=(value,),
        )
    ]


def call(body: Payload, op: str, *args: int) -> int:
    """An operation that only libopu has."""
    return body.append(Instr(op=op, dtype=body.dtype(args[0]), args=args))


def _constant(body: Payload, value: float) -> int:
    return body.const(value, body.dtype(0))


def _unary(op: str) -> Lowering:
    return lambda site: extended(site, lambda body, args: call(body, op, args[0]))


def _binary(op: str) -> Lowering:
    def lower(site: Site) -> list[Nest] | None:
        if len(site.inputs) != 2:
            return None
        return extended(site, lambda body, args: call(body, op, *args))

    return lower


def _extremum(op: str) -> Lowering:
    def emit(body: Payload, args: tuple[int, ...]) -> int:
        total = args[0]
        for other in args[1:]:
            total = body.emit(op, total, other)
        return total

    return lambda site: extended(site, emit)


def _softplus(site: Site) -> list[Nest] | None:
    """max(x, 0) + log(1 + exp(-|x|))."""

    def emit(body: Payload, args: tuple[int, ...]) -> int:
        small = body.emit("exp", body.emit("neg", body.emit("abs", args[0])))
        log = call(body, "log", body.emit("add", small, _constant(body, 1.0)))
        return body.emit("add", body.emit("max", args[0], _constant(body, 0.0)), log)

    return extended(site, emit)


def _elu(site: Site) -> list[Nest] | None:
    alpha = float(site.number("alpha", 1.0))

    def emit(body: Payload, args: tuple[int, ...]) -> int:
        below = body.emit("sub", body.emit("exp", args[0]), _constant(body, 1.0))
        below = body.emit("mul", _constant(body, alpha), below)
        positive = body.emit("gt", args[0], _constant(body, 0.0))
        return body.emit("select", positive, args[0], below)

    return extended(site, emit)


def _softsign(site: Site) -> list[Nest] | None:
    def emit(body: Payload, args: tuple[int, ...]) -> int:
        below = body.emit("add", body.emit("abs", args[0]), _constant(body, 1.0))
        return body.emit("div", args[0], below)

    return extended(site, emit)


def _gelu(site: Site) -> list[Nest] | None:
    if site.attribute("approximate", b"none") != b"none":
        return None

    def emit(body: Payload, args: tuple[int, ...]) -> int:
        scaled = body.emit("mul", args[0], _constant(body, math.sqrt(0.5)))
        whole_part = body.emit("add", call(body, "erf", scaled), _constant(body, 1.0))
        half = body.emit("mul", args[0], _constant(body, 0.5))
        return body.emit("mul", half, whole_part)

    return extended(site, emit)


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
    parallel = [n for n in range(len(shape)) if n not in axes]
    order = [*axes, *parallel]
    retained = [1 if n in axes else size for n, size in enumerate(shape)]
    loops = [order.index(n) for n in range(len(shape))]
    kept = [-1 if n in axes else loops[n] for n in range(len(shape))]
    body = Payload([dtype, dtype])
    value = body.emit("mul", 0, 0) if square else 0
    value = body.emit(op, 1, value)
    return [
        fill(target, dtype, math.prod(retained), start),
        Nest(
            extents=tuple(shape[n] for n in order),
            inputs=(whole(source or site.node.input[0], dtype, shape, loops, len(order)),),
            results=(whole(target, dtype, retained, kept, len(order)),),
            body=body.instructions,
            yields=(value,),
        ),
    ]


def _reduction(op: str, *, mean: bool = False, square: bool = False) -> Lowering:
    def lower(site: Site) -> list[Nest] | None:
        axes, dtype = _axes(site), site.result.dtype
        if axes is None or (mean and dtype not in ZERO):
            return None
        kind = np.dtype(dtype)
        starts = {
            "add": literal(kind.type(0)),
            "mul": literal(kind.type(1)),
            "max": least(dtype),
            "min": literal(kind.type(np.inf) if kind.kind == "f" else np.iinfo(kind).max),
        }
        target = site.node.output[0]
        nests = _gathered(site, axes, op, starts[op], target, square=square)
        if mean:
            count = math.prod(site.shape(0)[n] for n in axes)
            nests.append(_scaled(target, dtype, math.prod(site.result_shape), count))
        return nests

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
    """Mean, differences, mean of their squares; then scale and bias along the last axes."""
    dtype, shape = site.result.dtype, site.shape(0)
    if dtype not in ZERO:
        return None
    axes = list(range(site.integer("axis", -1) % len(shape), len(shape)))
    count = math.prod(shape[n] for n in axes)
    rows = math.prod(shape) // count
    name, epsilon = site.node.output[0], float(site.number("epsilon", 1e-5))
    mean, centred, variance = f"{name}:mean", f"{name}:centred", f"{name}:variance"

    def normalised(body: Payload) -> int:
        return body.emit("div", 0, body.emit("sqrt", body.emit("add", 1, _constant(body, epsilon))))

    nests = _gathered(site, axes, "add", ZERO[dtype], mean)
    nests.append(_scaled(mean, dtype, rows, count))
    subtract = _each(
        site, axes, centred, (site.node.input[0], mean), lambda body: body.emit("sub", 0, 1)
    )
    nests.append(subtract)
    nests += _gathered(site, axes, "add", ZERO[dtype], variance, square=True, source=centred)
    nests.append(_scaled(variance, dtype, rows, count))
    nests.append(_each(site, axes, name, (centred, variance), normalised))
    others = [n for n in range(len(shape)) if n not in axes]
    for n, op in ((1, "mul"), (2, "add")):
        if site.has(n):
            nests.append(_along(site, name, site.node.input[n], others, op))
    return nests


def _along(site: Site, target: str, factor: str, others: Sequence[int], op: str) -> Nest:
    """The result times (or plus) a tensor that has only the axes that are not in `others`."""
    return _each(site, others, target, (target, factor), lambda body: body.emit(op, 0, 1))


def _matmul(site: Site) -> list[Nest] | None:
    """Numpy's broadcasting of leading axes; vectors are left out."""
    a, b, dtype = site.shape(0), site.shape(1), site.result.dtype
    if min(len(a), len(b)) < 2 or dtype not in ZERO:
        return None
    shape = site.result_shape
    rank = len(shape)
    dims = rank + 1  # loop 0: the sum
    lead = rank - 2

    def loops(own: Sequence[int], last: tuple[int, int]) -> list[int]:
        skip = lead - (len(own) - 2)
        outer = [1 + skip + i if size > 1 else -1 for i, size in enumerate(own[:-2])]
        return [*outer, *last]

    rows, cols = rank - 1, rank
    return _product(
        site,
        (a[-1], *shape),
        (
            whole(site.node.input[0], dtype, a, loops(a, (rows, 0)), dims),
            whole(site.node.input[1], dtype, b, loops(b, (0, cols)), dims),
        ),
        whole(site.node.output[0], dtype, shape, range(1, dims), dims),
    )


def _product(
    site: Site, extents: Sequence[int], inputs: tuple[Operand, Operand], result: Operand
) -> list[Nest]:
    dtype = site.result.dtype
    body = Payload([dtype] * 3)
    value = body.emit("add", 2, body.emit("mul", 0, 1))
    size = math.prod(site.result_shape)
    return [
        fill(site.node.output[0], dtype, size, ZERO[dtype]),
        Nest(
            extents=tuple(extents),
            inputs=inputs,
            results=(result,),
            body=body.instructions,
            yields=(value,),
        ),
    ]


OPERATORS: Mapping[str, Lowering] = {
    "Log": _unary("log"),
    "Erf": _unary("erf"),
    "Pow": _binary("pow"),
    "Max": _extremum("max"),
    "Min": _extremum("min"),
    "Softplus": _softplus,
    "Elu": _elu,
    "Softsign": _softsign,
    "Gelu": _gelu,
    "ReduceSum": _reduction("add"),
    "ReduceProd": _reduction("mul"),
    "ReduceMax": _reduction("max"),
    "ReduceMin": _reduction("min"),
    "ReduceMean": _reduction("add", mean=True),
    "ReduceSumSquare": _reduction("add", square=True),
    "GlobalAveragePool": _global_mean,
    "LayerNormalization": _layer_norm,
    "MatMul": _matmul,
    "Conv": convolution,
    "MaxPool": lambda site: pool(site, mean=False),
    "AveragePool": lambda site: pool(site, mean=True),
}
"""Operator of ONNX -> its nests."""
