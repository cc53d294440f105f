"""Normalisations and Softmaxes that exporters spell out become one operator each.

Exporters of opsets below 17 write a LayerNorm as its arithmetic, and channels-first networks as
that of axis 1. The host runs one operator faster than nine.

1. `(x - mean) / sqrt(var + epsilon)`, with or without a factor and an offset for each channel:
   LayerNormalization of the last axis. Mean and variance are ReduceMeans over the last axis; the
   square is a Pow or a product; the division may be a product with a Reciprocal or a Pow.
2. The same over axis 1 of images: between two Transposes.
3. `x / sqrt(mean(x²) + epsilon)`, with or without a factor for each channel: RMSNormalization of
   the last axis. It needs opset 23, to which models that spell it are converted
   (`onnx_checks.py`).
4. `x / |x|`, the Euclidean norm of the last axis or a small number if that is larger, which
   cosine attention has: RMSNormalization with the factor 1 / sqrt(n).
5. `exp(x - max) / sum(exp(x - max))` over one axis, with or without the maximum: Softmax.

A value between the nodes that anything else reads, or that is quantised, prevents it.
"""

from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_after,
    insert_before,
    is_standard,
    merge_sources,
    operand,
    rewrite,
    sole_reader,
    standard_nodes,
    static_shape,
)

_FIRST, _LAST = (0, 3, 1, 2), (0, 2, 3, 1)
_MOST_INNER = 12
"""Nodes of the longest spelling."""
_LEAST_LENGTH = 1e-4
"""Largest bound of a norm that says no more than that nothing is divided by zero."""
_TINY = float(np.finfo(np.float32).tiny)
RMS_OPSET = 23
"""The oldest that has RMSNormalization."""
_RMS_OPERATORS = frozenset({"SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"})
_OF_LENGTH = ("Expand", "Clip", "Max")
"""Operators between a Euclidean norm and the division by it, the last one first."""


def may_be_norms(model: ir.Model) -> bool:
    """Whether a model has operators that only these forms, or means of a whole map, need."""
    return any(is_standard(n, "Exp", "Pow", "ReduceL2", "Reciprocal", "Sqrt") for n in model.graph)


def spells_rms(graph: onnx.GraphProto) -> bool:
    """Whether a graph has the mean of the squares of what is not centred, or such operators."""
    producers = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        square = producers.get(node.input[0]) if node.op_type == "ReduceMean" else None
        if node.op_type in _RMS_OPERATORS:
            return True
        length = producers.get(node.input[1]) if node.op_type == "Div" else None
        for op_type in _OF_LENGTH:
            if length is not None and length.op_type == op_type:
                length = producers.get(length.input[0])
        if length is not None and length.op_type == "ReduceL2" and length.input[0] == node.input[0]:
            return True
        if square is None:
            continue
        base, is_product = producers.get(square.input[0]), square.op_type == "Mul"
        is_square = is_product and square.input[0] == square.input[1]
        if (is_square or square.op_type == "Pow") and (base is None or base.op_type != "Sub"):
            return True
    return False


def recognise(model: ir.Model) -> bool:
    """Recognise all, in place. Returns whether the graph changed."""
    changed = False
    for node in standard_nodes(model.graph, "Div", "Mul"):
        if node.graph is not None:
            changed |= _layer_norm(model.graph, node) or _softmax(model.graph, node)
    return changed


def _layer_norm(graph: ir.Graph, node: ir.Node) -> bool:
    found = _normalised(node)
    if found is None or node.outputs[0].dtype != ir.DataType.FLOAT:
        return False
    op_type, x, axis, epsilon, factor = found
    shape = static_shape(x)
    assert shape is not None
    count = shape[axis]
    last, scale = _with_constant(node, "Mul", count, len(shape) - 1 - axis)
    shift = None
    if op_type == "LayerNormalization":
        last, shift = _with_constant(last, "Add", count, len(shape) - 1 - axis)
    elif (graph.opset_imports.get("") or 0) < RMS_OPSET:
        return False
    inner = _inner(last, x)
    if inner is None:
        return False
    factors = np.float32(factor) * (np.ones(count, np.float32) if scale is None else scale)
    constants = [add_constant(graph, f"{last.name}/scale", factors)]
    if shift is not None:
        constants.append(add_constant(graph, f"{last.name}/shift", shift))
    merge_sources(last, inner)
    if axis != len(shape) - 1:  # Case 2
        perm, turned = {"perm": _LAST}, [shape[i] for i in _LAST]
        x = insert_before(last, "Transpose", [x], perm, name=f"{last.name}/last", shape=turned)
        perm = {"perm": _FIRST}
        name = f"{last.name}/first"
        insert_after(last, last.outputs[0], "Transpose", (), perm, name=name, shape=turned)
    rewrite(last, op_type, [x, *constants], {"axis": -1, "epsilon": epsilon})
    graph.remove(inner, safe=True)
    return True


def _normalised(node: ir.Node) -> tuple[str, ir.Value, int, float, float] | None:
    """Operator, operand, axis, epsilon and factor of a normalisation without factors and offsets of
    channels; None for others.
    """
    if (found := _unit_vectors(node)) is not None:
        return found
    for dividend, variance in _quotients(node):
        sum_, epsilon = _without_scalar(variance)
        source = _unary(sum_, "ReduceMean")
        square, of_squares = _square(source), _axis(sum_, source)
        if square is None or epsilon is None or of_squares is None:
            continue
        x, mean = _operands(dividend, "Sub") or (None, None)
        axis = _axis(mean, x)
        if (x is None or axis is None) and square is dividend:
            return "RMSNormalization", square, of_squares, epsilon, 1.0
        if x is None or axis is None or of_squares != axis:
            continue
        again = _operands(square, "Sub")
        if again is not None and again[0] is x and _axis(again[1], x) == axis:
            return "LayerNormalization", x, axis, epsilon, 1.0
    return None


def _unit_vectors(node: ir.Node) -> tuple[str, ir.Value, int, float, float] | None:
    """Case 4. The mean of the squares is the square of the norm / n; so is epsilon."""
    x, length = node.inputs[0], operand(node, 1)
    if x is None or not is_standard(node, "Div"):
        return None
    length = _unary(length, "Expand") or length
    bounded = None if length is None else length.producer()
    least = None
    if bounded is not None and is_standard(bounded, "Clip") and operand(bounded, 2) is None:
        length, least = bounded.inputs[0], _number(operand(bounded, 1))
    elif (found := _operands(length, "Max")) is not None:
        length, least = found[0], _number(found[1])
    axis, shape = _axis(length, x, "ReduceL2"), static_shape(x)
    if axis is None or shape is None or least is None or not 0.0 < least <= _LEAST_LENGTH:
        return None
    count = shape[axis]
    return "RMSNormalization", x, axis, max(least**2 / count, _TINY), count**-0.5


def _quotients(node: ir.Node) -> Iterator[tuple[ir.Value | None, ir.Value | None]]:
    """(dividend, square of the divisor) in all readings of a Div or Mul."""
    a, b = node.inputs[0], operand(node, 1)
    if is_standard(node, "Div"):
        yield a, _unary(b, "Sqrt")
        return
    for dividend, factor in ((a, b), (b, a)):
        yield dividend, _unary(_unary(factor, "Reciprocal"), "Sqrt")
        one, root = _operands(factor, "Div") or (None, None)
        if _number(one) == 1.0:
            yield dividend, _unary(root, "Sqrt")
        power, exponent = _operands(factor, "Pow") or (None, None)
        if _number(exponent) == -0.5:
            yield dividend, power


def _unary(value: ir.Value | None, op_type: str) -> ir.Value | None:
    node = None if value is None else value.producer()
    return node.inputs[0] if node is not None and is_standard(node, op_type) else None


def _operands(value: ir.Value | None, op_type: str) -> tuple[ir.Value, ir.Value] | None:
    node = None if value is None else value.producer()
    if node is None or not is_standard(node, op_type) or len(node.inputs) != 2:
        return None
    a, b = node.inputs
    return None if a is None or b is None else (a, b)


def _number(value: ir.Value | None) -> float | None:
    data = constant(value)
    return float(data.item()) if data is not None and data.size == 1 else None


def _without_scalar(value: ir.Value | None) -> tuple[ir.Value | None, float | None]:
    """The computed operand of a sum with a number, and the number."""
    a, b = _operands(value, "Add") or (None, None)
    return (a, number) if (number := _number(b)) is not None else (b, _number(a))


def _square(value: ir.Value | None) -> ir.Value | None:
    base, exponent = _operands(value, "Pow") or (None, None)
    if _number(exponent) == 2.0:
        return base
    a, b = _operands(value, "Mul") or (None, None)
    return a if a is b else None


def _axis(
    value: ir.Value | None, source: ir.Value | None, op_type: str = "ReduceMean"
) -> int | None:
    """The axis of a reduction of `source` that is the last one, or 1 of an image."""
    node, shape = None if value is None else value.producer(), static_shape(source)
    if node is None or not shape or not is_standard(node, op_type) or node.inputs[0] is not source:
        return None
    written = operand(node, 1)
    axes = node.attributes.get_ints("axes", ()) if written is None else constant(written)
    if axes is None or len(axes) != 1 or not node.attributes.get_int("keepdims", 1):
        return None
    axis = int(axes[0]) % len(shape)
    return axis if axis == len(shape) - 1 or (axis, len(shape)) == (1, 4) else None


def _with_constant(
    node: ir.Node, op_type: str, count: int, after: int
) -> tuple[ir.Node, np.ndarray | None]:
    """The only reader of a node's result if it is a sum or product with a constant vector.

    Returns that node and the vector [count], else the node itself and None. after: axes of size 1
    after the vector's.
    """
    reader = sole_reader(node.outputs[0])
    if reader is None or not is_standard(reader, op_type):
        return node, None
    data = next((d for v in reader.inputs if (d := constant(v)) is not None), None)
    if data is None or data.dtype != np.float32:
        return node, None
    if static_shape(reader.outputs[0]) != static_shape(node.outputs[0]):
        return node, None
    full = data.reshape((1,) * (1 + after - data.ndim) + data.shape)
    place = full.ndim - 1 - after
    if full.size != full.shape[place] or full.size not in {1, count}:
        return node, None
    return reader, np.ascontiguousarray(np.broadcast_to(full.reshape(-1), count))


def _inner(last: ir.Node, x: ir.Value) -> list[ir.Node] | None:
    """The nodes between `x` and a last node, in an order that depends on the graph alone.

    None if anything else reads one of their values.
    """
    nodes, stack = {last: None}, [last]
    while stack and len(nodes) <= _MOST_INNER:
        for value in stack.pop().inputs:
            producer = None if value is None or value is x else value.producer()
            if producer is not None and producer not in nodes:
                nodes[producer] = None
                stack.append(producer)
    inner = [n for n in nodes if n is not last]
    values = [v for n in inner for v in n.outputs]
    alone = all(use.node in nodes and not v.is_graph_output() for v in values for use in v.uses())
    return inner if alone and not stack else None


def _softmax(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 5."""
    if not is_standard(node, "Div"):
        return False
    exponential, total = node.inputs
    axis = _axis(total, exponential, "ReduceSum")
    exponent = _unary(exponential, "Exp")
    if axis is None or exponent is None:
        return False
    x, largest = _operands(exponent, "Sub") or (exponent, None)
    if largest is not None and _axis(largest, x, "ReduceMax") != axis:
        x = exponent
    inner = _inner(node, x)
    if inner is None:
        return False
    merge_sources(node, inner)
    rewrite(node, "Softmax", [x], {"axis": axis})
    graph.remove(inner, safe=True)
    return True
