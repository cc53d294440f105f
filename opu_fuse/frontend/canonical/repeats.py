"""Tile and Expand of an image, as far as machines can repeat values.

1. Repeated channels: a Gather of channels, which the array computes.
2. A repeated single row or column: a nearest Resize.

Tiling several rows or columns remains on the host: a machine writes the copies of a pixel next to
each other.
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    operand,
    quant_of,
    rewrite,
    standard_nodes,
    static_shape,
)

_NEAREST = {
    "mode": "nearest",
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
}


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    nodes = standard_nodes(model.graph, "Tile", "Expand")
    changed = [_repeat(model.graph, node) for node in nodes]
    return any(changed)


def _repeat(graph: ir.Graph, node: ir.Node) -> bool:
    x, source, target = node.inputs[0], *map(static_shape, (node.inputs[0], node.outputs[0]))
    if x is None or source is None or target is None or len(target) != 4 or 0 in target:
        return False
    if constant(operand(node, 1)) is None or constant(x) is not None or len(source) != 4:
        return False
    if source == target:
        rewrite(node, "Identity", [x])
        return True
    times = [t // s for s, t in zip(source, target, strict=True)]
    no_tiling = all(n == 1 or k == 1 for n, k in zip(source[2:], times[2:], strict=True))
    y_quant = quant_of(node.outputs[0])
    if source[0] != 1 or times[0] != 1 or not no_tiling or x.dtype is not ir.DataType.FLOAT:
        return False
    if y_quant not in {None, quant_of(x)}:
        return False
    repeats_both = times[1] > 1 and max(times[2:]) > 1
    order = np.tile(np.arange(source[1], dtype=np.int64), times[1])
    scales = np.array([1, 1, *times[2:]], np.float32)
    if repeats_both:  # channels first, while there are fewer pixels
        indices = add_constant(graph, f"{node.name}/order", order)
        name, shape = f"{node.name}/channels", (1, target[1], *source[2:])
        x = insert_before(
            node, "Gather", [x, indices], {"axis": 1}, name=name, shape=shape, quant=y_quant
        )
    if max(times[2:]) > 1:
        factors = add_constant(graph, f"{node.name}/scales", scales)
        rewrite(node, "Resize", [x, None, factors], _NEAREST)
    else:
        indices = add_constant(graph, f"{node.name}/order", order)
        rewrite(node, "Gather", [x, indices], {"axis": 1})
    return True
