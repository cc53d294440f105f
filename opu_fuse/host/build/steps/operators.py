"""ONNX operators without a generic form, as loop nests. Floats: within the rounding of their sums.

Every function takes a `Site` of one node and gives the nests that compute its result, or None where
the node has a form that libopu does not know.
"""

import math
import string
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import structs

from opu_fuse.dtypes import NATIVE
from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.build.linalg.site import Site
from opu_fuse.host.build.steps.choices import (
    best_place,
    looked_up,
    one_hot,
    padded,
    running,
    triangle,
)
from opu_fuse.host.build.steps.nest import Nest, Operand, fill, least, most, plain, whole
from opu_fuse.host.build.steps.windows import convolution, pool
from opu_fuse.host.kernel import Instr, literal

Lowering = Callable[[Site], list[Nest] | None]
_SOFTMAX_BY_AXIS = 13
"""Opset from which Softmax works along one axis."""
ZERO = {"float32": literal(np.float32(0)), "float64": literal(np.float64(0))}


def extended(
    site: Site, emit: Callable[[Payload, tuple[int, ...]], int], *, like_result: bool = True
) -> list[Nest] | None:
    """An element-wise operator by its payload. like_result: operands have the result's type."""
    kinds = [t for t in site.inputs if t is not None]
    if len(kinds) != len(site.inputs):
        return None
    if like_result and any(k.dtype != site.result.dtype for k in kinds):
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


def _modulo(site: Site) -> list[Nest] | None:
    """The remainder: with the sign of the divisor, or as C has it (fmod)."""
    as_c = bool(site.integer("fmod", 0))

    def emit(body: Payload, args: tuple[int, ...]) -> int:
        rest = call(body, "mod", *args)
        if as_c:
            return rest
        zero = _constant(body, 0)
        other = body.emit("eq", body.emit("lt", rest, zero), body.emit("lt", args[1], zero))
        stays = body.emit("or", other, body.emit("eq", rest, zero))
        return body.emit("select", stays, rest, body.emit("add", rest, args[1]))

    return extended(site, emit)


def _xor(body: Payload, args: tuple[int, ...]) -> int:
    both = body.emit("and", *args)
    return body.emit("and", body.emit("or", *args), body.emit("not", both))


def _nan(body: Payload, args: tuple[int, ...]) -> int:
    return body.emit("not", body.emit("eq", args[0], args[0]))


def _infinite(site: Site) -> list[Nest] | None:
    signs = [
        sign
        for sign, name in ((1, "detect_positive"), (-1, "detect_negative"))
        if site.integer(name, 1)
    ]

    def emit(body: Payload, args: tuple[int, ...]) -> int:
        value = body.const(False, "bool")
        for sign in signs:
            value = body.emit("or", value, body.emit("eq", args[0], _constant(body, sign * np.inf)))
        return value

    return extended(site, emit, like_result=False)


def _cast(site: Site) -> list[Nest] | None:
    """Floats towards zero; what the type does not hold is open in ONNX."""
    if not {site.result.dtype, *(t.dtype for t in site.inputs if t)} <= set(NATIVE):
        return None
    return extended(
        structs.replace(site, inputs=site.inputs[:1]),
        lambda body, args: body.cast(args[0], site.result.dtype),
        like_result=False,
    )


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
            "min": most(dtype),
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
    for n, op in ((1, "mul"), (2, "add")):
        if site.has(n):
            nests.append(_along(site, name, site.node.input[n], others, op))
    return nests


def _along(site: Site, target: str, factor: str, others: Sequence[int], op: str) -> Nest:
    """The result times (or plus) a tensor that has only the axes that are not in `others`."""
    return _each(site, others, target, (target, factor), lambda body: body.emit(op, 0, 1))


def _matmul(site: Site) -> list[Nest] | None:
    """Numpy's rules: broadcast leading axes, and a vector is a row or a column."""
    a, b = (len(site.shape(n)) for n in (0, 1))
    rank = max(a, b)
    if rank > len(string.ascii_lowercase) // 2:
        return None
    lead = string.ascii_lowercase[: max(rank - 2, 0)]
    first = f"{lead[len(lead) - (a - 2) :]}xy" if a > 1 else "y"
    second = f"{lead[len(lead) - (b - 2) :]}yz" if b > 1 else "y"
    return _contracted(site, [first, second], lead + "x" * (a > 1) + "z" * (b > 1))


def _einsum(site: Site) -> list[Nest] | None:
    text = site.attribute("equation")
    equation = (text.decode() if isinstance(text, bytes) else "").replace(" ", "")
    if "..." in equation or not equation:
        return None
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if not arrow:
        result = "".join(sorted(x for x in set(left) - {","} if left.count(x) == 1))
    return _contracted(site, terms, result)


def _contracted(site: Site, terms: Sequence[str], result: str) -> list[Nest] | None:
    """The products of all operands, summed over the letters that the result has not."""
    dtype = site.result.dtype
    if any(t is None or t.dtype != dtype for t in site.inputs):
        return None
    sizes: dict[str, int] = {}
    for n, term in enumerate(terms):
        for letter, size in zip(term, site.shape(n), strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    order = [*(x for x in sizes if x not in result), *result]

    def loops(term: str, shape: Sequence[int]) -> list[int]:
        return [order.index(x) if n > 1 else -1 for x, n in zip(term, shape, strict=True)]

    inputs = tuple(
        whole(site.node.input[n], dtype, site.shape(n), loops(t, site.shape(n)), len(order))
        for n, t in enumerate(terms)
    )
    body = Payload([dtype] * (len(terms) + 1))
    value = 0
    for n in range(1, len(terms)):
        value = body.emit("mul", value, n)
    value = body.emit("add", len(terms), value)
    target = site.node.output[0]
    shape = site.result_shape
    return [
        fill(target, dtype, math.prod(shape), literal(np.dtype(dtype).type(0))),
        Nest(
            extents=tuple(sizes[x] for x in order),
            inputs=inputs,
            results=(whole(target, dtype, shape, loops(result, shape), len(order)),),
            body=body.instructions,
            yields=(value,),
        ),
    ]


def _gemm(site: Site) -> list[Nest] | None:
    """The product of two matrices times alpha, plus beta times the third operand."""
    dtype = site.result.dtype
    if dtype not in ZERO:
        return None
    first, second = (bool(site.integer(name, 0)) for name in ("transA", "transB"))
    terms = ["yx" if first else "xy", "zy" if second else "yz"]
    bare = structs.replace(site, inputs=site.inputs[:2])
    nests = _contracted(bare, terms, "xz")
    assert nests is not None
    shape, name = site.result_shape, site.node.output[0]
    inputs: list[Operand] = []
    body = Payload([dtype] * (2 if site.has(2) else 1))
    value = body.emit("mul", int(site.has(2)), _constant(body, float(site.number("alpha", 1.0))))
    if site.has(2):
        own = site.shape(2)
        loops = [2 - len(own) + n if size > 1 else -1 for n, size in enumerate(own)]
        inputs.append(whole(site.node.input[2], dtype, own, loops, 2))
        scaled = body.emit("mul", 0, _constant(body, float(site.number("beta", 1.0))))
        value = body.emit("add", value, scaled)
    return [
        *nests,
        Nest(
            extents=shape,
            inputs=tuple(inputs),
            results=(plain(name, dtype, shape),),
            body=body.instructions,
            yields=(value,),
        ),
    ]


OPERATORS: Mapping[str, Lowering] = {
    "Log": _unary("log"),
    "Erf": _unary("erf"),
    "Pow": _binary("pow"),
    "Sin": _unary("sin"),
    "Cos": _unary("cos"),
    "Div": _binary("div"),
    "Mod": _modulo,
    "Xor": lambda site: extended(site, _xor),
    "IsNaN": lambda site: extended(site, _nan, like_result=False),
    "IsInf": _infinite,
    "Cast": _cast,
    "CastLike": _cast,
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
    "InstanceNormalization": _instance_norm,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Conv": convolution,
    "MaxPool": lambda site: pool(site, mean=False),
    "AveragePool": lambda site: pool(site, mean=True),
    "ArgMax": lambda site: best_place(site, largest=True),
    "ArgMin": lambda site: best_place(site, largest=False),
    "CumSum": lambda site: running(site, "add"),
    "CumProd": lambda site: running(site, "mul"),
    "Gather": looked_up,
    "GatherElements": looked_up,
    "GatherND": looked_up,
    "OneHot": one_hot,
    "Pad": padded,
    "Trilu": triangle,
}
"""Operator of ONNX -> its nests."""
