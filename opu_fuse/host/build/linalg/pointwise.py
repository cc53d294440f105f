"""ONNX's element-wise operators as payloads, in the very order of operations of ONNX Runtime.

`exact` operators give ONNX Runtime's bits: they are built of operations that IEEE 754 rounds
correctly, and of comparisons instead of max and min where the sign of a zero or a NaN depends on
it. The others call the exponential of two different libraries. Measured in
tests/host/test_onnx_operators.py; docs/host-kernels.md has the table.
"""

from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct

from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.build.linalg.site import Site
from opu_fuse.host.kernel import SCALAR_OPS

Lowering = Callable[[Site, Payload, tuple[int, ...]], int | None]

FLOAT = frozenset({"float32"})
NUMBER = frozenset({"float32", "int32", "int64"})
INTEGER = frozenset({"int8", "uint8", "int32", "int64"})
BOOL = frozenset({"bool"})
ANY = NUMBER | INTEGER | BOOL


class Pointwise(Struct, frozen=True, kw_only=True):
    """lower: appends the payload (None: not in this form); dtypes: of the first operand."""

    lower: Lowering
    dtypes: frozenset[str]
    exact: bool = True


def _plain(op: str) -> Lowering:
    """One scalar operation, over two operands at a time where there are more; of a single one where
    the operation takes two, that one (Sum).
    """

    def lower(_: Site, body: Payload, args: tuple[int, ...]) -> int:
        if len(args) < SCALAR_OPS[op].arity:
            return args[0]
        total = body.emit(op, *args[:2])
        for arg in args[2:]:
            total = body.emit(op, total, arg)
        return total

    return lower


def _extremum(op: str) -> Lowering:
    """Floats: only against constants without a zero; of two zeros ONNX Runtime returns either."""

    def lower(site: Site, body: Payload, args: tuple[int, ...]) -> int | None:
        if site.result.dtype == "float32":
            known = [c for n in range(len(args)) if (c := site.constant(n)) is not None]
            if len(args) != 2 or not known or not np.all(known[0]):
                return None
        return _plain(op)(site, body, args) if len(args) > 1 else None

    return lower


def _below(body: Payload, x: int, low: int) -> int:
    """x, but `low` where x < low: keeps NaN and the sign of zeros."""
    return body.emit("select", body.emit("lt", x, low), low, x)


def _above(body: Payload, x: int, high: int) -> int:
    return body.emit("select", body.emit("gt", x, high), high, x)


def _relu(_: Site, body: Payload, args: tuple[int, ...]) -> int:
    return _below(body, args[0], body.const(0, body.dtype(args[0])))


def _clip(site: Site, body: Payload, args: tuple[int, ...]) -> int | None:
    if any(a.name in ("min", "max") for a in site.node.attribute):  # before opset 11
        return None
    dtype = body.dtype(args[0])
    operands = dict(zip([n for n in range(3) if site.has(n)], args, strict=True))
    limits = np.finfo(np.float32) if dtype == "float32" else np.iinfo(dtype)
    low = operands[1] if 1 in operands else body.const(limits.min, dtype)  # clips infinities
    high = operands[2] if 2 in operands else body.const(limits.max, dtype)
    return _above(body, _below(body, args[0], low), high)


def _hard_sigmoid(body: Payload, x: int, alpha: np.float32, beta: np.float32) -> int:
    line = body.emit("mul", body.const(alpha, "float32"), x)
    line = body.emit("add", line, body.const(beta, "float32"))
    line = _above(body, line, body.const(1, "float32"))
    return _below(body, line, body.const(0, "float32"))


def _lower_hard_sigmoid(site: Site, body: Payload, args: tuple[int, ...]) -> int:
    return _hard_sigmoid(body, args[0], site.number("alpha", 0.2), site.number("beta", 0.5))


def _hard_swish(_: Site, body: Payload, args: tuple[int, ...]) -> int:
    gate = _hard_sigmoid(body, args[0], np.float32(1 / 6), np.float32(0.5))
    return body.emit("mul", args[0], gate)


def _where(_: Site, body: Payload, args: tuple[int, ...]) -> int:
    """Select by condition; ONNX Runtime makes a -0 of the second operand (only) 0."""
    condition, x, y = args
    if body.dtype(x) == "float32":
        zero = body.const(0, "float32")
        x = body.emit("select", body.emit("eq", x, zero), zero, x)
    return body.emit("select", condition, x, y)


def _leaky(body: Payload, x: int, slope: int) -> int:
    positive = body.emit("ge", x, body.const(0, "float32"))
    return body.emit("select", positive, x, body.emit("mul", slope, x))


def _leaky_relu(site: Site, body: Payload, args: tuple[int, ...]) -> int:
    return _leaky(body, args[0], body.const(site.number("alpha", 0.01), "float32"))


def _prelu(_: Site, body: Payload, args: tuple[int, ...]) -> int:
    return _leaky(body, args[0], args[1])


def _thresholded_relu(site: Site, body: Payload, args: tuple[int, ...]) -> int:
    alpha = body.const(site.number("alpha", 1.0), "float32")
    above = body.emit("gt", args[0], alpha)
    return body.emit("select", above, args[0], body.const(0, "float32"))


def _reciprocal(_: Site, body: Payload, args: tuple[int, ...]) -> int:
    return body.emit("div", body.const(1, "float32"), args[0])


def _pow(site: Site, body: Payload, args: tuple[int, ...]) -> int | None:
    """Exponents 1, 2, 3 as one constant: those ONNX Runtime multiplies out, unless it takes the
    base for the scalar, which it does where rows have one element.
    """
    exponent = site.constant(1)
    if exponent is None or exponent.size != 1 or site.shape(0)[-1:] in ((), (1,)):
        return None
    power = float(exponent.reshape(()))
    if power not in (1.0, 2.0, 3.0):
        return None
    product = args[0]
    for _ in range(int(power) - 1):
        product = body.emit("mul", product, args[0])
    return product


def _cast(site: Site, body: Payload, args: tuple[int, ...]) -> int | None:
    """Conversion, except from floats to integers, where a value out of range is undefined."""
    source, target = body.dtype(args[0]), site.result.dtype
    if target not in ANY or (source == "float32" and target not in ("float32", "bool")):
        return None
    return body.cast(args[0], target)


def _quantize(site: Site, body: Payload, args: tuple[int, ...]) -> int | None:
    """clamp(round(x / scale) + zero point); a NaN becomes the least value, as in ONNX Runtime."""
    target = site.result.dtype
    if target not in ("int8", "uint8") or body.dtype(args[1]) != "float32" or _blocked(site):
        return None
    limits = np.iinfo(target)
    low, high = body.const(limits.min, "float32"), body.const(limits.max, "float32")
    x = body.emit("div", args[0], args[1])
    if _zero_point_is_zero(site):
        x = body.emit("min", body.emit("maxnum", x, low), high)
        return body.cast(body.emit("round", x), target)
    zero = body.cast(args[2], "float32")
    low, high = body.emit("sub", low, zero), body.emit("sub", high, zero)
    x = body.emit("min", body.emit("maxnum", x, low), high)
    return body.cast(body.emit("add", body.emit("round", x), zero), target)


def _dequantize(site: Site, body: Payload, args: tuple[int, ...]) -> int | None:
    """(x - zero point) * scale; every int8 and uint8 is exact in float32."""
    source = body.dtype(args[0])
    if site.result.dtype != "float32" or body.dtype(args[1]) != "float32" or _blocked(site):
        return None
    x = body.cast(args[0], "float32")
    if not _zero_point_is_zero(site):
        if source == "int32":
            return None
        x = body.emit("sub", x, body.cast(args[2], "float32"))
    return body.emit("mul", x, args[1])


def _zero_point_is_zero(site: Site) -> bool:
    zero = site.constant(2)
    return not site.has(2) or (zero is not None and not zero.any())


def _blocked(site: Site) -> bool:
    return site.integer("block_size", 0) != 0


POINTWISE: Mapping[str, Pointwise] = {
    "Add": Pointwise(lower=_plain("add"), dtypes=NUMBER),
    "Sub": Pointwise(lower=_plain("sub"), dtypes=NUMBER),
    "Mul": Pointwise(lower=_plain("mul"), dtypes=NUMBER),
    "Div": Pointwise(lower=_plain("div"), dtypes=FLOAT),
    "Sum": Pointwise(lower=_plain("add"), dtypes=FLOAT),
    "Max": Pointwise(lower=_extremum("max"), dtypes=NUMBER),
    "Min": Pointwise(lower=_extremum("min"), dtypes=NUMBER),
    "Neg": Pointwise(lower=_plain("neg"), dtypes=NUMBER),
    "Abs": Pointwise(lower=_plain("abs"), dtypes=NUMBER),
    "Sign": Pointwise(lower=_plain("sign"), dtypes=FLOAT),
    "Sqrt": Pointwise(lower=_plain("sqrt"), dtypes=FLOAT),
    "Floor": Pointwise(lower=_plain("floor"), dtypes=FLOAT),
    "Ceil": Pointwise(lower=_plain("ceil"), dtypes=FLOAT),
    "Round": Pointwise(lower=_plain("round"), dtypes=FLOAT),
    "Reciprocal": Pointwise(lower=_reciprocal, dtypes=FLOAT),
    "Pow": Pointwise(lower=_pow, dtypes=FLOAT),
    "Relu": Pointwise(lower=_relu, dtypes=frozenset({"float32", "int8", "int32"})),
    "LeakyRelu": Pointwise(lower=_leaky_relu, dtypes=FLOAT),
    "PRelu": Pointwise(lower=_prelu, dtypes=FLOAT),
    "ThresholdedRelu": Pointwise(lower=_thresholded_relu, dtypes=FLOAT),
    "Clip": Pointwise(lower=_clip, dtypes=FLOAT | INTEGER),
    "HardSigmoid": Pointwise(lower=_lower_hard_sigmoid, dtypes=FLOAT),
    "HardSwish": Pointwise(lower=_hard_swish, dtypes=FLOAT),
    "Greater": Pointwise(lower=_plain("gt"), dtypes=NUMBER),
    "GreaterOrEqual": Pointwise(lower=_plain("ge"), dtypes=NUMBER),
    "Less": Pointwise(lower=_plain("lt"), dtypes=NUMBER),
    "LessOrEqual": Pointwise(lower=_plain("le"), dtypes=NUMBER),
    "Equal": Pointwise(lower=_plain("eq"), dtypes=NUMBER),
    "And": Pointwise(lower=_plain("and"), dtypes=BOOL),
    "Or": Pointwise(lower=_plain("or"), dtypes=BOOL),
    "Not": Pointwise(lower=_plain("not"), dtypes=BOOL),
    "Where": Pointwise(lower=_where, dtypes=BOOL),
    "Cast": Pointwise(lower=_cast, dtypes=ANY),
    "QuantizeLinear": Pointwise(lower=_quantize, dtypes=FLOAT),
    "DequantizeLinear": Pointwise(lower=_dequantize, dtypes=frozenset({"int8", "uint8", "int32"})),
    "Exp": Pointwise(lower=_plain("exp"), dtypes=FLOAT, exact=False),
    "Tanh": Pointwise(lower=_plain("tanh"), dtypes=FLOAT, exact=False),
    "Sigmoid": Pointwise(lower=_plain("sigmoid"), dtypes=FLOAT, exact=False),
}
"""Operator of ONNX -> its payload."""
