"""A channel permutation of a byte image, cut and joined by a Concat, becomes one Gather.

Models trained on BGR images split their input into channels and join them in reverse. An input port
permutes channels as it applies its lookup table (`model/preprocessing.py`).
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    is_standard,
    merge_sources,
    operand,
    quant_of,
    rewrite,
    sole_reader,
    static_shape,
)
from opu_fuse.model.known_values import slice_ranges
from opu_fuse.model.operator_sets import SELECTS
from opu_fuse.model.preprocessing import after_bytes


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_join(model.graph, value) for value in after_bytes(model.graph)]
    return any(changed)


def _join(graph: ir.Graph, whole: ir.Value) -> bool:
    """Replace the nodes that cut `whole` and the Concat of all parts by one Gather."""
    cutters = list(dict.fromkeys(use.node for use in whole.uses()))
    shape = static_shape(whole)
    if shape is None or not all(is_standard(n, *SELECTS) and n.inputs[0] is whole for n in cutters):
        return False
    parts = [part for node in cutters for part in node.outputs]
    readers = {sole_reader(part) for part in parts}
    join = readers.pop() if len(readers) == 1 else None
    if join is None or not is_standard(join, "Concat") or set(join.inputs) != set(parts):
        return False
    axis = join.attributes.get_int("axis", 0) % len(shape)
    order: list[int] = []
    for part in join.inputs:
        indices_of_part = None if part is None else _indices(part, shape, axis)
        if indices_of_part is None or quant_of(part) not in {None, quant_of(whole)}:  # type: ignore[arg-type]  # None has no indices
            return False
        order += indices_of_part
    merge_sources(join, cutters)
    indices = add_constant(graph, f"{join.name}/order", np.array(order, np.int64))
    rewrite(join, "Gather", [whole, indices], {"axis": axis})
    for node in cutters:
        graph.remove(node, safe=True)
    return True


def _indices(part: ir.Value, shape: tuple[int, ...], axis: int) -> list[int] | None:
    """Indices of a part along `axis` of the whole; None if it is cut along another axis."""
    node, own = part.producer(), static_shape(part)
    if node is None or own is None or len(own) != len(shape):
        return None
    if node.op_type == "Slice":
        ranges = slice_ranges(node)
        only_this_axis = ranges is not None and all(
            axis_range == range(size)
            for i, (axis_range, size) in enumerate(zip(ranges, shape, strict=True))
            if i != axis
        )
        return [*ranges[axis]] if only_this_axis and ranges is not None else None
    if node.attributes.get_int("axis", 0) % len(shape) != axis:
        return None
    if node.op_type == "Gather":
        indices = constant(operand(node, 1))
        return None if indices is None else (indices % shape[axis]).tolist()
    ends = np.cumsum([0, *((static_shape(v) or shape)[axis] for v in node.outputs)])
    first_index = ends[part.index() or 0]
    return [*range(first_index, first_index + own[axis])]
