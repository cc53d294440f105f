"""Sums and products with an operand that broadcasts along channels, or along rows or columns.

A machine reads the second operand of a sum or a product as a map of the same shape, or as one value
for each channel. Spatial attention multiplies a map by one channel, coordinate attention by a value
for each row and one for each column. An Expand repeats such an operand (`repeats`).

This rewrite replaces an operator of the user's graph, so only strategies that ask for it run it
(`REWRITES`).
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.space_depth_as_conv import is_computed
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    quant_of,
    standard_nodes,
    static_shape,
)
from opu_fuse.quant import REWRITE_KEY

_WHY = "an operand repeated: a machine reads one of the same shape, or a value for each channel"


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    nodes = standard_nodes(model.graph, "Add", "Mul", "Sub")
    changed = [_repeat_operands(model.graph, node) for node in nodes]
    return any(changed)


def _repeat_operands(graph: ir.Graph, node: ir.Node) -> bool:
    target = static_shape(node.outputs[0])
    if target is None or len(target) != 4 or target[0] != 1:
        return False
    changed = False
    for index, value in enumerate(node.inputs):
        shape = static_shape(value)
        if value is None or shape is None or len(shape) != 4 or constant(value) is not None:
            continue
        wanted = (*target[:2], 1, 1) if shape[2:] == (1, 1) else target
        if shape == wanted or not is_computed(value):
            continue
        name = f"{node.name}/operand{index}"
        size = add_constant(graph, f"{name}/shape", np.array(wanted, np.int64))
        quant = quant_of(value)
        repeated = insert_before(
            node, "Expand", [value, size], name=name, shape=wanted, quant=quant
        )
        node.replace_input_with(index, repeated)
        changed = True
    if changed:
        node.metadata_props[REWRITE_KEY] = _WHY
    return changed
