"""An Einsum becomes the operators that it spells.

1. One operand: a Transpose, or a ReduceSum.
2. Products of what lies at the same place: Mul, of an operand that lacks axes behind a Reshape.
3. A sum over axes of a computed value and a constant: Conv of one pixel where the axis is that of
   channels; else MatMul of its last axis, between Transposes and Reshapes. Weights may be behind a
   DequantizeLinear.

An ellipsis stands for axes of the computed operand. Products of two computed values that sum up,
and labels that are given twice in one operand, stay.
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

_SPARE = "".join(map(chr, range(0x3B1, 0x3B1 + 16)))
"""Labels of axes that an ellipsis stands for."""
_MAPS = (3, 4)
"""Ranks of values with channels in their second axis: lines and images."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_einsum(model.graph, node) for node in standard_nodes(model.graph, "Einsum")]
    return any(changed)


def _einsum(graph: ir.Graph, node: ir.Node) -> bool:
    inputs = [v for v in node.inputs if v is not None]
    shapes = [static_shape(v) for v in inputs]
    if len(inputs) > 2 or any(s is None or 0 in s for s in shapes):
        return False
    if any(v.dtype is not ir.DataType.FLOAT or quant_of(v) is not None for v in inputs):
        return False  # in integers its weights would have to be
    terms = _terms(node.attributes.get_string("equation", ""), [len(s) for s in shapes if s])
    if terms is None or any(len({*term}) < len(term) for term in terms):
        return False
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
    made = value.producer()
    pair = made is not None and is_dequantize(made) and constant(made.inputs[0]) is not None
    return constant(value) is not None or pair


def _terms(equation: str, ranks: Sequence[int]) -> list[str] | None:
    """Labels of every operand and of the result; None for what is none of ours."""
    given, arrow, result = equation.replace(" ", "").partition("->")
    operands = given.split(",")
    if len(operands) != len(ranks):
        return None
    spread = [rank - len(t.replace("...", "")) for t, rank in zip(operands, ranks, strict=True)]
    hidden = max((n for t, n in zip(operands, spread, strict=True) if "..." in t), default=0)
    if not arrow:
        letters = given.replace(",", "").replace("...", "")
        single = sorted(label for label in {*letters} if letters.count(label) == 1)
        result = ("..." if "..." in given else "") + "".join(single)
    if min(spread) < 0 or hidden > len(_SPARE):
        return None
    terms = []
    for term, count in zip((*operands, result), (*spread, hidden), strict=True):
        if "..." not in term and count and term is not result:
            return None
        terms.append(term.replace("...", _SPARE[hidden - count : hidden]))
    return terms if "." not in "".join(terms) else None


def _of_one(graph: ir.Graph, node: ir.Node, labels: str, result: str) -> bool:
    """Case 1."""
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
    """Case 2, where axes stand in one order."""
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
    """Case 3. values: computed, constant."""
    (x, w), (labels, of_weight) = values, terms
    sizes = dict(zip(of_weight, static_shape(w) or (), strict=True))
    summed = [n for n in labels if n in of_weight and n not in result]
    kept, new = [n for n in labels if n not in summed], [n for n in result if n in of_weight]
    if not summed or {*summed, *new} != {*of_weight} or {*kept} & {*of_weight}:
        return False
    if {*kept, *new} != {*result} or any(n in new for n in labels):
        return False
    maps = len(labels) in _MAPS and summed == [labels[1]] and len(new) == 1
    if maps and result == labels.replace(summed[0], new[0]):
        order, ones = [*new, *summed], [1] * (len(labels) - 2)
        taps = [sizes[n] for n in order] + ones
        weight = _turn(node, w, of_weight, order, "filters")
        weight = _reshape(graph, node, weight, taps, f"{node.name}/taps")
        rewrite(node, "Conv", [x, weight])  # `convolutions` spells out the rest
        return True
    _matmul(graph, node, (x, w), (labels, of_weight), (kept, summed, new), result)
    return True


def _matmul(
    graph: ir.Graph,
    node: ir.Node,
    values: Sequence[ir.Value],
    terms: Sequence[str],
    groups: Sequence[Sequence[str]],
    result: str,
) -> None:
    (x, w), (labels, of_weight), (kept, summed, new) = values, terms, groups
    sizes = {
        label: size
        for term, value in zip(terms, values, strict=True)
        for label, size in zip(term, static_shape(value) or (), strict=True)
    }
    width, depth = (math.prod(sizes[n] for n in group) for group in (summed, new))
    rows = [sizes[n] for n in kept]
    x = _turn(node, x, labels, [*kept, *summed], "rows")
    x = _reshape(graph, node, x, [*rows, width], f"{node.name}/row")
    weight = _turn(node, w, of_weight, [*summed, *new], "columns")
    weight = _reshape(graph, node, weight, [width, depth], f"{node.name}/matrix")
    given, y = [*kept, *new], node.outputs[0]
    if given != [*result]:
        perm = {"perm": [given.index(n) for n in result]}
        shape = [sizes[n] for n in given]
        insert_after(node, y, "Transpose", (), perm, name=f"{node.name}/turned", shape=shape)
        y = node.outputs[0]
    if len(new) != 1:
        shape = add_constant(graph, f"{node.name}/shape", np.array([sizes[n] for n in given]))
        name = f"{node.name}/axes"
        insert_after(node, y, "Reshape", (shape,), name=name, shape=[*rows, depth])
    rewrite(node, "MatMul", [x, weight])


def _turn(node: ir.Node, value: ir.Value, labels: str, order: Sequence[str], name: str) -> ir.Value:
    if [*labels] == [*order]:
        return value
    perm, shape = [labels.index(n) for n in order], static_shape(value) or ()
    if (data := constant(value)) is not None and node.graph is not None:
        turned = np.ascontiguousarray(data.transpose(perm))
        return add_constant(node.graph, f"{value.name}/{name}", turned)
    size = [shape[axis] for axis in perm]
    name = f"{node.name}/{name}"
    return insert_before(node, "Transpose", [value], {"perm": perm}, name=name, shape=size)


def _reshape(
    graph: ir.Graph, node: ir.Node, value: ir.Value, shape: Sequence[int], name: str
) -> ir.Value:
    if static_shape(value) == (*shape,):
        return value
    if (data := constant(value)) is not None:
        return add_constant(graph, name, data.reshape(shape))
    size = add_constant(graph, f"{name}_shape", np.array(shape, np.int64))
    return insert_before(node, "Reshape", [value, size], name=name, shape=shape)
