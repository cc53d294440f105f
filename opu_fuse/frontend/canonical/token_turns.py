"""A Transpose of tokens and channels becomes a turn of their map (`model/products.py`).

A layer that mixes tokens (MLP-Mixer, gMLP, ResMLP) reads and writes them as channels. Exporters
transpose (1, n, c) before and after it. Where both sides are maps, these are a Reshape of a map
(1, c, h, w) and a Transpose to (1, n, 1, c), n = h·w, which the array computes if layers read it.

Runs on the canonical form: before, a Reshape and a Transpose may yet cancel others.
"""

import math

import onnx_ir as ir

from opu_fuse.frontend.canonical.norms import is_of_norm
from opu_fuse.frontend.editing import (
    drop_unread,
    is_standard,
    quant_of,
    reshape_before,
    rewrite,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.products import TURN


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_turn(node) for node in standard_nodes(model.graph, "Transpose")]
    return any(changed)


def _turn(node: ir.Node) -> bool:
    x, result = node.inputs[0], node.outputs[0]
    order = node.attributes.get_ints("perm", ())
    reshape = None if x is None else x.producer()
    if x is None or reshape is None or not is_standard(reshape, "Reshape") or is_of_norm(node):
        return False
    source = reshape.inputs[0]
    shapes = [static_shape(v) for v in (source, x, result)]
    if (
        source is None
        or None in shapes
        or {quant_of(x), quant_of(result)} - {None, quant_of(source)}
    ):
        return False
    size, middle, target = [s or () for s in shapes]
    if len(size) != 4 or size[0] != 1 or len(target) != 4:
        return False
    channels, pixels = size[1], math.prod(size[2:])
    matrix = [axis for axis, n in enumerate(middle) if n != 1]
    swapped = [axis for axis in order if axis in matrix] == matrix[::-1]
    if not swapped or [middle[axis] for axis in matrix] != [channels, pixels]:
        return False
    if target != (1, pixels, 1, channels):
        return False
    row = source
    if size[2] != 1:
        row = reshape_before(node, source, (1, channels, 1, pixels), name=f"{node.name}/row")
    rewrite(node, "Transpose", [row], {"perm": TURN})
    drop_unread(x)
    return True
