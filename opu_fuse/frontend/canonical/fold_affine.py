"""Fold per-channel affine operators into the preceding layer.

1. BatchNormalization, or Mul or Add by per-channel constants, right after a Conv, ConvTranspose or
   Gemm with no other reader: folded into weight and bias.
2. As case 1 after a layer with int8 weights whose accumulator is not quantised before, as
   quantisation-aware training exports it: factors fold into the scales, shifts into the bias
   (float; int32 later).
3. Any other BatchNormalization gets mean 0, variance 1, epsilon 0, so only scale and shift remain.
4. Two consecutive affine operators become one BatchNormalization, unless the value between is
   quantised or has other readers, or both have only scalars.

One pass in graph order folds chains (Conv, BatchNormalization, Mul, Add): each operator finds the
layer, or the BatchNormalization, that absorbed its predecessor. Operators whose combined constants
exceed float32's range do not fold.
"""

import numpy as np
import onnx_ir as ir
from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.frontend.editing import (
    add_constant,
    bypass,
    constant,
    detach,
    filter_axis,
    is_standard,
    merge_sources,
    operand,
    quant_of,
    real_constant,
    rewrite,
    sole_reader,
    static_shape,
)
from opu_fuse.frontend.importing.value_checks import are_scales, in_range
from opu_fuse.model.operator_sets import LAYERS
from opu_fuse.model.preprocessing import preprocessing_nodes
from opu_fuse.quant import QuantParams, narrowed


class Affine(Struct, frozen=True, kw_only=True):
    """`x * scale + shift` per channel; float64 vectors of [c]."""

    scale: np.ndarray
    shift: np.ndarray


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed, at_ports = False, preprocessing_nodes(model.graph)
    for node in model.graph:
        affine = None if node in at_ports else _affine(node)
        if affine is None:
            continue
        if _fold(model.graph, node, affine):  # Cases 1 and 2
            changed = True
        elif (pair := _with_step_before(node, affine)) is not None:  # Case 4
            _merge(model.graph, node, *pair)
            changed = True
        elif is_standard(node, "BatchNormalization") and not _is_plain(node):  # Case 3
            _convert(model.graph, node, node.inputs[0], affine)
            changed = True
    return changed


def _affine(node: ir.Node) -> Affine | None:
    """The per-channel affine function of a node on axis 1 of its first operand.

    None for other nodes, and if its constants are out of float32's range.
    """
    if not is_standard(node, "BatchNormalization", "Mul", "Add"):
        return None
    shape = static_shape(node.outputs[0]) if node.outputs else None
    if shape is None or len(shape) not in {2, 4} or shape != static_shape(operand(node, 0)):
        return None
    if node.op_type == "BatchNormalization":
        return _batch_norm(node)
    data = real_constant(node.inputs[1])
    vector = None if data is None or not in_range(data) else _per_channel(data, shape)
    if vector is None:
        return None
    if node.op_type == "Mul":
        return Affine(scale=vector, shift=np.zeros_like(vector))
    return Affine(scale=np.ones_like(vector), shift=vector)


def _batch_norm(node: ir.Node) -> Affine | None:
    if node.attributes.get_int("training_mode", 0) or len(node.outputs) > 1:
        return None
    parts = [real_constant(operand(node, i)) for i in range(1, 5)]
    if any(p is None for p in parts):
        return None
    gamma, beta, mean, var = (p.astype(np.float64) for p in parts)  # type: ignore[union-attr]  # None is ruled out above
    var += node.attributes.get_float("epsilon", 1e-5)
    if not np.all(var > 0.0):
        return None
    scale = gamma / np.sqrt(var)
    shift = beta - mean * scale
    return Affine(scale=scale, shift=shift) if in_range(scale) and in_range(shift) else None


def _per_channel(data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """A constant that varies along axis 1 at most, as a float64 vector of [c]."""
    full = (1,) * (len(shape) - data.ndim) + data.shape
    if len(full) != len(shape) or any(n != 1 for i, n in enumerate(full) if i != 1):
        return None
    if full[1] not in {1, shape[1]}:
        return None
    return np.broadcast_to(data.reshape(-1).astype(np.float64), (shape[1],))


def _fold(graph: ir.Graph, node: ir.Node, affine: Affine) -> bool:
    x = node.inputs[0]
    assert x is not None
    conv = x.producer()
    if conv is None or not is_standard(conv, *LAYERS) or sole_reader(x) is not node:
        return False
    w, b = operand(conv, 1), operand(conv, 2)
    weight, bias = constant(w), real_constant(b)
    if w is None or weight is None or (b is not None and bias is None) or quant_of(x):
        return False
    axis = filter_axis(conv)
    if weight.shape[axis] != len(affine.shift):
        return False
    if conv.op_type == "Gemm" and not conv.attributes.get_int("transB", 0):
        return False
    old = np.zeros_like(affine.shift) if bias is None else bias.astype(np.float64)
    shift = old * affine.scale + affine.shift
    scaled = not np.all(affine.scale == 1.0)
    product = _product(weight, quant_of(w), affine.scale, axis) if scaled else (weight, None)
    if product is None or not (in_range(product[0]) and in_range(shift)):
        return False
    if scaled:
        conv.replace_input_with(1, _rescaled(graph, w, *product))
    name = f"{conv.name}/bias" if b is None or b.name is None else b.name
    new_bias = add_constant(graph, name, shift.astype(np.float32))
    if b is None:
        conv.resize_inputs(3)
    conv.replace_input_with(2, new_bias)
    if not bypass(node):
        raise AssertionError("a folded node has no rounding before it and can always be removed")
    return True


def _product(
    weight: np.ndarray, quant: QuantParams | None, factors: np.ndarray, axis: int
) -> tuple[np.ndarray, QuantParams | None] | None:
    """Weights times a factor per output channel; None if integer weights cannot absorb it."""
    dims = [-1 if i == axis else 1 for i in range(weight.ndim)]
    if quant is None:
        if weight.dtype != np.float32:
            return None
        with np.errstate(over="ignore"):  # infinite then, which is out of range
            return weight * factors.reshape(dims).astype(np.float32), None
    # Scales are positive: signs and zeros of the factors go into the integers.
    signed = narrowed(weight * np.sign(factors).astype(np.int16).reshape(dims))
    scales = np.array(quant.scale) * np.where(factors == 0.0, 1.0, np.abs(factors))
    if quant.axis not in {None, axis} or not are_scales(scales):
        return None
    bits = 8 * signed.dtype.itemsize
    return signed, replace(quant, scale=tuple(scales.tolist()), axis=axis, bits=bits)


def _rescaled(
    graph: ir.Graph, w: ir.Value, data: np.ndarray, quant: QuantParams | None
) -> ir.Value:
    """The scaled weight; it replaces the old one if that has no other reader (saves memory)."""
    if len(w.uses()) > 1 or quant is not None:
        return add_constant(graph, f"{w.name}/scaled", data, quant)
    w.const_value = ir.tensor(data, name=w.name)
    return w


def _with_step_before(node: ir.Node, affine: Affine) -> tuple[ir.Node, Affine] | None:
    """The preceding affine node and the composition of both; None if they cannot merge."""
    x = node.inputs[0]
    predecessor = None if x is None else x.producer()
    if x is None or predecessor is None or sole_reader(x) is not node or quant_of(x) is not None:
        return None
    first_affine = _affine(predecessor)
    are_scalars = all(
        (c := constant(operand(n, 1))) is not None and c.size == 1 for n in (predecessor, node)
    )
    if first_affine is None or are_scalars:
        return None
    scale, shift = (
        first_affine.scale * affine.scale,
        first_affine.shift * affine.scale + affine.shift,
    )
    composed = Affine(scale=scale, shift=shift)
    return (predecessor, composed) if in_range(scale) and in_range(shift) else None


def _merge(graph: ir.Graph, node: ir.Node, before: ir.Node, both: Affine) -> None:
    merge_sources(node, [before])
    _convert(graph, node, before.inputs[0], both)
    detach(before)


def _is_plain(node: ir.Node) -> bool:
    mean, var = constant(operand(node, 3)), constant(operand(node, 4))
    plain = mean is not None and var is not None and not np.any(mean) and bool(np.all(var == 1.0))
    return plain and node.attributes.get_float("epsilon", 1e-5) == 0.0


def _convert(graph: ir.Graph, node: ir.Node, x: ir.Value | None, affine: Affine) -> None:
    """Rewrite a node as BatchNormalization with mean 0, variance 1 and epsilon 0."""
    parts = {
        "scale": affine.scale,
        "shift": affine.shift,
        "mean": np.zeros_like(affine.scale),
        "variance": np.ones_like(affine.scale),
    }
    constants = [
        add_constant(graph, f"{node.name}/{part}", data.astype(np.float32))
        for part, data in parts.items()
    ]
    rewrite(node, "BatchNormalization", [x, *constants], {"epsilon": 0.0})
