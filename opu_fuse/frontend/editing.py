"""Graph edits that preserve quantisation annotations and the origins of nodes.

All transforms use these, so that each invariant is implemented once: a value that was rounded to
int8 is still rounded at the same point, inputs and outputs of the model keep their names, and a
node records which nodes of the user's model it represents.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from opu_fuse.model.opsets import STANDARD
from opu_fuse.quant import META_KEY, QuantParams

TENSOR_KEY = "opu_fuse.tensor"
"""Key in `Value.meta`: name of the int8 tensor (output of QuantizeLinear) in the QDQ model."""
SOURCE_KEY = "opu_fuse.source"
"""Key in `Node.metadata_props`: comma-joined names of the user's nodes a node represents."""


def is_standard(node: ir.Node, *op_types: str) -> bool:
    """Whether the node is one of these operators of the ONNX standard."""
    return node.op_type in op_types and node.domain in STANDARD


def standard_nodes(graph: ir.Graph, *op_types: str) -> list[ir.Node]:
    """The nodes of a graph that are one of these standard operators, in graph order."""
    types = frozenset(op_types)
    return [n for n in graph if n.op_type in types and is_standard(n, *op_types)]


def operand(node: ir.Node, index: int) -> ir.Value | None:
    """An input by position, None when it is absent."""
    return node.inputs[index] if index < len(node.inputs) else None


def is_point_convolution(node: ir.Node) -> bool:
    """Whether a node is a convolution of single pixels, of any groups: 1x1, stride 1, no pads."""
    if not is_standard(node, "Conv"):
        return False
    weight, ints = static_shape(operand(node, 1)), node.attributes.get_ints
    single = weight is not None and weight[2:] == (1, 1)
    return single and {*ints("strides", ())} <= {1} and not any(ints("pads", ()))


def filter_axis(node: ir.Node) -> int:
    """Weight axis of the output channels of a Conv, ConvTranspose or Gemm (transB = 1).

    For a grouped ConvTranspose with several filters in a group: the axis of the filters in a group.
    """
    if not is_standard(node, "ConvTranspose"):
        return 0
    group, shape = node.attributes.get_int("group", 1), static_shape(operand(node, 1))
    depthwise = shape is None or shape[:2] == (group, 1)
    return int(group == 1 or not depthwise)


def output_axis(node: ir.Node) -> int:
    """Weight axis of the output channels in the user's model, before canonicalisation.

    Like `filter_axis`, but also for a MatMul, and for a Gemm of any transB.
    """
    untransposed = is_standard(node, "Gemm") and not node.attributes.get_int("transB", 0)
    return 1 if untransposed or is_standard(node, "MatMul") else filter_axis(node)


def quant_of(value: ir.Value) -> QuantParams | None:
    """Quantisation annotation of a value; None if it is not rounded."""
    return value.meta.get(META_KEY)


def constant(value: ir.Value | None) -> np.ndarray | None:
    """The stored data of a constant (integers where annotated), None for computed values."""
    tensor = None if value is None else value.const_value
    if value is None or tensor is None or value.is_graph_input():
        return None
    return tensor.numpy()


def real_constant(value: ir.Value | None) -> np.ndarray | None:
    """Real (dequantised) data of a constant; None for computed values."""
    data = constant(value)
    if data is None or value is None:
        return None
    quant = quant_of(value)
    return data if quant is None else quant.dequantize(data)


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape if every dimension is static, else None."""
    shape = None if value is None else value.shape
    return None if shape is None else _numbers(shape.dims)


@functools.lru_cache(maxsize=1024)
def _numbers(dims: tuple[int | ir.SymbolicDim, ...]) -> tuple[int, ...] | None:
    """Static sizes, else None. Cached, since a network has few distinct shapes."""
    known = tuple(d for d in dims if isinstance(d, int))
    return known if len(known) == len(dims) else None


def sole_reader(value: ir.Value) -> ir.Node | None:
    """The only reader of a value that reads it once and is no model output; else None."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    return next(iter(uses)).node


def add_constant(
    graph: ir.Graph, name: str, data: np.ndarray, quant: QuantParams | None = None
) -> ir.Value:
    """A new initialiser; a number is appended to the name when it is taken."""
    unique, count = name, 1
    while unique in graph.initializers:
        unique, count = f"{name}.{count}", count + 1
    tensor = ir.tensor(data, name=unique)
    value = ir.Value(
        name=unique,
        const_value=tensor,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(data.shape),
    )
    if quant is not None:
        value.meta[META_KEY] = quant
    graph.register_initializer(value)
    return value


def own_tensors(model: ir.Model) -> None:
    """Make every numeric initialiser an array of its own.

    A tensor that is backed by a protobuf message is decoded at every access. Raises ValueError,
    naming the initialiser, if the data do not match type and shape.
    """
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.dtype != ir.DataType.STRING:
            try:
                data = tensor.numpy()
            except ValueError as error:
                raise ValueError(f"weight {value.name!r}: {error}") from error
            value.const_value = ir.Tensor(data, dtype=tensor.dtype, name=tensor.name)


def rewrite(
    node: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: dict[str, Any] | None = None,
) -> None:
    """Let a node compute another operator. Its result, name and origin do not change."""
    node.op_type = op_type
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        if node.inputs[index] is not value:
            node.replace_input_with(index, value)
    set_attributes(node, attributes_of(attributes))


def restore_shape(graph: ir.Graph, node: ir.Node, made: Sequence[int]) -> None:
    """Let a Reshape restore the shape of a node's result, which the node will make in another one;
    nothing follows if it is the same.
    """
    result = node.outputs[0]
    shape = static_shape(result)
    assert shape is not None
    if shape != (*made,):
        size = add_constant(graph, f"{node.name}/shape", np.array(shape, np.int64))
        insert_after(node, result, "Reshape", (size,), name=f"{node.name}/result", shape=made)


def values_of(node: ir.Node) -> dict[str, Any]:
    """A node's attributes as Python values."""
    # `.data`: access through the wrapper is slow
    return {name: a.value for name, a in node.attributes.data.items()}


def set_attributes(node: ir.Node, attributes: Mapping[str, ir.Attr]) -> None:
    """Give a node these attributes, and no others."""
    node.attributes.data.clear()
    node.attributes.data.update(attributes)


def insert_before(
    node: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    name: str,
    shape: Sequence[int],
    quant: QuantParams | None = None,
) -> ir.Value:
    """Insert a float node before `node`, with the same origin. Return its result.

    quant: the annotation of the result.
    """
    new = ir.Node("", op_type, inputs, attributes_of(attributes).values(), name=name)
    result = new.outputs[0]
    result.name, result.dtype, result.shape = name, ir.DataType.FLOAT, ir.Shape(shape)
    if quant is not None:
        result.meta[META_KEY] = quant
    merge_sources(new, [node])
    graph = node.graph
    assert graph is not None
    graph.insert_before(node, new)
    return result


def move_before(
    node: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    name: str,
    shape: Sequence[int],
) -> ir.Value:
    """`insert_before` of an operator that moves values: its result has its operand's annotation."""
    x = inputs[0]
    assert x is not None
    quant = quant_of(x)
    return insert_before(node, op_type, inputs, attributes, name=name, shape=shape, quant=quant)


def reshape_before(node: ir.Node, value: ir.Value, shape: Sequence[int], *, name: str) -> ir.Value:
    """Insert a Reshape of a value before `node`, with the same annotation. Return its result; the
    value itself if it has the shape.
    """
    graph = node.graph
    assert graph is not None
    if static_shape(value) == tuple(shape):
        return value
    size = add_constant(graph, f"{name}_shape", np.asarray(shape, np.int64))
    return move_before(node, "Reshape", [value, size], name=name, shape=shape)


def insert_after(
    node: ir.Node,
    result: ir.Value,
    op_type: str,
    constants: Sequence[ir.Value] = (),
    attributes: dict[str, Any] | None = None,
    *,
    name: str,
    shape: Sequence[int],
) -> None:
    """Insert a node after `node`, with the same origin, that restores the old `result`.

    All readers of `result` read the result of the new node, which takes over its name, shape and
    annotation. `result` itself becomes an inner value of `shape` with the same annotation.
    """
    new = ir.Node("", op_type, [None, *constants], attributes_of(attributes).values(), name=name)
    value, old = new.outputs[0], result.name
    value.type, value.shape = result.type, result.shape
    value.meta.update(result.meta)
    if op_type != "Reshape":  # a Reshape keeps the bytes: the QDQ tensor still matches
        result.meta.pop(TENSOR_KEY, None)
    replace_value(result, value)
    value.name, result.name = old, f"{old}/{op_type}"
    result.shape = ir.Shape(shape)
    new.replace_input_with(0, result)
    merge_sources(new, [node])
    graph = node.graph
    assert graph is not None
    graph.insert_after(node, new)


def attributes_of(values: Mapping[str, Any] | None) -> dict[str, ir.Attr]:
    """Python values as attributes.

    The library needs milliseconds per value to determine its type. Integers, which are by far the
    most frequent, take a fast path.
    """
    return {name: _attribute(name, value) for name, value in (values or {}).items()}


def _attribute(name: str, value: Any) -> ir.Attr:
    if type(value) is int:
        return _integer(name, value)
    if type(value) in (list, tuple) and value and {type(v) for v in value} == {int}:
        return _integers(name, tuple(value))
    return ir.convenience.convert_attribute(name, value)


@functools.lru_cache(maxsize=1024)
def _integer(name: str, value: int) -> ir.Attr:
    """A cached integer attribute."""
    return ir.AttrInt64(name, value)


@functools.lru_cache(maxsize=1024)
def _integers(name: str, value: tuple[int, ...]) -> ir.Attr:
    """A cached attribute of integers. Attributes are immutable, and few are distinct."""
    return ir.AttrInt64s(name, value)


def bypass(node: ir.Node, *, index: int = 0) -> bool:
    """Remove a node whose first result equals operand `index`. Return whether it was removed.

    Use it also if the readers of the result now do what the node does. The node remains if its
    result is requantised to other scales than the operand, or is a model output whose name the
    operand cannot take.
    """
    x, y = node.inputs[index], node.outputs[0]
    assert x is not None
    x_quant, y_quant = quant_of(x), quant_of(y)
    moves = y_quant is not None and y_quant != x_quant
    if moves and (x_quant is not None or sole_reader(x) is not node or x.const_value is not None):
        return False
    if y.is_graph_output() and not _can_become_output(x):
        return False
    if y_quant is not None and META_KEY not in x.meta:
        x.meta[META_KEY] = y_quant
    # A Pad changes the bytes, so that the tensor of the QDQ model does not match.
    same_size = math.prod(static_shape(x) or ()) == math.prod(static_shape(y) or ())
    if same_size and TENSOR_KEY in y.meta and TENSOR_KEY not in x.meta:
        x.meta[TENSOR_KEY] = y.meta[TENSOR_KEY]
    producer = x.producer()
    if producer is not None:
        merge_sources(producer, [node])
    replace_value(y, x)
    detach(node)
    return True


def replace_value(old: ir.Value, new: ir.Value) -> None:
    """Make all readers of `old`, and model outputs, use `new`. It takes the name of an output."""
    if old.is_graph_output():
        name = old.name
        old.name = None
        new.name = name
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)


def detach(node: ir.Node) -> None:
    """Remove a node whose results have no reader."""
    assert node.graph is not None
    node.graph.remove(node, safe=True)


def drop_unread(value: ir.Value | None) -> None:
    """Remove the producer of a value without readers, so that it is no reader of its operands."""
    node = None if value is None else value.producer()
    if value is not None and node is not None and not value.uses() and not value.is_graph_output():
        detach(node)


def merge_sources(node: ir.Node, others: Iterable[ir.Node]) -> None:
    """Add the origins of other nodes to those of `node`."""
    names = [s for n in (node, *others) for s in sources_of(n)]
    if names:
        node.metadata_props[SOURCE_KEY] = ",".join(dict.fromkeys(names))


def sources_of(node: ir.Node) -> list[str]:
    """Origins of a node: names of the user's nodes that it represents."""
    text = node.metadata_props.get(SOURCE_KEY, "")
    return text.split(",") if text else []


def _can_become_output(value: ir.Value) -> bool:
    return not (value.is_graph_input() or value.is_graph_output() or value.is_initializer())
