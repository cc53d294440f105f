"""ONNX's element-wise operators that kernels have not, as loop nests.

Every function takes a `Site` of one node and gives the nests that compute its result, or None where
libopu does not know the form.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from msgspec import structs

from opu_fuse.dtypes import NATIVE
from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.build.linalg.site import Site
from opu_fuse.host.build.steps.nest import Nest, plain, whole
from opu_fuse.host.kernel import INDEX_DTYPE, Instr

Lowering = Callable[[Site], list[Nest] | None]


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


def constant(body: Payload, value: float) -> int:
    """A constant of the type of the first operand."""
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
        log = call(body, "log", body.emit("add", small, constant(body, 1.0)))
        return body.emit("add", body.emit("max", args[0], constant(body, 0.0)), log)

    return extended(site, emit)


def _elu(site: Site) -> list[Nest] | None:
    alpha = float(site.number("alpha", 1.0))

    def emit(body: Payload, args: tuple[int, ...]) -> int:
        below = body.emit("sub", body.emit("exp", args[0]), constant(body, 1.0))
        below = body.emit("mul", constant(body, alpha), below)
        positive = body.emit("gt", args[0], constant(body, 0.0))
        return body.emit("select", positive, args[0], below)

    return extended(site, emit)


def _softsign(site: Site) -> list[Nest] | None:
    def emit(body: Payload, args: tuple[int, ...]) -> int:
        below = body.emit("add", body.emit("abs", args[0]), constant(body, 1.0))
        return body.emit("div", args[0], below)

    return extended(site, emit)


def _gelu(site: Site) -> list[Nest] | None:
    if site.attribute("approximate", b"none") != b"none":
        return None

    def emit(body: Payload, args: tuple[int, ...]) -> int:
        scaled = body.emit("mul", args[0], constant(body, math.sqrt(0.5)))
        whole_part = body.emit("add", call(body, "erf", scaled), constant(body, 1.0))
        half = body.emit("mul", args[0], constant(body, 0.5))
        return body.emit("mul", half, whole_part)

    return extended(site, emit)


def _modulo(site: Site) -> list[Nest] | None:
    """The remainder: with the sign of the divisor, or as C has it (fmod)."""
    as_c = bool(site.integer("fmod", 0))

    def emit(body: Payload, args: tuple[int, ...]) -> int:
        rest = call(body, "mod", *args)
        if as_c:
            return rest
        zero = constant(body, 0)
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
            value = body.emit("or", value, body.emit("eq", args[0], constant(body, sign * np.inf)))
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


def _triangle(site: Site) -> list[Nest] | None:
    """Trilu: zero where the column is before (upper) or after row + k."""
    offset = site.constant(1) if site.has(1) else np.array(0)
    if offset is None:
        return None
    shape, dtype = site.result_shape, site.result.dtype
    body = Payload([dtype, dtype])
    row, column = (
        body.append(Instr(op="index", dtype=INDEX_DTYPE, dim=len(shape) - n)) for n in (2, 1)
    )
    edge = body.emit("add", row, body.const(int(offset.reshape(())), INDEX_DTYPE))
    upper = bool(site.integer("upper", 1))
    inside = body.emit("ge" if upper else "le", column, edge)
    value = body.emit("select", inside, 0, body.const(0, dtype))
    return [
        Nest(
            extents=shape,
            inputs=(plain(site.node.input[0], dtype, shape),),
            results=(plain(site.node.output[0], dtype, shape),),
            body=body.instructions,
            yields=(value,),
        )
    ]


ELEMENTWISE: Mapping[str, Lowering] = {
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
    "Trilu": _triangle,
    "Softsign": _softsign,
    "Gelu": _gelu,
}
"""Operator of ONNX -> its nests."""
