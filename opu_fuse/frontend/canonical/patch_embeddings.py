"""A Conv that reads each pixel of an input once becomes SpaceToDepth and a Conv of one pixel.

Vision transformers cut an image into patches this way, with a kernel as large as its stride. The
columns of a kernel row fill 48 of 64 lanes, with three channels in slots of four. A port packs
every value of an image anyway (`dfg/io_ports.py`), so it can put the pixels of a patch into
channels: 768 fill twelve words. The sums have the same products, so this is bit-exact.

This rewrite replaces an operator of the user's graph, so only strategies that ask for it run it
(`REWRITES`).
"""

import onnx_ir as ir

from opu_fuse.frontend.canonical.space_depth_as_conv import is_at_input
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    move_before,
    quant_of,
    rewrite,
    sole_reader,
    standard_nodes,
    static_shape,
)
from opu_fuse.quant import REWRITE_KEY

_WHY = "pixels of a patch put into channels as the input is packed"


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_pack(model.graph, node) for node in standard_nodes(model.graph, "Conv")]
    return any(changed)


def _pack(graph: ir.Graph, node: ir.Node) -> bool:
    x, w = node.inputs[:2]
    size, data = static_shape(x), constant(w)
    if x is None or w is None or size is None or data is None or data.ndim != 4:
        return False
    filters, channels, side, _ = data.shape
    given = node.attributes.get_ints
    strides, dilations = given("strides", (1, 1)), given("dilations", (1, 1))
    if side == 1 or not data.shape[2:] == tuple(strides) == (side, side):
        return False
    if any(given("pads", ())) or tuple(dilations) != (1, 1) or channels != size[1]:
        return False
    if any(n % side for n in size[2:]) or sole_reader(x) is not node or not is_at_input(x):
        return False
    patches = size[0], channels * side**2, *(n // side for n in size[2:])
    own = {"blocksize": side}
    packed = move_before(node, "SpaceToDepth", [x], own, name=f"{node.name}/patch", shape=patches)
    weights = data.transpose(0, 2, 3, 1).reshape(filters, -1, 1, 1)
    w = add_constant(graph, f"{w.name}/patch", weights, quant_of(w))
    rewrite(node, "Conv", [packed, w, *node.inputs[2:]], {"kernel_shape": [1, 1]})
    node.metadata_props[REWRITE_KEY] = _WHY
    return True
