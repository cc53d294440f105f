"""Converts Quant nodes of QONNX (Brevitas, QKeras, hls4ml) to QCDQ form.

QCDQ is QuantizeLinear, Clip, DequantizeLinear, as in qonnx's own conversion. The Clip of the
integers is present for fewer than eight bits, and for a narrow range. A quantised constant becomes
an integer constant and a DequantizeLinear. A bias may have up to 32 bits.
"""

from collections import Counter

import numpy as np
import onnx_ir as ir
from msgspec import Struct

from opu_fuse.errors import ModelError
from opu_fuse.frontend.editing import constant, operand, static_shape
from opu_fuse.frontend.importing.decompose.replacement import Replacement, has_kinds

DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")
_OPERATORS = ("Quant", "BipolarQuant", "Trunc", "FloatQuant", "IntQuant")
_NEAREST = ("ROUND", "HALF_EVEN")
_BITS, _BIAS_BITS = 8, 32
_QCDQ = (
    "convert it to QuantizeLinear, Clip and DequantizeLinear (QCDQ: in qonnx "
    "`ConvertToQCDQ`, in Brevitas `export_onnx_qcdq`)"
)


class _Steps(Struct, frozen=True, kw_only=True):
    """Parameters of a Quant.

    scale, zero: scalar, or one element for each index along `axis`.
    lowest, highest: integer limits.
    """

    scale: np.ndarray
    zero: np.ndarray
    axis: int
    lowest: int
    highest: int

    @property
    def dtype(self) -> type[np.int8] | type[np.uint8] | type[np.int32]:
        """Narrowest integer type of a DequantizeLinear that holds the limits."""
        for kind in (np.int8, np.uint8):
            info = np.iinfo(kind)
            if info.min <= self.lowest and self.highest <= info.max:
                return kind
        return np.int32


def is_of_qonnx(domain: str, op_type: str) -> bool:
    """Whether an operator is a quantiser of QONNX."""
    return domain in DOMAINS and op_type in _OPERATORS


def convert_qonnx(model: ir.Model) -> bool:
    """Convert Quant nodes (mutates the model). Return whether a node was replaced.

    Nodes without a QCDQ form are not changed (`refuse_left_over`).
    """
    changed = False
    for node in list(model.graph):
        if not is_of_qonnx(node.domain, node.op_type) or isinstance(steps := _steps(node), str):
            continue
        source = constant(operand(node, 0))
        if source is None:
            _round_computed(Replacement(node), steps)
        else:
            _round_constant(Replacement(node), steps, source)
        changed = True
    return changed


def refuse_left_over(model: ir.Model, where: str) -> None:
    """Raise ModelError for operators of QONNX that were not converted."""
    unconverted = [n for n in model.graph if is_of_qonnx(n.domain, n.op_type)]
    if not unconverted:
        return
    kinds = Counter(f"{n.domain}:{n.op_type}" for n in unconverted)
    named = ", ".join(f"{name} ({count})" for name, count in kinds.most_common())
    why = _steps(unconverted[0])
    what = f"node {unconverted[0].name!r} ({named} in all): {why}"
    raise ModelError(where, what, f"round to 8 bits or fewer and {_QCDQ}")


def _steps(node: ir.Node) -> _Steps | str:
    """Parameters of a Quant, or the reason (text) why it cannot be converted."""
    if node.op_type not in ("Quant", "IntQuant"):
        return f"{node.op_type} has no form in operators of the ONNX standard"
    if not has_kinds(node, _KINDS):
        return "its attributes are none of a Quant"
    numbers = [constant(operand(node, i)) for i in (1, 2, 3)]
    names = ("scale", "zero point", "bit width")
    if unknown := [n for n, data in zip(names, numbers, strict=True) if data is None]:
        return f"its {unknown[0]} is computed, not a constant"
    if any(data is not None and data.dtype.kind not in "fiub" for data in numbers):
        return "its operands are no numbers"
    scale, zero, width = (np.asarray(data, np.float64) for data in numbers)
    if width.size != 1 or width.item() != round(width.item()) or width.item() < 1:
        return "its bit width is no whole number"
    bits, mode = int(width.item()), node.attributes.get_string("rounding_mode", "ROUND").upper()
    if mode not in _NEAREST:
        return f"it rounds by {mode}, QuantizeLinear to the nearest, halves to even"
    computed = constant(operand(node, 0)) is None
    most = _BITS if computed else _BIAS_BITS
    if bits > most:
        return f"it rounds to {bits} bits, machines keep {most}"
    if not np.all(np.isfinite(scale) & (scale > 0)) or np.any(zero != np.round(zero)):
        return "its scale is not positive, or its zero point no whole number"
    size = static_shape(operand(node, 0))
    axes = {axis for data in (scale, zero) if (axis := _axis(data, size)) is not None}
    if len(axes) > 1 or -1 in axes:
        return "it has scales along several axes"
    lowest, highest = _limits(node, bits)
    steps = _Steps(
        scale=scale.reshape(-1) if axes else scale.reshape(()),
        zero=zero.reshape(-1) if zero.size > 1 else zero.reshape(()),
        axis=next(iter(axes), 0),
        lowest=lowest,
        highest=highest,
    )
    limits = np.iinfo(steps.dtype)
    if np.any((zero < limits.min) | (zero > limits.max)):
        return f"its zero point {zero.max():g} is none of {bits} bits"
    return steps


def _limits(node: ir.Node, bits: int) -> tuple[int, int]:
    signed, narrow = (node.attributes.get_int(name, default) for name, default in _FLAGS)
    if signed:
        return -(1 << (bits - 1)) + bool(narrow), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1 - bool(narrow)


_FLAGS = (("signed", 1), ("narrow", 0))
_KINDS = {
    "signed": ir.AttributeType.INT,
    "narrow": ir.AttributeType.INT,
    "rounding_mode": ir.AttributeType.STRING,
}


def _axis(data: np.ndarray, size: tuple[int, ...] | None) -> int | None:
    """Axis of the quantised value along which scales or zero points vary.

    None for a scalar, -1 if they vary along several axes or do not broadcast. size: shape of the
    value.
    """
    if data.size == 1:
        return None
    longer = [axis for axis, count in enumerate(data.shape) if count > 1]
    if size is None or len(longer) != 1 or data.ndim > len(size):
        return -1
    axis = longer[0] + len(size) - data.ndim
    return axis if size[axis] == data.size else -1


def _round_computed(s: Replacement, steps: _Steps) -> None:
    """Replace a Quant of a computed value by QuantizeLinear, Clip, DequantizeLinear."""
    kind = steps.dtype
    scale, zero = _spread(steps)
    constants = s.constant(scale.astype(np.float32)), s.constant(zero.astype(kind))
    integers = s.make("QuantizeLinear", s.operand(0), *constants, axis=steps.axis)
    info = np.iinfo(kind)
    if (steps.lowest, steps.highest) != (info.min, info.max):
        limits = (s.constant(np.asarray(n, kind)) for n in (steps.lowest, steps.highest))
        integers = s.make("Clip", integers, *limits)
    real = s.make("DequantizeLinear", integers, *constants, axis=steps.axis, name=s.node.name)
    s.replace(real)


def _spread(steps: _Steps) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point, broadcast to one shape as Q and DQ require."""
    zero = np.broadcast_to(steps.zero, steps.scale.shape)
    return np.broadcast_to(steps.scale, zero.shape), zero


def _round_constant(s: Replacement, steps: _Steps, data: np.ndarray) -> None:
    """Replace a Quant of a constant by an integer constant and a DequantizeLinear."""
    scale, zero = _spread(steps)
    shape = [1] * data.ndim
    if scale.ndim:
        shape[steps.axis] = scale.size
    spread = zero.reshape(shape if scale.ndim else ())
    quotients = data.astype(np.float32) / scale.reshape(spread.shape).astype(np.float32)
    integers = np.clip(np.round(quotients) + spread, steps.lowest, steps.highest)
    stored = s.constant(integers.astype(steps.dtype))
    zeros = (
        [s.constant(zero.astype(steps.dtype))] if np.any(zero) or steps.dtype != np.int32 else []
    )
    scales = s.constant(scale.astype(np.float32))
    s.replace(s.make("DequantizeLinear", stored, scales, *zeros, axis=steps.axis, name=s.node.name))
