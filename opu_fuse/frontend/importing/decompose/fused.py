"""Decomposes convolutions and matrix products with activations fused by ONNX Runtime."""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from opu_fuse.frontend.editing import values_of
from opu_fuse.frontend.importing.decompose.replacement import Replacement

_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "Softplus": (),
    "Softsign": (),
    "HardSwish": (),
    "Celu": ("alpha",),
    "Elu": ("alpha",),
    "LeakyRelu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "ParametricSoftplus": ("alpha", "beta"),
    "ScaledTanh": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
    "Clip": ("min", "max"),
}
"""Activations that may be fused, with the names of their parameters."""
_INNER = {"ParametricSoftplus": "Softplus", "ScaledTanh": "Tanh"}
"""alpha · f(beta · x) with this f. The standard has no such operators any more."""
_GREEK = ("alpha", "beta", "gamma")


def fused_conv(s: Replacement) -> bool:
    """Decompose FusedConv: act(Conv(x, w, b) + z)."""
    kind = s.node.attributes.get_string("activation", "")
    listed = s.node.attributes.get_floats("activation_params", ())
    numbers = dict(zip(_NUMBERS.get(kind, ()), listed, strict=False))
    if not _is_whole(kind, numbers):
        return False
    rest = {k: v for k, v in values_of(s.node).items() if not k.startswith("activation")}
    sums = s.make("Conv", *s.node.inputs[:3], name=s.node.name, **rest)
    if s.has(3):
        sums = s.make("Add", sums, s.operand(3))
    s.replace(_activated(s, sums, kind, numbers))
    return True


def fused_gemm(s: Replacement) -> bool:
    """Decompose FusedGemm: act(Gemm(a, b, c))."""
    values = values_of(s.node)
    kind, numbers = _pop_activation(values)
    if not _is_whole(kind, numbers):
        return False
    product = s.make("Gemm", *s.node.inputs, name=s.node.name, **values)
    s.replace(_activated(s, product, kind, numbers))
    return True


def fused_matmul(s: Replacement) -> bool:
    """Decompose FusedMatMul: act(alpha · a' b'), with a' and b' transposed by attributes."""
    values = values_of(s.node)
    kind, numbers = _pop_activation(values)
    if "activation_axis" in values or (kind and not _is_whole(kind, numbers)):
        return False
    orders: list[Sequence[int] | None] = []
    for index, side in enumerate("AB"):
        swap, batch_last = (bool(values.get(f"trans{x}{side}", 0)) for x in ("", "Batch"))
        shape = s.operand(index).shape
        if (swap or batch_last) and shape is None:
            return False
        rank = 0 if shape is None else len(shape)
        orders.append(_order(rank, swap=swap, batch_last=batch_last))
    sides = [
        s.operand(i) if order is None else s.make("Transpose", s.operand(i), perm=order)
        for i, order in enumerate(orders)
    ]
    product = s.make("MatMul", *sides, name=s.node.name)
    if (alpha := values.get("alpha", 1.0)) != 1.0:
        product = s.make("Mul", product, s.number(alpha))
    s.replace(_activated(s, product, kind, numbers) if kind else product)
    return True


def _order(rank: int, *, swap: bool, batch_last: bool) -> list[int] | None:
    """`perm` of the Transpose of an operand; None if it needs none.

    batch_last: move the first axis after the batch axes. swap: swap the last two axes.
    """
    order = list(range(rank))
    if batch_last and rank > 2:
        order = [*order[1:-1], order[0], order[-1]]
    if swap and rank > 1:
        order[-2:] = order[-1], order[-2]
    return None if order == list(range(rank)) else order


def _pop_activation(values: dict[str, Any]) -> tuple[str, dict[str, float]]:
    """Remove an activation and its parameters from attributes and return them."""
    kind = values.pop("activation", "")
    parameters = {key: values.pop(f"activation_{key}", None) for key in _GREEK}
    return kind, {key: number for key, number in parameters.items() if number is not None}


def _is_whole(kind: str, numbers: Mapping[str, float]) -> bool:
    """Whether an activation is supported and has all parameters that ONNX Runtime requires."""
    return kind in _NUMBERS and all(key in numbers for key in _NUMBERS[kind])


def _activated(s: Replacement, x: ir.Value, kind: str, numbers: Mapping[str, float]) -> ir.Value:
    """Insert the nodes of an activation of `x`; return their result."""
    if kind == "Clip":
        return s.make(kind, x, *(s.number(numbers[key]) for key in _NUMBERS[kind]))
    if kind in _INNER:
        inner = s.make(_INNER[kind], s.make("Mul", x, s.number(numbers["beta"])))
        return s.make("Mul", inner, s.number(numbers["alpha"]))
    attributes: dict[str, Any] = {key: numbers[key] for key in _NUMBERS[kind]}
    return s.make(kind, x, **attributes)
