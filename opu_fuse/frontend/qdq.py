"""Reads scales and zero points of Q/DQ nodes as annotations of int8 tensors."""

import math

import numpy as np
import onnx_ir as ir
from msgspec.structs import replace

from opu_fuse.frontend.editing import constant, operand, static_shape
from opu_fuse.model.opsets import STANDARD
from opu_fuse.model.qdq_pairs import type_of_zero
from opu_fuse.quant import UINT8_SHIFT, QuantParams, as_int8, narrowed

DOMAINS = {*STANDARD, "com.microsoft"}
"""Domains of integer operators: the standard, and ONNX Runtime's own."""
_FOUR_BITS = (ir.DataType.INT4.numpy(), ir.DataType.UINT4.numpy())


def is_quantize(node: ir.Node | None) -> bool:
    """Whether a node is a QuantizeLinear of the standard or of ONNX Runtime's own domain."""
    return node is not None and node.domain in DOMAINS and node.op_type == "QuantizeLinear"


def is_dequantize(node: ir.Node | None) -> bool:
    """Whether a node is a DequantizeLinear of the standard or of ONNX Runtime's own domain."""
    return node is not None and node.domain in DOMAINS and node.op_type == "DequantizeLinear"


def is_quantised(model: ir.Model) -> bool:
    """Whether a model has quantised activations, and is not to be quantised again.

    A model with quantised constants only is a float model.
    """
    return any(is_quantize(n) and constant(n.inputs[0]) is None for n in model.graph)


def mistake_of_scales(node: ir.Node) -> str | None:
    """Error text for invalid scales of a Q or DQ node; None if valid, and for other nodes.

    A scale of zero is valid for constants: exporters write it for dead channels.
    """
    if not (is_quantize(node) or is_dequantize(node)):
        return None
    steps = constant(operand(node, 1))
    of_constants = is_dequantize(node) and constant(node.inputs[0]) is not None
    if steps is not None and not of_constants and not _is_positive(steps):
        return f"it has a scale of {float(steps.min()):g}, scales are positive numbers"
    size, scale = static_shape(node.inputs[0]), static_shape(operand(node, 1))
    zero = static_shape(operand(node, 2))
    if size is None or scale is None or node.attributes.get_int("block_size", 0):
        return None
    if zero is not None and math.prod(zero) != math.prod(scale):
        return f"it has {math.prod(scale)} scales and {math.prod(zero)} zero points"
    if math.prod(scale) == 1:
        return None
    axis = node.attributes.get_int("axis", 1)
    if len(scale) != 1 or not -len(size) <= axis < len(size) or size[axis] != scale[0]:
        text = "x".join(map(str, size))
        return f"it has {math.prod(scale)} scales for axis {axis} of a value of {text}"
    return None


def _is_positive(scale: np.ndarray) -> bool:
    return bool(np.all((scale > 0) & (scale < math.inf)))


def activation_params(node: ir.Node) -> QuantParams | None:
    """Annotation (as int8) of the activation of a Q or DQ node.

    The zero point of uint8 is shifted by 128. None for quantisation that no machine supports:
    per-channel or computed scales, 4 and 16 bits, 8-bit floats, scales that are not positive.
    """
    scale, zero = constant(operand(node, 1)), _zero_point(node)
    if scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    if zero.dtype not in (np.int8, np.uint8):
        return None
    value = float(scale.reshape(()))
    if not (value > 0.0 and np.isfinite(value)):
        return None
    zero_point = int(zero.reshape(())) - (UINT8_SHIFT if zero.dtype == np.uint8 else 0)
    return QuantParams(scale=(value,), zero_point=zero_point)


def channel_params(node: ir.Node) -> QuantParams | None:
    """Annotation (as int8) of an activation with per-channel scales and one zero point.

    None for any other quantisation.
    """
    scale, zero, size = constant(operand(node, 1)), _zero_point(node), static_shape(node.inputs[0])
    if scale is None or zero is None or size is None or scale.ndim != 1 or scale.size < 2:
        return None
    if zero.dtype not in (np.int8, np.uint8) or np.any(zero != zero.reshape(-1)[0]):
        return None
    axis = node.attributes.get_int("axis", 1) % len(size)
    blocks = node.attributes.get_int("block_size", 0)
    if axis != 1 or scale.size != size[axis] or blocks or not _is_positive(scale):
        return None
    zero_point = int(zero.reshape(-1)[0]) - (UINT8_SHIFT if zero.dtype == np.uint8 else 0)
    return QuantParams(scale=tuple(scale.tolist()), zero_point=zero_point, axis=axis)


def constant_params(
    node: ir.Node, *, any_zero: bool = False, keep_zero: bool = False
) -> tuple[np.ndarray, QuantParams] | None:
    """(integers, annotation) of the constant that a DequantizeLinear reads, zero point 0.

    uint8 with zero point 128, and 4 bits with any zero point, become int8. any_zero: so do 8 bits
    with any zero point, or they become int16 if the differences exceed int8. keep_zero: 8 bits with
    one scale keep a zero point. None for other zero points, block quantisation, other types, or
    scales that are not positive.
    """
    data, scale = constant(node.inputs[0]), constant(operand(node, 1))
    zero = _zero_point(node, default=None if data is None else data.dtype)
    if data is None or scale is None or zero is None or scale.ndim > 1:
        return None
    if node.attributes.get_int("block_size", 0):
        return None
    if keep_zero and data.dtype in (np.int8, np.uint8) and zero.size == scale.size == 1:
        shift = UINT8_SHIFT if data.dtype == np.uint8 else 0
        data = as_int8(data) if shift else data
        params = QuantParams(
            scale=(float(scale.item()),), zero_point=int(zero.item()) - shift, bits=8
        )
        return (data, params) if _is_positive(scale) else None
    if data.dtype == np.uint8 and np.all(zero == UINT8_SHIFT):
        data = as_int8(data)
    elif data.dtype in _FOUR_BITS:
        data = data.astype(np.int8) - _spread(zero.astype(np.int8), node, data)
    elif any_zero and (data.dtype == np.uint8 or (data.dtype == np.int8 and np.any(zero))):
        data = narrowed(data.astype(np.int16) - _spread(zero.astype(np.int16), node, data))
    elif data.dtype not in (np.int8, np.int32) or np.any(zero):
        return None
    if not _is_positive(scale):
        return None
    scales = tuple(scale.reshape(-1).tolist())
    bits = 8 * data.dtype.itemsize
    if len(scales) == 1:
        return data, QuantParams(scale=scales, bits=bits)
    axis = node.attributes.get_int("axis", 1) % max(data.ndim, 1)
    if data.ndim == 0 or data.shape[axis] != len(scales):
        return None
    return data, QuantParams(scale=scales, axis=axis, bits=bits)


def per_row(params: QuantParams, rows: int, axis: int = 0) -> QuantParams:
    """Expand a per-tensor annotation to `rows` output channels along an axis."""
    if params.axis is not None:
        return params
    return replace(params, scale=params.scale * rows, axis=axis)


def quantised(node: ir.Node) -> np.ndarray | None:
    """Result of a QuantizeLinear of a constant.

    None for computed values, 8-bit floats and 4-bit integers.
    """
    data, scale, zero = constant(node.inputs[0]), constant(operand(node, 1)), _zero_point(node)
    if data is None or scale is None or zero is None or zero.dtype.kind not in "iu":
        return None
    steps = np.rint(data / _spread(scale, node, data)) + _spread(zero, node, data)
    limits = np.iinfo(zero.dtype)
    return np.clip(steps, limits.min, limits.max).astype(zero.dtype)


def dequantised(node: ir.Node) -> np.ndarray | None:
    """Result of a DequantizeLinear of a constant of any type, zero point and block size.

    None for computed values. ONNX defines no zero point for int32. ONNX Runtime subtracts it in
    int32, which wraps around.
    """
    data, scale = constant(node.inputs[0]), constant(operand(node, 1))
    zero = _zero_point(node, default=None if data is None else data.dtype)
    if data is None or scale is None or zero is None:
        return None
    kind = data.dtype if data.dtype == np.int32 else np.dtype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # readers of infinite values report them
        offset = data.astype(kind) - _spread(zero.astype(kind), node, data)
        return offset.astype(scale.dtype) * _spread(scale, node, data)


def spread_scales(node: ir.Node) -> tuple[np.ndarray, np.ndarray] | None:
    """(scale, zero point) of a DequantizeLinear in float32, broadcastable to its operand.

    None if they are computed, or for block quantisation.
    """
    scale, zero, size = constant(operand(node, 1)), _zero_point(node), static_shape(node.inputs[0])
    if scale is None or zero is None or size is None or node.attributes.get_int("block_size", 0):
        return None
    scale, zero = (_along_axis(v.astype(np.float32), node, len(size)) for v in (scale, zero))
    return scale, zero


def _spread(values: np.ndarray, node: ir.Node, data: np.ndarray) -> np.ndarray:
    """Scales or zero points in a shape that broadcasts to the data, also for blocks."""
    axis, block = (node.attributes.get_int(n, d) for n, d in (("axis", 1), ("block_size", 0)))
    if block and values.size != 1:
        return np.take(values, np.arange(data.shape[axis]) // block, axis)
    return _along_axis(values, node, data.ndim)


def _along_axis(values: np.ndarray, node: ir.Node, rank: int) -> np.ndarray:
    if values.size == 1:
        return values.reshape(())
    shape = [1] * rank
    shape[node.attributes.get_int("axis", 1)] = -1
    return values.reshape(shape)


def _zero_point(node: ir.Node, default: np.dtype | None = None) -> np.ndarray | None:
    """Zero point of a Q or DQ node; 0 if absent. default: its type in that case, if known.

    None if it is computed, or its type is unknown.
    """
    value = operand(node, 2)
    if value is not None:
        return constant(value)
    kind = type_of_zero(node) if default is None else None
    if kind is not None:
        default = kind.numpy()
    return None if default is None else np.zeros((), default)
