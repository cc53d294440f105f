"""Every pure change of view becomes one Reshape with a constant shape.

1. Flatten, Squeeze, Unsqueeze, Reshape, and a Transpose that only moves dimensions of size 1.
2. A Reshape that is the only reader of another one reads that one's operand, unless there is an
   image between them that both divide (`pixel_permutes`). So does a Reshape back to the operand's
   shape, even if there are other readers.
3. A Reshape to the shape of its operand is removed.
4. Reshapes of a model input to the same shape are merged: the input port performs them.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from operator import mul

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    bypass,
    constant,
    detach,
    is_standard,
    merge_sources,
    operand,
    quant_of,
    replace_value,
    rewrite,
    sole_reader,
    static_shape,
)
from opu_fuse.model.operator_sets import VIEWS
from opu_fuse.quant import META_KEY

_IMAGE = 4
"""Axes of an image, (1, c, h, w) or (1, h, w, c)."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = False
    for node in model.graph:
        if not is_view(node):
            continue
        changed |= _to_reshape(model.graph, node)  # Case 1
        changed |= _merge(node)  # Case 2
        if static_shape(node.inputs[0]) == static_shape(node.outputs[0]):  # Case 3
            changed |= bypass(node)
    for model_input in model.graph.inputs:
        changed |= _share(model.graph, model_input)  # Case 4
    return changed


def _share(graph: ir.Graph, model_input: ir.Value) -> bool:
    first: dict[tuple[int, ...] | None, ir.Node] = {}
    changed = False
    for node in [use.node for use in model_input.uses()]:
        if not is_view(node) or node.outputs[0].is_graph_output():
            continue
        shared = first.setdefault(static_shape(node.outputs[0]), node)
        if shared is node or quant_of(shared.outputs[0]) != quant_of(node.outputs[0]):
            continue
        merge_sources(shared, [node])
        replace_value(node.outputs[0], shared.outputs[0])
        detach(node)
        graph.remove(shared)
        graph.insert_before(graph[0], shared)  # before all that read either
        changed = True
    return changed


def is_view(node: ir.Node) -> bool:
    """Whether a node only changes the view: it moves no value, and the shapes are known.

    A shape that is computed at run time may differ from the declared one, so it does not count.
    """
    if not is_standard(node, "Transpose", *VIEWS) or not node.inputs:
        return False
    if any(v and constant(v) is None for v in node.inputs[1:]):
        return False
    source, target = static_shape(node.inputs[0]), static_shape(node.outputs[0])
    if source is None or target is None or 0 in source:
        return False
    if node.op_type == "Transpose":
        order = node.attributes.get_ints("perm", tuple(reversed(range(len(source)))))
        moved = [axis for axis in order if source[axis] != 1]
        return moved == sorted(moved)
    return True


def _to_reshape(graph: ir.Graph, node: ir.Node) -> bool:
    target = np.asarray(static_shape(node.outputs[0]), np.int64)
    written = constant(operand(node, 1))
    is_reshape = node.op_type == "Reshape" and not node.attributes.get_int("allowzero", 0)
    if is_reshape and written is not None and np.array_equal(written, target):
        return False
    shape = add_constant(graph, f"{node.name}/shape", target)
    rewrite(node, "Reshape", [node.inputs[0], shape])
    return True


def _merge(node: ir.Node) -> bool:
    middle = node.inputs[0]
    assert middle is not None
    first_view = middle.producer()
    if first_view is None or not is_standard(first_view, "Reshape"):
        return False
    source = first_view.inputs[0]
    assert source is not None
    middle_quant, result_quant = quant_of(middle), quant_of(node.outputs[0])
    if sole_reader(middle) is not node:
        restores = static_shape(source) == static_shape(node.outputs[0])
        if not restores or middle_quant not in {None, quant_of(source)}:
            return False
        node.replace_input_with(0, source)
        return True
    if middle_quant is not None and result_quant is not None and middle_quant != result_quant:
        return False
    if divided_image(static_shape(source), static_shape(node.outputs[0])) == static_shape(middle):
        return False
    if middle_quant is not None:
        node.outputs[0].meta[META_KEY] = middle_quant
    node.replace_input_with(0, source)
    merge_sources(node, [first_view])
    detach(first_view)
    return True


def divided_image(
    before: Sequence[int] | None, after: Sequence[int] | None
) -> tuple[int, ...] | None:
    """Shape of an image that two shapes divide, one sample with channels first or last; None unless
    one of them cuts the parts of the other. Which pixels are a row does not matter to them.
    """
    if before is None or after is None or min(len(before), len(after)) <= _IMAGE:
        return None
    ends = [{1, *accumulate(shape, mul)} for shape in (before, after)]
    if 0 in ends[0] or all(n % m == 0 for m, n in pairwise(sorted(ends[0] | ends[1]))):
        return None
    first, *middle, last = [n // m for m, n in pairwise(sorted(ends[0] & ends[1]))] or [1]
    return (1, first, prod(middle), last) if middle else None
