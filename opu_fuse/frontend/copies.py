"""Copies of values that several concatenations want at different places.

A copy is a MaxPool over one element: machines do it on their way from memory to memory.
"""

from collections.abc import Iterable

import onnx_ir as ir

from opu_fuse.frontend.editing import insert_before, quant_of, static_shape
from opu_fuse.quant import META_KEY

ONE_ELEMENT = {
    "kernel_shape": [1, 1],
    "strides": [1, 1],
    "pads": [0, 0, 0, 0],
    "dilations": [1, 1],
}


def insert_copies(
    model: ir.Model, wanted: Iterable[tuple[str, int]]
) -> tuple[ir.Model, tuple[str, ...]]:
    """A model in canonical form whose Concat nodes read copies, and the copies' names.

    wanted: (node name, position of an operand with four dimensions). The model given stays.
    """
    changed = model.clone()
    nodes = {node.name: node for node in changed.graph}
    names = []
    for concat, position in wanted:
        node = nodes[concat]
        value, shape = node.inputs[position], static_shape(node.inputs[position])
        assert value is not None
        assert shape is not None
        names.append(f"{concat}/copy{position}")
        copy = insert_before(node, "MaxPool", [value], ONE_ELEMENT, name=names[-1], shape=shape)
        if (quant := quant_of(value)) is not None:
            copy.meta[META_KEY] = quant
        node.replace_input_with(position, copy)
    return changed, tuple(names)
