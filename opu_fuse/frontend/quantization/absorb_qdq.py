"""QDQ model -> annotations: the integers become properties of values, the Q and DQ nodes disappear.

1. Constants behind DequantizeLinear become int8 or int32 initialisers with an annotation, weights
   without their zero points (int16 where int8 does not hold the differences). Those of kinds no
   machine takes become float again, so that their readers run on the host. Activations
   with a scale for each channel get one for all where that loses nothing
   (`per_channel_activations.py`).
2. A value whose readers are all QuantizeLinear nodes with equal scales is rounded: it gets the
   annotation, and the readers of the DequantizeLinear results read it. Pairs that round it once
   more, in the same way, disappear.
3. A model input that is int8 already is annotated; its DequantizeLinear disappears. One that is
   uint8 keeps its DequantizeLinear, a host operator whose result is annotated (it is exact).
4. A QuantizeLinear whose result is a model output stays, a host operator; what it reads is rounded.
5. A pair of a value that is rounded already, to another scale, is a Clip without bounds: an
   operator that rounds anew, and does nothing else.
6. All other pairs stay as host operators (a value rounded to several scales, or read unrounded
   too). What a remaining DequantizeLinear writes is annotated, as in 3.
7. An input of the model that is rounded, and read unrounded too, becomes two values
   (`unrounded.py`), so that case 2 holds for one of them.
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
from opu_fuse.frontend.quantization.propagate_qparams import finish_biases, spread_rounding
from opu_fuse.frontend.unrounded import split_inputs
from opu_fuse.model.operator_sets import WEIGHTED
from opu_fuse.quant import META_KEY, QuantParams

_LARGEST_RATIO = 2.0**15
"""Of two scales, that a multiplier of 16 bits holds: a pair beyond is left as it is (Case 6)."""


def ready(model: ir.Model) -> ir.Model:
    """A QDQ model that a library has made, as `absorb` wants it (the same object)."""
    own_tensors(model)
    fold_constants(model)
    if not shapes_known(model):
        infer_shapes(model)
    name_everything(model)
    return model


def absorb(model: ir.Model, *, rewriting: bool = False) -> None:
    """Make a QDQ model (ours or a foreign one) the canonical int8 model, in place.

    Expects what `load_model` gives: static shapes, unique names, constants as initialisers. Values
    keep the name of their int8 tensor in `Value.meta["opu_fuse.tensor"]`. rewriting: see
    `canonicalise`.
    """
    step("absorb", model, _absorb)
    canonicalise(model)  # rewrites ask what is rounded: they come behind
    step("rounding", model, _finish)
    canonicalise(model, rewriting=rewriting)


def _absorb(model: ir.Model) -> None:
    graph = model.graph
    einsums.run(model)  # its weights are kept as those of what it becomes
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
        _round_anew(value)  # Case 5


def _finish(model: ir.Model) -> None:
    spread_rounding(model)
    finish_biases(model)


def _values(graph: ir.Graph) -> list[ir.Value]:
    return [*graph.inputs, *(v for node in graph for v in node.outputs)]


def dequantise(model: ir.Model) -> None:
    """Make a model of which only constants and inputs are quantised a float one, in place."""
    _quantise_float_constants(model.graph)
    for node in list(model.graph):
        if is_dequantize(node) and constant(node.inputs[0]) is None:
            _spell_out(node)
        elif is_dequantize(node):
            _replace_by(node, dequantised(node))
    fold_constants(model)  # what was done to the weights


def _quantise_float_constants(graph: ir.Graph) -> None:
    """Weights that were trained with rounding: float -> Q -> DQ. The Q is computed now."""
    for node in list(graph):
        if is_quantize(node):
            _replace_by(node, quantised(node))


def _spell_out(node: ir.Node) -> None:
    """(x - zero point) * scale: behind a DequantizeLinear ONNX Runtime's quantiser rounds nothing,
    and waits without end for the scale of what only moves its result.
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
    """What moves the numbers of a constant moves its integers, before they become numbers: so do
    exporters turn the weights of dense layers.
    """
    turns = is_standard(node, "Transpose")
    source = node.inputs[0] if turns or is_view(node) else None
    made = None if source is None else source.producer()
    result, size = node.outputs[0], static_shape(node.outputs[0])
    if made is None or not is_dequantize(made) or size is None or result.is_graph_output():
        return
    data, graph = constant(made.inputs[0]), node.graph
    if data is None or graph is None or made.attributes.get_int("block_size", 0):
        return
    order = node.attributes.get_ints("perm", tuple(reversed(range(data.ndim))))
    moved = data.transpose(order) if turns else data.reshape(size)
    axis = made.attributes.get_int("axis", 1) % max(data.ndim, 1)
    scale = constant(operand(made, 1))
    if scale is not None and scale.size > 1:
        found = order.index(axis) if turns else _same_axis(data.shape, size, axis)
        if found is None:
            return
        axis = found
    name, form = result.name or "constant", {"axis": axis}
    integers = add_constant(graph, f"{name}/integers", np.ascontiguousarray(moved))
    operands, name = [integers, *made.inputs[1:]], f"{name}/moved"
    real = insert_before(node, made.op_type, operands, form, name=name, shape=size)
    replace_value(result, real)
    detach(node)
    drop_unread(source)


def _same_axis(before: Sequence[int], after: Sequence[int], axis: int) -> int | None:
    """The axis that a change of view leaves as it is: of the same size, as many numbers in front of
    it; None where there is no such.
    """
    leading = math.prod(before[:axis])
    for index, size in enumerate(after):
        if size == before[axis] and math.prod(after[:index]) == leading:
            return index
    return None


def _replace_by(node: ir.Node, data: np.ndarray | None) -> None:
    """A constant in place of a node, where it is known and nobody is shown the node's result."""
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
    found = constant_params(node, any_zero=_is_filter(result))
    if found is not None and _usable(result, found[1]):
        data, params = found
        if _is_weight(result):
            params = per_row(params, *_rows(result, data))
        replace_value(result, add_constant(graph, name, data, params))
        detach(node)
    else:
        _replace_by(node, dequantised(node))


def _usable(value: ir.Value, params: QuantParams) -> bool:
    """Integers are kept for weights with scales along their output channels, biases and operands of
    Add and Mul; elsewhere reals serve.
    """
    for use in value.uses():
        weight = is_standard(use.node, *WEIGHTED) and use.idx == 1
        if weight and (params.bits == 32 or params.axis not in {None, output_axis(use.node)}):
            return False
    return all(is_standard(u.node, *WEIGHTED, "Add", "Mul") for u in value.uses())


def _is_filter(value: ir.Value) -> bool:
    return all(is_standard(u.node, *WEIGHTED) and u.idx == 1 for u in value.uses())


def _is_weight(value: ir.Value) -> bool:
    return all(is_standard(u.node, *WEIGHTED) and u.idx in {1, 2} for u in value.uses())


def _rows(value: ir.Value, data: np.ndarray) -> tuple[int, int]:
    """Output channels of a weight or bias, and their axis; (1, 0) for the axis 1 of a dense layer
    (spelt out by `dense`).
    """
    use = next(iter(value.uses()))
    if use.idx == 1 and filter_axis(use.node):
        return data.shape[1], 1
    turned = use.idx == 1 and (
        use.node.op_type == "MatMul"
        or (use.node.op_type == "Gemm" and not use.node.attributes.get_int("transB", 0))
    )
    return (1 if turned or data.ndim == 0 else data.shape[0]), 0


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
    """Who rounds what is rounded, in the same way, changes nothing."""
    quant = quant_of(value)
    pending = [] if quant is None else [u.node for u in value.uses()]
    while pending:
        node = pending.pop()
        if quant is None or not is_quantize(node) or activation_params(node) != quant:
            continue
        known = {u.node for u in value.uses()}
        _remove_pair(value, node, quant)
        pending += [u.node for u in value.uses() if u.node not in known]


def _round_anew(value: ir.Value) -> None:
    """Case 5, for each scale in which the value is read, and what is made of it in turn."""
    pending = [value]
    while pending:
        value = pending.pop()
        have, shape = quant_of(value), static_shape(value)
        pairs: dict[QuantParams, list[ir.Node]] = {}
        for node in [use.node for use in value.uses()] if have is not None and shape else ():
            quant = activation_params(node) if is_quantize(node) else None
            if quant is None or have is None or quant == have:
                continue
            if have.per_tensor < _LARGEST_RATIO * quant.per_tensor:
                pairs.setdefault(quant, []).append(node)
        for quantizers in pairs.values():
            first = _first(quantizers)
            name = first.outputs[0].name
            anew = insert_before(first, "Clip", [value], name=f"{name}/anew", shape=shape or ())
            for node in quantizers:
                node.replace_input_with(0, anew)
            _absorb_activation(anew)
            if first.graph is None and (made := anew.producer()) is not None:
                made.name = first.name
            pending.append(anew)


def _first(nodes: Sequence[ir.Node]) -> ir.Node:
    """In graph order."""
    if len(nodes) == 1:
        return nodes[0]
    graph = nodes[0].graph
    assert graph is not None
    return next(node for node in graph if node in nodes)


def _of_operand(value: ir.Value) -> QuantParams | None:
    """The rounding of what a change of view reads, or a DequantizeLinear: they move no byte, so
    they cannot round anew.
    """
    view = value.producer()
    if view is not None and is_dequantize(view):
        return activation_params(view)
    source = view.inputs[0] if view is not None and is_view(view) else None
    if source is None:
        return None
    made_by = source.producer()
    if made_by is not None and is_dequantize(made_by):
        return activation_params(made_by)
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
