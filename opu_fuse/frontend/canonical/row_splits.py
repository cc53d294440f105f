"""Splits of computed images along rows or columns become Slices, which machines may run as crops.

`slices.py` makes such Splits where it takes the rows of a channels-last map for channels. The
rewrite makes several operators of one, so only strategies that ask for it run it (`REWRITES`).
"""

from itertools import pairwise

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.space_depth_as_conv import is_computed
from opu_fuse.frontend.editing import (
    add_constant,
    detach,
    merge_sources,
    replace_value,
    standard_nodes,
    static_shape,
)

_ROWS = 2
"""The first axis of pixels."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = False
    for node in standard_nodes(model.graph, "Split"):
        x, axis = node.inputs[0], node.attributes.get_int("axis", 0)
        shape = static_shape(x)
        if x is None or shape is None or len(shape) != 4 or axis % 4 < _ROWS:
            continue
        sizes = [static_shape(part) for part in node.outputs]
        if not is_computed(x) or any(size is None for size in sizes):
            continue
        ends = np.cumsum([0, *(size[axis % 4] for size in sizes if size is not None)])
        for n, (part, bounds) in enumerate(zip(node.outputs, pairwise(ends), strict=True)):
            name = f"{node.name}/{n}"
            operands = [
                add_constant(model.graph, f"{name}/{what}", np.array([number]))
                for what, number in zip(("start", "end", "axis"), (*bounds, axis % 4), strict=True)
            ]
            cut = ir.Node("", "Slice", [x, *operands], num_outputs=1, name=name)
            merge_sources(cut, [node])
            model.graph.insert_before(node, cut)
            (result,) = cut.outputs
            result.type, result.shape, result.name = part.type, part.shape, part.name
            result.meta.update(part.meta)
            replace_value(part, result)
        detach(node)
        changed = True
    return changed
