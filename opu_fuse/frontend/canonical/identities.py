"""Remove identity operators.

These are Identity, inference-time Dropout, Sum and Concat of one operand, Cast to the same type,
Pad by zero, reductions over no axis or over axes of size 1, sums with zeros (Python's `sum` begins
with one) and products with ones.
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.pools import reduced_axes
from opu_fuse.frontend.editing import (
    bypass,
    constant,
    is_standard,
    operand,
    quant_of,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.operator_sets import COMMUTATIVE

_WRAPPERS = ("Sum", "Concat", "Max", "Min", "Mean")
_REDUCTIONS = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
"""Neutral constant: either operand of Add and Mul, the second one of Sub and Div."""


def run(model: ir.Model) -> bool:
    """Returns whether a node was removed."""
    suspects = standard_nodes(
        model.graph, "Identity", "Dropout", "Cast", "Pad", *_WRAPPERS, *_REDUCTIONS
    )
    changed = [bypass(node) for node in suspects if _changes_nothing(node)]
    sums = standard_nodes(model.graph, *_NEUTRAL)
    changed += [bypass(node, index=i) for node in sums if (i := _unchanged(node)) is not None]
    return any(changed)


def _changes_nothing(node: ir.Node) -> bool:
    if is_standard(node, "Identity"):
        return True
    if is_standard(node, "Dropout"):
        training = operand(node, 2)
        is_inference = training is None or ((c := constant(training)) is not None and not np.any(c))
        return is_inference and not any(
            out.uses() or out.is_graph_output() for out in node.outputs[1:]
        )
    if is_standard(node, *_WRAPPERS):
        return len(node.inputs) == 1
    if is_standard(node, "Cast"):
        x = node.inputs[0]
        return x is not None and x.dtype is not None and x.dtype == node.outputs[0].dtype
    if is_standard(node, *_REDUCTIONS):
        axes, source = reduced_axes(node), static_shape(node.inputs[0])
        return axes is not None and source is not None and source == static_shape(node.outputs[0])
    if is_standard(node, "Pad"):
        pads = constant(operand(node, 1))
        return pads is not None and not np.any(pads)
    return False


def _unchanged(node: ir.Node) -> int | None:
    """Index of the operand that an arithmetic node returns unchanged; None if there is none."""
    for i in (0, 1) if node.op_type in COMMUTATIVE else (0,):
        operand_value, other = node.inputs[i], node.inputs[1 - i]
        data = constant(other)
        if operand_value is None or other is None or data is None or quant_of(other) is not None:
            continue
        same_shape = static_shape(operand_value) == static_shape(node.outputs[0])
        if same_shape and np.all(data == _NEUTRAL[node.op_type]):
            return i
    return None
