"""Converts networks in float16, bfloat16 or float64 to float32, before they are quantised.

Inputs and outputs keep their types: a Cast follows each input and precedes each output. Those in
bfloat16, which numpy lacks, become float32, too.
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import constant, operand, standard_nodes

_OTHER = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE})
_SHOWN = _OTHER - {ir.DataType.BFLOAT16}
_TYPED = ("to", "dtype", "output_dtype")
"""Attributes that name the element type of a result."""


def is_of_other_width(model: ir.Model) -> bool:
    """Whether convolutions or dense layers have weights in other floats than float32."""
    weighted = standard_nodes(model.graph, "Conv", "ConvTranspose", "Gemm", "MatMul")
    weights = [operand(node, 1) for node in weighted]
    return any(w and w.dtype in _OTHER and constant(w) is not None for w in weights)


def to_float32(model: ir.Model) -> None:
    """Convert a model to float32 (mutates it). All types and shapes are known before and after."""
    graph, kinds = model.graph, [value.dtype for value in model.graph.outputs]
    for node in graph:
        for value in node.outputs:
            if value.dtype in _OTHER:
                value.type = ir.TensorType(ir.DataType.FLOAT)
        for attribute in list(node.attributes.values()):
            node.attributes[attribute.name] = _widened(attribute)
    for value in graph.initializers.values():
        data = constant(value) if value.dtype in _OTHER else None
        if data is not None:
            value.const_value = ir.tensor(_float32(data), name=value.name)
            value.type = ir.TensorType(ir.DataType.FLOAT)
    for value in graph.inputs:
        if value.dtype in _SHOWN:
            _cast_input(graph, value)
        elif value.dtype in _OTHER:
            value.type = ir.TensorType(ir.DataType.FLOAT)
    for index, (value, kind) in enumerate(zip(list(graph.outputs), kinds, strict=True)):
        if kind is not None and kind in _SHOWN and value.producer() is not None:
            graph.outputs[index] = _cast_output(graph, value, kind)


def _float32(data: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # overflow gives infinity, which `check_network` reports
        return data.astype(np.float32)


def _widened(attribute: ir.Attr) -> ir.Attr:
    name, value = attribute.name, attribute.value
    if name in _TYPED and attribute.type == ir.AttributeType.INT and value in _OTHER:
        return ir.AttrInt64(name, ir.DataType.FLOAT)
    if attribute.type == ir.AttributeType.TENSOR and value.dtype in _OTHER:
        return ir.AttrTensor(name, ir.tensor(_float32(value.numpy())))
    return attribute


def _cast_input(graph: ir.Graph, value: ir.Value) -> None:
    cast = _cast(value, ir.DataType.FLOAT)
    wide = cast.outputs[0]
    wide.name = f"{value.name}/float"
    ir.convenience.replace_all_uses_with(value, wide)
    cast.replace_input_with(0, value)
    graph.insert_before(graph[0], cast)


def _cast_output(graph: ir.Graph, value: ir.Value, kind: ir.DataType) -> ir.Value:
    cast = _cast(value, kind)
    narrow = cast.outputs[0]
    narrow.name, value.name = value.name, f"{value.name}/float"
    graph.append(cast)
    return narrow


def _cast(value: ir.Value, kind: ir.DataType) -> ir.Node:
    cast = ir.Node("", "Cast", [value], [ir.AttrInt64("to", kind)], name=f"{value.name}/cast")
    cast.outputs[0].type, cast.outputs[0].shape = ir.TensorType(kind), value.shape
    return cast
