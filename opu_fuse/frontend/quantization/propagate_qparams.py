"""Propagation of quantisation parameters, where another tool's QDQ model has one pair for a chain.

Upwards: an operator that commutes with rounding (Relu, Clip, MaxPool, Reshape, Transpose, Concat,
SpaceToDepth) passes its result's parameters to operands that only it reads. Quantising before or
after it gives the same integers. Downwards: an operator that only selects values of its operands
passes their common parameters to a result that has none.

Biases: int32 in the scale of the accumulator, input scale times weight scale.
"""

import numpy as np
import onnx_ir as ir
from msgspec.structs import replace

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    filter_axis,
    insert_before,
    is_standard,
    operand,
    quant_of,
    real_constant,
    sole_reader,
    static_shape,
)
from opu_fuse.frontend.qdq import per_row
from opu_fuse.model.operator_sets import COMPUTES, KEEPS_NUMBERS, MONOTONE, PERMUTES, UNMOVED
from opu_fuse.quant import META_KEY, QuantParams, finer_by

_INT32_MAX = 2**31 - 1


def propagate_qparams(model: ir.Model) -> None:
    """Annotate values: first from results to operands, then from operands to results."""
    _requantise_before_moves(model.graph)
    for node in reversed(model.graph):
        if is_standard(node, *MONOTONE) and (quant := quant_of(node.outputs[0])) is not None:
            values = node.inputs if node.op_type == "Concat" else node.inputs[:1]
            for value in values:
                if value is not None and _can_round(value, node):
                    value.meta[META_KEY] = quant
    for node in model.graph:
        quant = _common_quant(node) if is_standard(node, *KEEPS_NUMBERS) else None
        results = node.outputs if node.op_type == "Split" else node.outputs[:1]
        for result in results if quant is not None else ():  # not the indices of a MaxPool
            if quant_of(result) is None:
                result.meta[META_KEY] = quant


def _requantise_before_moves(graph: ir.Graph) -> None:
    """Insert a Clip where a view or Transpose has another quantisation than its operand.

    `insert_requantise.py` leaves none. One arises where the operator that should round, say a Sum
    of one operand, was an identity and is gone.
    """
    for node in list(graph):
        if not is_standard(node, *UNMOVED, *PERMUTES) or (value := node.inputs[0]) is None:
            continue
        quant = quant_of(node.outputs[0])
        if quant is None or quant_of(value) in {None, quant}:
            continue
        name = f"{node.outputs[0].name}/anew"
        clip = insert_before(node, "Clip", [value], name=name, shape=static_shape(value) or ())
        clip.meta[META_KEY] = quant
        node.replace_input_with(0, clip)


def _common_quant(node: ir.Node) -> QuantParams | None:
    """The common int8 annotation of all operands; None if the result has other values."""
    values = node.inputs if node.op_type == "Concat" else node.inputs[:1]
    quant, *others = {None if value is None else quant_of(value) for value in values}
    if node.op_type == "Resize" and not repeats(node):
        return None
    return quant if not others and quant is not None and quant.bits == 8 else None


def repeats(node: ir.Node) -> bool:
    """Whether all values of a Resize are values of its operand: nearest, without extrapolation."""
    crops = node.attributes.get_string("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    return node.attributes.get_string("mode", "nearest") == "nearest" and not crops


def _can_round(value: ir.Value, reader: ir.Node) -> bool:
    producer = value.producer()
    if quant_of(value) is not None or sole_reader(value) is not reader or producer is None:
        return False
    return is_standard(producer, *COMPUTES, *MONOTONE)


def finish_biases(model: ir.Model) -> None:
    """Quantise every bias of an int8 layer to int32 in the accumulator's scale (mutates it).

    If the scales are powers of two and the bias is no multiple of a step, the weight scale becomes
    finer, as far as int8 holds the weights. A layer whose bias does not fit int32 retains a float
    bias and so runs on the host. The bias of a layer that the host runs anyway does not change.
    """
    for node in model.graph:
        if is_standard(node, "Conv", "ConvTranspose", "Gemm"):
            _finish_bias(model.graph, node)


def _finish_bias(graph: ir.Graph, node: ir.Node) -> None:
    x, w, b = (operand(node, index) for index in range(3))
    if x is None or w is None or b is None or quant_of(node.outputs[0]) is None:
        return
    x_quant, w_quant, bias = quant_of(x), quant_of(w), real_constant(b)
    weight = constant(w)
    if x_quant is None or w_quant is None or bias is None or weight is None:
        return
    axis = filter_axis(node)
    if bias.size != weight.shape[axis]:  # groups of a ConvTranspose that no machine takes
        return
    w_quant = per_row(w_quant, weight.shape[axis], axis)
    with np.errstate(over="ignore"):
        scale = np.float32(x_quant.per_tensor) * np.asarray(w_quant.scale, np.float32)
    bias_quant = quant_of(b)
    bias_scale = np.asarray(
        bias_quant.scale if bias_quant and bias_quant.bits == 32 else np.nan, np.float32
    )
    if np.array_equal(bias_scale, scale):
        return
    steps: np.ndarray | None
    if np.allclose(bias_scale, scale, rtol=1e-4, atol=0):
        steps = constant(b)
        assert steps is not None
    elif not np.all((scale > 0) & np.isfinite(scale)):  # float32 does not hold the product
        steps = np.full(bias.shape, np.nan)
    else:
        steps = bias.astype(np.float64) / scale
        if x_quant.is_pow2 and w_quant.is_pow2:
            bits = finer_by(np.moveaxis(weight, axis, 0), steps)
            if bits.any():
                node.replace_input_with(1, _finer_weight(graph, w, w_quant, bits, axis))
                steps, scale = np.ldexp(steps, bits), np.ldexp(scale, -bits)
        steps = np.rint(steps)
    # What does not fit becomes real numbers: int32 would be read as the accumulator's.
    data, quant = bias, None
    if np.all(np.abs(steps.astype(np.float64)) <= _INT32_MAX):  # NaN is not
        data = steps.astype(np.int32)
        quant = QuantParams(scale=tuple(float(s) for s in scale), axis=0, bits=32)
    name = b.name or f"{node.name}/bias"
    node.replace_input_with(2, add_constant(graph, name, data, quant))


def _finer_weight(
    graph: ir.Graph, w: ir.Value, quant: QuantParams, bits: np.ndarray, axis: int
) -> ir.Value:
    """A weight with equal real values and scales that are finer by `bits` per channel."""
    weight = constant(w)
    assert weight is not None
    shape = [-1 if i == axis else 1 for i in range(weight.ndim)]
    data = (weight.astype(np.int32) << bits.reshape(shape)).astype(weight.dtype)
    scale = tuple(np.ldexp(quant.scale, -bits).tolist())
    return add_constant(graph, w.name or "weight", data, replace(quant, scale=scale))
