"""Unfolding an image into patches that do not overlap, and folding them, become Reshape, Transpose.

PyTorch's exporter writes `unfold` as Gathers of rows and of columns by matrices of indices, and
`fold` as Col2Im. Patches next to each other only move pixels (`pixel_permutes`).

1. Gather along an axis, whose indices count the elements of each patch first: patches are an axis,
   which moves behind the elements.
2. Col2Im with strides of the block's size, no pads and no dilations.
3. DepthToSpace (CRD) of channels that a Reshape joined from those of a map (1, c, b·b, n), whose
   rows are the elements of patches.
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    is_standard,
    move_before,
    operand,
    quant_of,
    reshape_before,
    rewrite,
    standard_nodes,
    static_shape,
)


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = False
    for node in standard_nodes(model.graph, "Col2Im", "DepthToSpace", "Gather"):
        x = operand(node, 0)
        if x is not None and static_shape(x) and quant_of(x) == quant_of(node.outputs[0]):
            changed |= _CASES[node.op_type](node, x)
    return changed


def _unfold(node: ir.Node, x: ir.Value) -> bool:
    """Case 1."""
    shape, indices = static_shape(x), constant(operand(node, 1))
    assert shape is not None
    axis = node.attributes.get_int("axis", 0) % len(shape)
    if indices is None or indices.ndim != 2 or indices.size != shape[axis]:
        return False
    if not np.array_equal(indices.T.reshape(-1), np.arange(shape[axis])):
        return False
    size, count = indices.shape
    patches = (*shape[:axis], count, size, *shape[axis + 1 :])
    value = reshape_before(node, x, patches, name=f"{node.name}/patches")
    perm = [*range(len(patches))]
    perm[axis : axis + 2] = axis + 1, axis
    rewrite(node, "Transpose", [value], {"perm": perm})
    return True


def _fold(node: ir.Node, x: ir.Value) -> bool:
    """Case 2."""
    shape, image, block = static_shape(x), constant(operand(node, 1)), constant(operand(node, 2))
    ints = node.attributes.get_ints
    if shape is None or image is None or block is None or image.size != 2 or block.size != 2:
        return False
    (rows, cols), (high, wide) = image.tolist(), block.tolist()
    together = (*ints("strides", (1, 1)),) == (high, wide)
    plain = not any(ints("pads", ())) and {*ints("dilations", (1, 1))} == {1}
    if not together or not plain or rows % high or cols % wide:
        return False
    channels = shape[1] // (high * wide)
    _patches_to_pixels(node, x, (shape[0], channels, high, wide, rows // high, cols // wide))
    return True


def _shuffle(node: ir.Node, x: ir.Value) -> bool:
    """Case 3."""
    view, shape, size = x.producer(), static_shape(x), static_shape(node.outputs[0])
    block = node.attributes.get_int("blocksize", 0)
    if view is None or shape is None or size is None or not is_standard(view, "Reshape"):
        return False
    source, (batch, _, rows, cols) = view.inputs[0], shape
    if source is None or quant_of(source) != quant_of(x):
        return False
    if static_shape(source) != (batch, size[1], block * block, rows * cols):
        return False
    if node.attributes.get_string("mode", "DCR") != "CRD":
        return False
    _patches_to_pixels(node, source, (batch, size[1], block, block, rows, cols))
    return True


def _patches_to_pixels(node: ir.Node, x: ir.Value, split: tuple[int, ...]) -> None:
    """Let a node put patches together. split: images, channels, rows and columns in a patch, and of
    patches.
    """
    batch, channels, high, wide, rows, cols = split
    value = reshape_before(node, x, split, name=f"{node.name}/patches")
    perm = (0, 1, 4, 2, 5, 3)
    turned = move_before(
        *(node, "Transpose", [value], {"perm": perm}),
        name=f"{node.name}/pixels",
        shape=[split[axis] for axis in perm],
    )
    assert node.graph is not None
    size = np.array((batch, channels, rows * high, cols * wide))
    rewrite(node, "Reshape", [turned, add_constant(node.graph, f"{node.name}/size", size)])


_CASES = {"Col2Im": _fold, "DepthToSpace": _shuffle, "Gather": _unfold}
