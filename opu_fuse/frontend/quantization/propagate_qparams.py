"""Where a foreign QDQ model rounds once for several operators, say so at each of them.

Upwards: a value that only an operator reads which commutes with rounding (Relu, Clip, MaxPool,
Reshape, Transpose, Concat, SpaceToDepth) is rounded as that operator's result is: rounding before
or after gives the same integers. Downwards: the result of an operator that gives values of its
operands has their scale where it is not rounded and they all have one.

Biases: int32 in the scale of the accumulator, input scale times weight scale.
"""

import numpy as np
import onnx_ir as ir
from msgspec.structs import replace

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    filter_axis,
    is_standard,
    operand,
    quant_of,
    real_constant,
    sole_reader,
)
from opu_fuse.frontend.qdq import per_row
from opu_fuse.model.operator_sets import COMPUTES, KEEPS_NUMBERS, MONOTONE
from opu_fuse.quant import META_KEY, QuantParams, finer_by

_INT32_MAX = 2**31 - 1


def spread_rounding(model: ir.Model) -> None:
    """Annotate in place, first against, then along the direction of the data."""
    for node in reversed(model.graph):
        if is_standard(node, *MONOTONE) and (quant := quant_of(node.outputs[0])) is not None:
            values = node.inputs if node.op_type == "Concat" else node.inputs[:1]
            for value in values:
                if value is not None and _can_round(value, node):
                    value.meta[META_KEY] = quant
    for node in model.graph:
        quant = _kept(node) if is_standard(node, *KEEPS_NUMBERS) else None
        results = node.outputs if node.op_type == "Split" else node.outputs[:1]
        for result in results if quant is not None else ():  # not the places of a MaxPool's values
            if quant_of(result) is None:
                result.meta[META_KEY] = quant


def _kept(node: ir.Node) -> QuantParams | None:
    """The int8 annotation that all operands have, where all numbers of the result are of them."""
    values = node.inputs if node.op_type == "Concat" else node.inputs[:1]
    quant, *others = {None if value is None else quant_of(value) for value in values}
    if node.op_type == "Resize" and not repeats(node):
        return None
    return quant if not others and quant is not None and quant.bits == 8 else None


def repeats(node: ir.Node) -> bool:
    """Whether a Resize has no other values than its operand."""
    crops = node.attributes.get_string("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    return node.attributes.get_string("mode", "nearest") == "nearest" and not crops


def _can_round(value: ir.Value, reader: ir.Node) -> bool:
    producer = value.producer()
    if quant_of(value) is not None or sole_reader(value) is not reader or producer is None:
        return False
    return is_standard(producer, *COMPUTES, *MONOTONE)


def finish_biases(model: ir.Model) -> None:
    """Make every bias of an int8 convolution or Gemm int32 in the accumulator's scale, in place.

    Where a bias lies between the steps of that scale, and scales are powers of two, the scale is
    made finer, if int8 holds the weights so. A convolution whose bias does not fit keeps a float
    bias, and so runs on the host; one that runs there anyway keeps the bias that it has.
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
    scale = np.float32(x_quant.per_tensor) * np.asarray(w_quant.scale, np.float32)
    have = quant_of(b)
    known = np.asarray(have.scale if have and have.bits == 32 else np.nan, np.float32)
    if np.array_equal(known, scale):
        return
    if np.allclose(known, scale, rtol=1e-4, atol=0):
        steps = constant(b)
        assert steps is not None
    else:
        steps = bias.astype(np.float64) / scale
        if x_quant.is_pow2 and w_quant.is_pow2:
            bits = finer_by(np.moveaxis(weight, axis, 0), steps)
            if bits.any():
                node.replace_input_with(1, _finer_weight(graph, w, w_quant, bits, axis))
                steps, scale = np.ldexp(steps, bits), np.ldexp(scale, -bits)
        steps = np.rint(steps)
    fits = np.all(np.abs(steps.astype(np.float64)) <= _INT32_MAX)  # NaN does not
    quant = QuantParams(scale=tuple(float(s) for s in scale), axis=0, bits=32)
    # What does not fit becomes real numbers: int32 would be read as the accumulator's.
    data, quant = (steps.astype(np.int32), quant) if fits else (bias, None)
    name = b.name or f"{node.name}/bias"
    node.replace_input_with(2, add_constant(graph, name, data, quant))


def _finer_weight(
    graph: ir.Graph, w: ir.Value, quant: QuantParams, bits: np.ndarray, axis: int
) -> ir.Value:
    """The same real numbers in a scale that is finer, channel by channel, by some bits."""
    weight = constant(w)
    assert weight is not None
    shape = [-1 if i == axis else 1 for i in range(weight.ndim)]
    data = (weight.astype(np.int32) << bits.reshape(shape)).astype(weight.dtype)
    scale = tuple(np.ldexp(quant.scale, -bits).tolist())
    return add_constant(graph, w.name or "weight", data, replace(quant, scale=scale))
