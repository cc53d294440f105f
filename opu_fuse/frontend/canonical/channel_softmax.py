"""A Softmax of the channels of tokens or of a channels-last map becomes one of channels first.

Only for machines that have a module for it: the host computes any axis.
"""

import onnx_ir as ir

from opu_fuse.frontend.canonical.token_images import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    is_image,
    map_of,
    reshape_after,
)
from opu_fuse.frontend.editing import (
    insert_after,
    is_standard,
    move_before,
    standard_nodes,
    static_shape,
)


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = False
    for node in standard_nodes(model.graph, "Softmax"):
        x = node.inputs[0]
        shape = static_shape(x)
        last = node.attributes.get_int("axis", -1)
        if x is None or shape is None or last % len(shape) != len(shape) - 1:
            continue
        image = x if is_image(x) else map_of(x)
        if image is None or not _is_turned(image.producer()):
            continue
        if image is not x:
            reshape_after(model.graph, node, image)
        _turn(node, image)
        changed = True
    return changed


def _is_turned(node: ir.Node | None) -> bool:
    """Whether a node makes a channels-last map of one that has channels first."""
    order = () if node is None else tuple(node.attributes.get_ints("perm", ()))
    return node is not None and is_standard(node, "Transpose") and order == CHANNELS_LAST


def _turn(node: ir.Node, image: ir.Value) -> None:
    shape = static_shape(image)
    assert shape is not None
    first = [shape[axis] for axis in CHANNELS_FIRST]
    perm = {"perm": CHANNELS_FIRST}
    turned = move_before(
        node, "Transpose", [image], perm, name=f"{node.name}/channels", shape=first
    )
    node.replace_input_with(0, turned)
    node.attributes["axis"] = ir.AttrInt64("axis", 1)
    perm, name = {"perm": CHANNELS_LAST}, f"{node.name}/last"
    insert_after(node, node.outputs[0], "Transpose", (), perm, name=name, shape=first)
