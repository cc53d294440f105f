"""An Einsum becomes the ordinary operators that it is equivalent to.

1. One operand: a Transpose or a ReduceSum.
2. Elementwise product: a Mul. An operand that lacks axes is reshaped first.
3. Contraction of a computed value and a constant: a 1x1 Conv if the contracted axis is the channel
   axis, else a MatMul over the last axis between Transposes and Reshapes. The constant may be
   dequantised.
4. Contraction of two computed values along one axis: a MatMul of their matrices.

An ellipsis denotes axes of the computed operand. Equations that repeat a label in one operand do
not change.
"""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_after,
    insert_before,
    quant_of,
    rewrite,
    standard_nodes,
    static_shape,
)
from opu_fuse.frontend.qdq import is_dequantize
from opu_fuse.model.products import has_turned_form, is_product

_SPARE = "".join(map(chr, range(0x3B1, 0x3B1 + 16)))
"""Labels assigned to the axes of an ellipsis."""
_MAPS = (3, 4)
"""Ranks of values with channels in their second axis: 1-D tensors and images."""
_SIDES = (True, False), (False, True)
"""Whether the first and the second operand has a label: those of rows, those of columns."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_einsum(model.graph, node) for node in standard_nodes(model.graph, "Einsum")]
    return any(changed)


def _einsum(graph: ir.Graph, node: ir.Node) -> bool:
    inputs = [v for v in node.inputs if v is not None]
    shapes = [static_shape(v) for v in inputs]
    if len(inputs) > 2 or any(s is None or 0 in s for s in shapes):
        return False
    if any(v.dtype is not ir.DataType.FLOAT for v in inputs):
        return False
    if has_turned_form(node) or is_product(node):
        return False
    terms = _terms(node.attributes.get_string("equation", ""), [len(s) for s in shapes if s])
    if terms is None or any(len({*term}) < len(term) for term in terms):
        return False
    if len(inputs) == 2 and _of_matrices(graph, node, inputs, terms[:2], terms[2]):
        return True
    if any(quant_of(v) is not None for v in inputs):
        return False  # an integer form would need quantised weights
    if len(inputs) == 1:
        return _of_one(graph, node, *terms)
    (a, b), (first, second, result) = inputs, terms
    if _is_constant(a):
        a, b, first, second = b, a, second, first
    if (
        {*result} == {*first} | {*second}
        and min(len(first), len(second))
        and ({*first} <= {*second} or {*second} <= {*first})
    ):
        return _product(graph, node, (a, b), (first, second), result)
    return _is_constant(b) and _weighted(graph, node, (a, b), (first, second), result)


def _is_constant(value: ir.Value) -> bool:
    producer = value.producer()
    dequantised = (
        producer is not None
        and is_dequantize(producer)
        and constant(producer.inputs[0]) is not None
    )
    return constant(value) is not None or dequantised


def _terms(equation: str, ranks: Sequence[int]) -> list[str] | None:
    """Labels of every operand and of the result; None for an unsupported equation."""
    left_side, arrow, result = equation.replace(" ", "").partition("->")
    operands = left_side.split(",")
    if len(operands) != len(ranks):
        return None
    ellipsis_ranks = [
        rank - len(t.replace("...", "")) for t, rank in zip(operands, ranks, strict=True)
    ]
    hidden = max(
        (n for t, n in zip(operands, ellipsis_ranks, strict=True) if "..." in t), default=0
    )
    if not arrow:
        labels = left_side.replace(",", "").replace("...", "")
        unrepeated = sorted(label for label in {*labels} if labels.count(label) == 1)
        result = ("..." if "..." in left_side else "") + "".join(unrepeated)
    if min(ellipsis_ranks) < 0 or hidden > len(_SPARE):
        return None
    terms = []
    for term, count in zip((*operands, result), (*ellipsis_ranks, hidden), strict=True):
        if "..." not in term and count and term is not result:
            return None
        terms.append(term.replace("...", _SPARE[hidden - count : hidden]))
    return terms if "." not in "".join(terms) else None


def _of_one(graph: ir.Graph, node: ir.Node, labels: str, result: str) -> bool:
    """Case 1, for an Einsum of one operand."""
    x = node.inputs[0]
    if {*labels} == {*result}:
        rewrite(node, "Transpose", [x], {"perm": [labels.index(n) for n in result]})
        return True
    if [n for n in labels if n in result] != [*result]:
        return False
    axes = np.array([axis for axis, n in enumerate(labels) if n not in result], np.int64)
    rewrite(node, "ReduceSum", [x, add_constant(graph, f"{node.name}/axes", axes)], {"keepdims": 0})
    return True


def _product(
    graph: ir.Graph,
    node: ir.Node,
    values: Sequence[ir.Value],
    terms: Sequence[str],
    result: str,
) -> bool:
    """Case 2, if the axes of both operands have the order of the result."""
    if any([n for n in result if n in term] != [*term] for term in terms):
        return False
    operands = []
    for number, (value, term) in enumerate(zip(values, terms, strict=True)):
        sizes = dict(zip(term, static_shape(value) or (), strict=True))
        shape = [sizes.get(n, 1) for n in result]
        name = f"{node.name}/operand{number}"
        operands.append(value if term == result else _reshape(graph, node, value, shape, name))
    rewrite(node, "Mul", operands)
    return True


def _weighted(
    graph: ir.Graph,
    node: ir.Node,
    values: Sequence[ir.Value],
    terms: Sequence[str],
    result: str,
) -> bool:
    """Case 3, as a 1x1 Conv or a MatMul. values: the computed and the constant operand."""
    (x, w), (labels, of_weight) = values, terms
    sizes = dict(zip(of_weight, static_shape(w) or (), strict=True))
    summed = [n for n in labels if n in of_weight and n not in result]
    free_labels, new_labels = (
        [n for n in labels if n not in summed],
        [n for n in result if n in of_weight],
    )
    if not summed or {*summed, *new_labels} != {*of_weight} or {*free_labels} & {*of_weight}:
        return False
    if {*free_labels, *new_labels} != {*result} or any(n in new_labels for n in labels):
        return False
    is_channel_axis = len(labels) in _MAPS and summed == [labels[1]] and len(new_labels) == 1
    if is_channel_axis and result == labels.replace(summed[0], new_labels[0]):
        order, ones = [*new_labels, *summed], [1] * (len(labels) - 2)
        taps = [sizes[n] for n in order] + ones
        weight = _transpose(node, w, of_weight, order, "filters")
        weight = _reshape(graph, node, weight, taps, f"{node.name}/taps")
        rewrite(node, "Conv", [x, weight])  # `convolutions` adds its attributes
        return True
    _matmul(graph, node, (x, w), (labels, of_weight), (free_labels, summed, new_labels), result)
    return True


def _matmul(
    graph: ir.Graph,
    node: ir.Node,
    values: Sequence[ir.Value],
    terms: Sequence[str],
    groups: Sequence[Sequence[str]],
    result: str,
) -> None:
    (x, w), (labels, of_weight), (free_labels, contracted, new_labels) = values, terms, groups
    sizes = {
        label: size
        for term, value in zip(terms, values, strict=True)
        for label, size in zip(term, static_shape(value) or (), strict=True)
    }
    width, depth = (math.prod(sizes[n] for n in group) for group in (contracted, new_labels))
    rows = [sizes[n] for n in free_labels]
    x = _transpose(node, x, labels, [*free_labels, *contracted], "rows")
    x = _reshape(graph, node, x, [*rows, width], f"{node.name}/row")
    weight = _transpose(node, w, of_weight, [*contracted, *new_labels], "columns")
    weight = _reshape(graph, node, weight, [width, depth], f"{node.name}/matrix")
    labels_of_result = [*free_labels, *new_labels]
    _transpose_after(node, labels_of_result, result)
    if len(new_labels) != 1:
        shape = add_constant(
            graph, f"{node.name}/shape", np.array([sizes[n] for n in labels_of_result])
        )
        name, y = f"{node.name}/axes", node.outputs[0]
        insert_after(node, y, "Reshape", (shape,), name=name, shape=[*rows, depth])
    rewrite(node, "MatMul", [x, weight])


def _of_matrices(
    graph: ir.Graph,
    node: ir.Node,
    values: Sequence[ir.Value],
    terms: Sequence[str],
    result: str,
) -> bool:
    """Case 4. An axis of one operand alone, other than its rows or columns, broadcasts the other
    one.
    """
    (a, b), (first, second) = values, terms
    summed = [n for n in first if n in second and n not in result]
    if any(map(_is_constant, values)) or len(summed) != 1:
        return False
    if {*first, *second} != {*result, *summed}:
        return False
    rows, columns = ([n for n in result if (n in first, n in second) == of] for of in _SIDES)
    if not rows or not columns or min(len(rows), len(columns)) > 1:
        return False
    if result.index(rows[-1]) > result.index(columns[-1]):
        a, b, first, second, rows, columns = b, a, second, first, columns, rows
    batch = [n for n in result if n not in {rows[-1], columns[-1]}]
    orders = [*batch, rows[-1], *summed], [*batch, *summed, columns[-1]]
    matrices = []
    for value, labels, order in zip((a, b), (first, second), orders, strict=True):
        own = [n for n in order if n in labels]
        matrix = _transpose(node, value, labels, own, f"matrix{len(matrices)}")
        extents = dict(zip(own, static_shape(matrix) or (), strict=True))
        shape = [extents.get(n, 1) for n in order]
        matrices.append(_reshape(graph, node, matrix, shape, f"{node.name}/batch{len(matrices)}"))
    _transpose_after(node, [*batch, rows[-1], columns[-1]], result)
    rewrite(node, "MatMul", matrices)
    return True


def _transpose_after(node: ir.Node, made: Sequence[str], result: str) -> None:
    """Let a Transpose follow where a node will make the axes in another order than the result."""
    if [*made] != [*result]:
        sizes = dict(zip(result, static_shape(node.outputs[0]) or (), strict=True))
        perm, shape = {"perm": [made.index(n) for n in result]}, [sizes[n] for n in made]
        name = f"{node.name}/turned"
        insert_after(node, node.outputs[0], "Transpose", (), perm, name=name, shape=shape)


def _transpose(
    node: ir.Node, value: ir.Value, labels: str, order: Sequence[str], name: str
) -> ir.Value:
    if [*labels] == [*order]:
        return value
    perm, shape = [labels.index(n) for n in order], static_shape(value) or ()
    if (data := constant(value)) is not None and node.graph is not None:
        transposed = np.ascontiguousarray(data.transpose(perm))
        return add_constant(node.graph, f"{value.name}/{name}", transposed)
    size = [shape[axis] for axis in perm]
    name = f"{node.name}/{name}"
    quant = quant_of(value)
    perms = {"perm": perm}
    return insert_before(node, "Transpose", [value], perms, name=name, shape=size, quant=quant)


def _reshape(
    graph: ir.Graph, node: ir.Node, value: ir.Value, shape: Sequence[int], name: str
) -> ir.Value:
    if static_shape(value) == (*shape,):
        return value
    if (data := constant(value)) is not None:
        return add_constant(graph, name, data.reshape(shape))
    size = add_constant(graph, f"{name}_shape", np.array(shape, np.int64))
    quant = quant_of(value)
    return insert_before(node, "Reshape", [value, size], name=name, shape=shape, quant=quant)
