"""MaxPool(Concat(a, b, …)) -> Concat(MaxPool(a), MaxPool(b), …), along channels.

If the operands have no other readers, each pool can fuse with the producer of its branch, so the
larger map is never stored. A maximum commutes with requantisation. This rewrite replaces an
operator of the user's graph, so only strategies that ask for it run it (`REWRITES`).
"""

import onnx_ir as ir

from opu_fuse.frontend.editing import (
    detach,
    is_standard,
    merge_sources,
    move_before,
    quant_of,
    rewrite,
    sole_reader,
    standard_nodes,
    static_shape,
)
from opu_fuse.quant import REWRITE_KEY


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    pools = [n for n in standard_nodes(model.graph, "MaxPool") if len(n.outputs) == 1]
    changed = [_pool(node) for node in pools]
    return any(changed)


def _pool(node: ir.Node) -> bool:
    joined, size = node.inputs[0], static_shape(node.outputs[0])
    concat = None if joined is None else joined.producer()
    if joined is None or size is None or concat is None or not _joins_channels(concat):
        return False
    if sole_reader(joined) is not node or quant_of(joined) != quant_of(node.outputs[0]):
        return False
    branches = [x for x in concat.inputs if x is not None and x.producer() is not None]
    channels = [shape[1] for x in branches if (shape := static_shape(x))]
    if len(channels) < len(concat.inputs) or any(sole_reader(x) is not concat for x in branches):
        return False
    attributes = {name: value.value for name, value in node.attributes.items()}
    pooled = []
    for i, branch in enumerate(branches):
        new_shape = (size[0], channels[i], *size[2:])
        name = f"{node.name}/{i}"
        pool = move_before(node, "MaxPool", [branch], attributes, name=name, shape=new_shape)
        pooled.append(pool)
    merge_sources(node, [concat])
    rewrite(node, "Concat", pooled, {"axis": 1})
    node.metadata_props[REWRITE_KEY] = (
        f"moved into the branches of {concat.name}: each part can join the operator that makes "
        "its branch"
    )
    detach(concat)
    return True


def _joins_channels(node: ir.Node) -> bool:
    return is_standard(node, "Concat") and node.attributes.get_int("axis") in {1, -3}
