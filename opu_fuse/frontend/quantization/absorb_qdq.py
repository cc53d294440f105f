"""QDQ model -> annotations: quantisation becomes a property of values; Q and DQ nodes disappear.

1. Dequantised constants become int8 or int32 initialisers with an annotation. Weights lose their
   zero points; they become int16 where int8 cannot hold the differences. Constants of kinds that no
   machine supports become float again, so their readers run on the host. Per-channel activation
   scales become one per-tensor scale where that is lossless (`per_channel_activations.py`).
2. A value whose readers are all QuantizeLinear nodes with equal parameters is quantised: it gets
   the annotation and replaces the results of the DequantizeLinear nodes. Further pairs with the
   same parameters disappear.
3. An int8 model input gets an annotation; its DequantizeLinear disappears. A uint8 input retains
   its DequantizeLinear as a host operator, whose result is annotated (it is exact).
4. A QuantizeLinear that writes a model output remains as a host operator. Its operand is quantised.
5. A pair that quantises an already quantised value to another scale becomes a Clip without bounds,
   which only requantises.
6. All other pairs remain as host operators: a value quantised to several scales, or also read as
   float. The result of a remaining DequantizeLinear is annotated, as in case 3.
7. A model input that is read both quantised and as float becomes two values (`unrounded.py`), so
   case 2 applies to one of them.
"""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical import canonicalise, einsums
from opu_fuse.frontend.canonical.reshapes import is_view
from opu_fuse.frontend.editing import (
    TENSOR_KEY,
    add_constant,
    constant,
    detach,
    drop_unread,
    filter_axis,
    insert_before,
    is_standard,
    operand,
    output_axis,
    own_tensors,
    quant_of,
    replace_value,
    rewrite,
    static_shape,
)
from opu_fuse.frontend.importing.fold_constants import fold_constants
from opu_fuse.frontend.importing.node_names import name_everything
from opu_fuse.frontend.importing.shapes import infer_shapes, shapes_known
from opu_fuse.frontend.pass_steps import step
from opu_fuse.frontend.qdq import (
    activation_params,
    constant_params,
    dequantised,
    is_dequantize,
    is_quantize,
    per_row,
    quantised,
    spread_scales,
)
from opu_fuse.frontend.quantization.per_channel_activations import level_channels
from opu_fuse.frontend.quantization.propagate_qparams import finish_biases, propagate_qparams
from opu_fuse.frontend.unrounded import split_inputs
from opu_fuse.model.operator_sets import WEIGHTED
from opu_fuse.model.products import has_turned_form
from opu_fuse.quant import META_KEY, QuantParams

_LARGEST_RATIO = 2.0**15
"""Largest ratio of two scales that a 16-bit multiplier holds; above it case 6 applies."""


def ready(model: ir.Model) -> ir.Model:
    """Prepare a QDQ model from a library for `absorb` (mutates it). Returns the model."""
    own_tensors(model)
    fold_constants(model)
    if not shapes_known(model):
        infer_shapes(model)
    name_everything(model)
    return model


def absorb(model: ir.Model, *, rewriting: bool = False) -> None:
    """Convert a QDQ model (ours or another tool's) to the canonical int8 model (mutates it).

    Expects the form that `load_model` returns: static shapes, unique names, constants as
    initialisers. Values retain the name of their int8 tensor in `Value.meta["opu_fuse.tensor"]`.
    rewriting: see `canonicalise`.
    """
    step("absorb", model, _absorb)
    canonicalise(model)  # rewrites read quantisation: they run last
    step("rounding", model, _finish)
    canonicalise(model, rewriting=rewriting)


def _absorb(model: ir.Model) -> None:
    graph = model.graph
    einsums.run(model)  # first, so its weights are quantised as those of its replacement
    _quantise_float_constants(graph)
    for node in list(graph):
        _move_constant(node)
    for node in list(graph):
        if is_dequantize(node) and constant(node.inputs[0]) is not None:
            _absorb_constant(graph, node)  # Case 1
    level_channels(graph)
    split_inputs(graph)  # Case 6
    for value in _values(graph):
        _absorb_activation(value)  # Cases 2 and 4
        _absorb_again(value)
    for node in list(graph):
        if is_dequantize(node):
            _absorb_input(node)  # Cases 3 and 6
    for value in _values(graph):
        _requantise_by_clips(value)  # Case 5


def _finish(model: ir.Model) -> None:
    propagate_qparams(model)
    finish_biases(model)


def _values(graph: ir.Graph) -> list[ir.Value]:
    return [*graph.inputs, *(v for node in graph for v in node.outputs)]


def dequantise(model: ir.Model) -> None:
    """Convert a model with only constants and inputs quantised to a float model (mutates it)."""
    _quantise_float_constants(model.graph)
    for node in list(model.graph):
        if is_dequantize(node) and constant(node.inputs[0]) is None:
            _convert(node)
        elif is_dequantize(node):
            _replace_by(node, dequantised(node))
    fold_constants(model)  # operators on the weights


def _quantise_float_constants(graph: ir.Graph) -> None:
    """Quantise weights now that the model stores as float -> Q -> DQ (from QAT)."""
    for node in list(graph):
        if is_quantize(node):
            _replace_by(node, quantised(node))


def _convert(node: ir.Node) -> None:
    """Replace a DequantizeLinear by (x - zero point) * scale in float operators.

    ONNX Runtime's quantiser quantises no successor of a DequantizeLinear. It does not terminate if
    an operator that only moves values reads one.
    """
    x, shape, steps = node.inputs[0], static_shape(node.outputs[0]), spread_scales(node)
    if x is None or shape is None or steps is None:
        return
    graph, name = node.graph, node.outputs[0].name
    assert graph is not None
    scale, zero = steps
    value = insert_before(
        node, "Cast", [x], {"to": ir.DataType.FLOAT.value}, name=f"{name}/integers", shape=shape
    )
    if np.any(zero):
        offset = add_constant(graph, f"{name}/zero_point", zero)
        value = insert_before(node, "Sub", [value, offset], name=f"{name}/offset", shape=shape)
    node.domain = ""
    rewrite(node, "Mul", [value, add_constant(graph, f"{name}/scale", scale)])


def _move_constant(node: ir.Node) -> None:
    """Move a Transpose or view of a dequantised constant before its DequantizeLinear.

    Exporters transpose the weights of dense layers this way.
    """
    is_transpose = is_standard(node, "Transpose")
    source = node.inputs[0] if is_transpose or is_view(node) else None
    dequantize = None if source is None else source.producer()
    result, size = node.outputs[0], static_shape(node.outputs[0])
    if (
        dequantize is None
        or not is_dequantize(dequantize)
        or size is None
        or result.is_graph_output()
    ):
        return
    data, graph = constant(dequantize.inputs[0]), node.graph
    if data is None or graph is None or dequantize.attributes.get_int("block_size", 0):
        return
    order = node.attributes.get_ints("perm", tuple(reversed(range(data.ndim))))
    moved = data.transpose(order) if is_transpose else data.reshape(size)
    axis = dequantize.attributes.get_int("axis", 1) % max(data.ndim, 1)
    scale = constant(operand(dequantize, 1))
    if scale is not None and scale.size > 1:
        new_axis = order.index(axis) if is_transpose else _same_axis(data.shape, size, axis)
        if new_axis is None:
            return
        axis = new_axis
    name, form = result.name or "constant", {"axis": axis}
    integers = add_constant(graph, f"{name}/integers", np.ascontiguousarray(moved))
    operands, name = [integers, *dequantize.inputs[1:]], f"{name}/moved"
    real = insert_before(node, dequantize.op_type, operands, form, name=name, shape=size)
    replace_value(result, real)
    detach(node)
    drop_unread(source)


def _same_axis(before: Sequence[int], after: Sequence[int], axis: int) -> int | None:
    """The axis of the new view that equals `axis` of the old one; None if there is none.

    Both have the same size and the same number of elements in the axes before them.
    """
    leading = math.prod(before[:axis])
    for index, size in enumerate(after):
        if size == before[axis] and math.prod(after[:index]) == leading:
            return index
    return None


def _replace_by(node: ir.Node, data: np.ndarray | None) -> None:
    """Replace a node by a constant, unless its data is unknown or its result a model output."""
    graph, source, result = node.graph, node.inputs[0], node.outputs[0]
    if data is None or graph is None or source is None or result.is_graph_output():
        return
    name = (source.name or "constant").removesuffix("_quantized")
    replace_value(result, add_constant(graph, name, data))
    detach(node)


def _absorb_constant(graph: ir.Graph, node: ir.Node) -> None:
    result = node.outputs[0]
    source = node.inputs[0]
    if result.is_graph_output() or source is None:
        return
    name = (source.name or "constant").removesuffix("_quantized")
    decoded = constant_params(node, any_zero=_is_filter(result), keep_zero=_is_constant_map(result))
    if decoded is not None and _usable(result, decoded[1]):
        data, params = decoded
        if _is_weight(result):
            params = per_row(params, *_rows(result, data))
        replace_value(result, add_constant(graph, name, data, params))
        detach(node)
    else:
        _replace_by(node, dequantised(node))


def _usable(value: ir.Value, params: QuantParams) -> bool:
    """Whether a constant can remain in integers.

    So can weights with scales along their output channels, those of turned layers, biases and
    operands of Add and Mul. All other constants become float.
    """
    for use in value.uses():
        weight = is_standard(use.node, *WEIGHTED) and use.idx == 1
        if weight and (params.bits == 32 or params.axis not in {None, output_axis(use.node)}):
            return False
    readers = [use.node for use in value.uses()]
    return all(is_standard(n, *WEIGHTED, "Add", "Mul") or has_turned_form(n) for n in readers)


def _is_filter(value: ir.Value) -> bool:
    return all(is_standard(u.node, *WEIGHTED) and u.idx == 1 for u in value.uses())


def _is_constant_map(value: ir.Value) -> bool:
    """Whether a constant that only Adds and Muls read differs along several axes, as a map does."""
    wide = [size for size in static_shape(value) or () if size != 1]
    return len(wide) > 1 and all(is_standard(u.node, "Add", "Mul") for u in value.uses())


def _is_weight(value: ir.Value) -> bool:
    return all(is_standard(u.node, *WEIGHTED) and u.idx in {1, 2} for u in value.uses())


def _rows(value: ir.Value, data: np.ndarray) -> tuple[int, int]:
    """Number of output channels of a weight or bias, and their axis.

    (1, 0) for a dense weight with outputs along axis 1, which `dense` transposes later.
    """
    use = next(iter(value.uses()))
    if use.idx == 1 and filter_axis(use.node):
        return data.shape[1], 1
    inputs_first = use.idx == 1 and (
        use.node.op_type == "MatMul"
        or (use.node.op_type == "Gemm" and not use.node.attributes.get_int("transB", 0))
    )
    return (1 if inputs_first or data.ndim == 0 else data.shape[0]), 0


def _absorb_activation(value: ir.Value) -> None:
    readers = [u.node for u in value.uses()]
    if not readers or not all(is_quantize(n) for n in readers) or value.is_graph_output():
        return
    params = {activation_params(n) for n in readers}
    quant = params.pop() if len(params) == 1 else None
    known = {quant_of(value), _of_operand(value)} - {None}
    if quant is None or known - {quant}:
        return
    value.meta[META_KEY] = quant
    value.meta[TENSOR_KEY] = readers[0].outputs[0].name
    for quantize in readers:
        _remove_pair(value, quantize, quant)


def _absorb_again(value: ir.Value) -> None:
    """Remove further Q/DQ pairs with the parameters that a value already has: idempotent."""
    quant = quant_of(value)
    pending = [] if quant is None else [u.node for u in value.uses()]
    while pending:
        node = pending.pop()
        if quant is None or not is_quantize(node) or activation_params(node) != quant:
            continue
        # Removing a pair moves the readers of its result here; they may be pairs, too.
        known = {u.node for u in value.uses()}
        _remove_pair(value, node, quant)
        pending += [u.node for u in value.uses() if u.node not in known]


def _requantise_by_clips(value: ir.Value) -> None:
    """Case 5: one Clip per scale in which the value is read, then the same for its result."""
    pending = [value]
    while pending:
        value = pending.pop()
        value_quant, shape = quant_of(value), static_shape(value)
        pairs: dict[QuantParams, list[ir.Node]] = {}
        for node in [use.node for use in value.uses()] if value_quant is not None and shape else ():
            quant = activation_params(node) if is_quantize(node) else None
            if quant is None or value_quant is None or quant == value_quant:
                continue
            if value_quant.per_tensor < _LARGEST_RATIO * quant.per_tensor:
                pairs.setdefault(quant, []).append(node)
        for quantizers in pairs.values():
            first = _first(quantizers)
            name = first.outputs[0].name
            requantised = insert_before(
                first, "Clip", [value], name=f"{name}/anew", shape=shape or ()
            )
            for node in quantizers:
                node.replace_input_with(0, requantised)
            _absorb_activation(requantised)
            if first.graph is None and (clip := requantised.producer()) is not None:
                clip.name = first.name
            pending.append(requantised)


def _first(nodes: Sequence[ir.Node]) -> ir.Node:
    """The first of some nodes in graph order."""
    if len(nodes) == 1:
        return nodes[0]
    graph = nodes[0].graph
    assert graph is not None
    return next(node for node in graph if node in nodes)


def _of_operand(value: ir.Value) -> QuantParams | None:
    """The quantisation of the operand of a view or DequantizeLinear; None for other operators.

    Views and DequantizeLinear move no byte, so they cannot requantise.
    """
    view = value.producer()
    if view is not None and is_dequantize(view):
        return activation_params(view)
    source = view.inputs[0] if view is not None and is_view(view) else None
    if source is None:
        return None
    producer = source.producer()
    if producer is not None and is_dequantize(producer):
        return activation_params(producer)
    return quant_of(source)


def _remove_pair(value: ir.Value, quantize: ir.Node, quant: QuantParams) -> None:
    ints = quantize.outputs[0]
    for dequantize in [u.node for u in ints.uses()]:
        if not is_dequantize(dequantize) or activation_params(dequantize) != quant:
            continue
        result = dequantize.outputs[0]
        if result.is_graph_output() and (value.is_graph_input() or value.is_graph_output()):
            continue
        replace_value(result, value)
        detach(dequantize)
    drop_unread(ints)


def _absorb_input(node: ir.Node) -> None:
    source, result = node.inputs[0], node.outputs[0]
    quant = activation_params(node)
    if source is None or quant is None:
        return
    direct = source.is_graph_input() and source.dtype == ir.DataType.INT8
    equal = all(is_dequantize(u.node) and activation_params(u.node) == quant for u in source.uses())
    if direct and equal and not result.is_graph_output():
        source.meta[META_KEY] = quant
        replace_value(result, source)
        detach(node)
    elif quant_of(result) is None:
        result.meta[META_KEY] = quant
