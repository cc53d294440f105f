"""A crop of rows and columns right before a Pad is one operator: a Pad by negative amounts.

A map that is rolled is the sum of two such maps. A pass reads the pixels that remain at the place
that they get, and the fill elsewhere, if no side is both cropped and padded: the fill would hide
pixels that the pass reads.
"""

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from opu_fuse.model.composites import Composite, const_array
from opu_fuse.model.known_values import known_shape, slice_ranges
from opu_fuse.model.opsets import STANDARD
from opu_fuse.model.unused import is_alive
from opu_fuse.quant import META_KEY

PAD = "pad"


def shifts(graph: ir.Graph) -> dict[ir.Node, Composite]:
    """The shifts of a canonical graph, by their Pad."""
    return {node: whole for node in graph if (whole := shift_of(node)) is not None}


def shift_of(node: ir.Node) -> Composite | None:
    """A Pad by constants in canonical form, of what a Slice crops for it alone; None for others."""
    if node.op_type != "Pad" or node.domain not in STANDARD or len(node.inputs) > 2:
        return None
    middle, amounts = node.inputs[0], const_array(node.inputs[1])
    crop = None if middle is None else middle.producer()
    if middle is None or crop is None or amounts is None or amounts.size != 8:
        return None
    if crop.op_type != "Slice" or crop.domain not in STANDARD or crop.inputs[0] is None:
        return None
    quants = [v.meta.get(META_KEY) for v in (crop.inputs[0], middle, node.outputs[0])]
    readers = {use.node for use in middle.uses() if is_alive(use.node)}
    if readers != {node} or middle.is_graph_output() or any(q != quants[0] for q in quants):
        return None
    pads = _amounts(crop, amounts.tolist())
    if pads is None or node.attributes.get_string("mode", "constant") != "constant":
        return None
    attrs: Mapping[str, Any] = {"pads": pads, "channels": (0, 0), "value": 0.0}
    return Composite(op=PAD, source=crop.inputs[0], nodes=(crop, node), attrs=attrs)


def _amounts(crop: ir.Node, pads: list[int]) -> tuple[int, ...] | None:
    """Pads (top, left, bottom, right), negative where a side is cropped."""
    shape, ranges = known_shape(crop.inputs[0]), slice_ranges(crop)
    if len(shape) != 4 or ranges is None or any(t.step != 1 or not t for t in ranges):
        return None
    cuts = [t.start for t in ranges] + [n - t.stop for n, t in zip(shape, ranges, strict=True)]
    sides = [*zip(cuts, pads, strict=True)]
    if any(cut and pad for cut, pad in sides) or min(pads) < 0:
        return None
    if any(cut or pad for cut, pad in (sides[0], sides[1], sides[4], sides[5])):
        return None
    top, left, bottom, right = (pad - cut for cut, pad in (sides[i] for i in (2, 3, 6, 7)))
    return top, left, bottom, right
