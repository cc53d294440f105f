"""A crop runs before operators that compute every pixel from the same pixel of their operands.

A classifier that reads the class token needs one pixel of the last layers. The crop moves before
elementwise operators, 1x1 convolutions, channel Concats, normalisations of channels, and the first
operand of a product of two maps: they then compute only the remaining pixels. Operands of one row
and one column broadcast and are not cropped; constants that differ between pixels are. Of a Pad
with zeros the crop reads the operand, or nothing but zeros (a class token that is joined with
others, and read alone).

Only if all readers of the map crop it, and read at most half of its pixels together: there may be a
crop for every operand then. The remaining pixels are bit-exact. This rewrite makes operators of the
user's graph smaller, so only strategies that ask for it run it (`REWRITES`).
"""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical.fold_crops import Cut, cut_of, less, preserves_quantisation
from opu_fuse.frontend.canonical.norms import is_of_norm
from opu_fuse.frontend.canonical.token_images import CHANNELS_LAST
from opu_fuse.frontend.editing import (
    TENSOR_KEY,
    add_constant,
    bypass,
    constant,
    drop_unread,
    is_standard,
    move_before,
    operand,
    quant_of,
    rewrite,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.operator_sets import ELEMENT_WISE
from opu_fuse.model.products import PRODUCT, is_product
from opu_fuse.quant import META_KEY, REWRITE_KEY

_WHY = "only those of its pixels that are read, as what reads it crops its result"


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    graph, changed = model.graph, False
    waiting = [n for n in standard_nodes(graph, "Slice") if cut_of(n) is not None]
    while waiting:
        node = waiting.pop()
        crops = _move(graph, node) if node.graph is not None else []
        changed |= bool(crops)
        waiting += crops
    return changed


def _move(graph: ir.Graph, node: ir.Node) -> list[ir.Node]:
    """Move the crops of a value before the operator that computes it. Return the crops there."""
    x = node.inputs[0]
    shape = static_shape(x)
    if x is None or shape is None or x.is_graph_output():
        return []
    readers = list(dict.fromkeys(use.node for use in x.uses()))
    cuts = [cut for reader in readers if (cut := _cut(reader, x)) is not None]
    if len(cuts) < len(readers):
        return []
    cut = _common(cuts)
    size = less(shape, cut)
    if 2 * math.prod(size) > math.prod(shape):
        return []
    nodes = _of_pixels(x)
    maps = _operands(nodes[0]) if nodes else []
    whole = [v for v in dict.fromkeys(maps) if _is_whole(v, shape)]
    if not whole or not all(v in whole or _broadcasts(v) for v in maps):
        return []
    cropped = {v: _cropped(graph, nodes[0], v, cut) for v in whole}
    for index, value in enumerate(nodes[0].inputs):
        if value in cropped:
            nodes[0].replace_input_with(index, cropped[value])
            drop_unread(value)  # a Pad would read its operand
    last_axis = [size[axis] for axis in CHANNELS_LAST]
    if len(nodes) > 1 and math.prod(size[2:]) == 1:
        last_axis = [1, size[1]]
        _normalise_row(graph, nodes, size)
    for inner in nodes:
        inner.outputs[0].shape = ir.Shape(size if inner is nodes[-1] else last_axis)
        inner.outputs[0].meta.pop(TENSOR_KEY, None)  # the model's tensor is whole
    nodes[-1].metadata_props.setdefault(REWRITE_KEY, _WHY)
    for reader, own in zip(readers, cuts, strict=True):
        if own == cut:
            bypass(reader)
        else:
            rest = tuple(a - b for a, b in zip(own, cut, strict=True))
            rewrite(reader, "Slice", [x, *_numbers(graph, str(reader.name), size, rest)])
    return [n for v in cropped.values() if (n := v.producer()) is not None]


def _cut(node: ir.Node, x: ir.Value) -> Cut | None:
    """What a reader of a value crops; None if it is no crop."""
    is_crop = is_standard(node, "Slice") and preserves_quantisation(node, x)
    return cut_of(node) if is_crop else None


def _common(cuts: Sequence[Cut]) -> Cut:
    top, left, bottom, right = (min(side) for side in zip(*cuts, strict=True))
    return top, left, bottom, right


def _of_pixels(x: ir.Value) -> list[ir.Node]:
    """The nodes of the operator that computes a map pixel by pixel, in order; [] for others."""
    node = x.producer()
    if node is None or len(node.outputs) > 1:
        return []
    if is_of_norm(node):
        chain = [node]
        while len(chain) < 3 and (v := chain[0].inputs[0]) and (before := v.producer()):
            chain.insert(0, before)
        return chain if len(chain) == 3 and is_of_norm(chain[0]) else []
    if is_standard(node, "Conv"):
        weight, ints = static_shape(operand(node, 1)), node.attributes.get_ints
        is_point = weight is not None and weight[2:] == (1, 1) and not any(ints("pads", ()))
        plain = node.attributes.get_string("auto_pad", "NOTSET") == "NOTSET"
        return [node] if is_point and plain and {*ints("strides", ())} <= {1} else []
    if is_standard(node, "Concat", "Softmax"):
        return [node] if node.attributes.get_int("axis", -1) in {1, -3} else []
    if is_product(node):
        return [node] if node.attributes.get_string("equation", "") == PRODUCT else []
    return [node] if is_standard(node, *ELEMENT_WISE, "BatchNormalization") else []


def _operands(node: ir.Node) -> list[ir.Value]:
    """The operands with the pixels of the result, or with one that broadcasts."""
    values = node.inputs if is_standard(node, *ELEMENT_WISE, "Concat") else node.inputs[:1]
    return [v for v in values if v is not None]


def _is_whole(value: ir.Value | None, shape: Sequence[int]) -> bool:
    size = static_shape(value)
    return size is not None and len(size) == 4 and size[2:] == (*shape[2:],)


def _broadcasts(value: ir.Value) -> bool:
    size = static_shape(value)
    return size is not None and {1} >= {*size[-2:]}


def _normalise_row(graph: ir.Graph, nodes: Sequence[ir.Node], size: Sequence[int]) -> None:
    """Let a norm of one pixel, with its Transposes, be one of a row, as machines have it."""
    first, norm, last = nodes
    for node, shape in ((first, (1, size[1])), (last, size)):
        target = add_constant(graph, f"{node.name}/shape", np.array(shape))
        rewrite(node, "Reshape", [node.inputs[0], target])
    for inner, moved in ((first.outputs[0], first.inputs[0]), (norm.outputs[0], last.outputs[0])):
        if moved is not None and (quant := quant_of(moved)) is not None:
            inner.meta[META_KEY] = quant


def _cropped(graph: ir.Graph, node: ir.Node, value: ir.Value, cut: Cut) -> ir.Value:
    shape, data, name = static_shape(value), constant(value), f"{value.name}/part"
    assert shape is not None
    size = less(shape, cut)
    if data is not None:
        rows, columns = (slice(cut[axis], cut[axis] + size[axis + 2]) for axis in range(2))
        return add_constant(graph, name, data[..., rows, columns], quant_of(value))
    value, shape, cut = _without_pad(value, shape, cut)
    if min(cut) < 0 or min(less(shape, cut)) <= 0:
        return add_constant(graph, name, np.zeros(size, np.float32))
    if not any(cut):
        return value
    numbers = _numbers(graph, name, shape, cut)
    return move_before(node, "Slice", [value, *numbers], name=name, shape=size)


def _without_pad(
    value: ir.Value, shape: tuple[int, ...], cut: Cut
) -> tuple[ir.Value, tuple[int, ...], Cut]:
    """A crop of the operand of a Pad with zeros instead, where it reads pixels of that alone, or
    none: it then cuts off more than there is.
    """
    found = _zero_pad(value)
    source = None if found is None else static_shape(found[0])
    if found is None or source is None:
        return value, shape, cut
    top, left, bottom, right = (int(c - p) for c, p in zip(cut, found[1], strict=True))
    inner = (top, left, bottom, right)
    outside = max(top, bottom) >= source[2] or max(left, right) >= source[3]
    return (found[0], source, inner) if outside or min(inner) >= 0 else (value, shape, cut)


def _zero_pad(value: ir.Value) -> tuple[ir.Value, np.ndarray] | None:
    """The operand of a Pad of rows and columns with zeros, and its pads; None for other values."""
    pad = value.producer()
    x = None if pad is None else pad.inputs[0]
    if pad is None or x is None or not is_standard(pad, "Pad") or operand(pad, 3) is not None:
        return None
    amounts, fill, mode = constant(operand(pad, 1)), operand(pad, 2), pad.attributes.get_string
    data = np.zeros(1) if fill is None else constant(fill)
    is_zero = data is not None and not data.any() and mode("mode", "constant") == "constant"
    if not is_zero or amounts is None or amounts.size != 8 or any(amounts[[0, 1, 4, 5]]):
        return None
    rounded = quant_of(value) is not None or quant_of(x) is not None
    return None if rounded else (x, amounts[[2, 3, 6, 7]])


def _numbers(
    graph: ir.Graph, name: str, shape: Sequence[int], cut: Sequence[int]
) -> list[ir.Value]:
    """Starts, ends and axes of a crop of a map of this shape, as operands of a Slice."""
    top, left, bottom, right = cut
    numbers = {
        "starts": (top, left),
        "ends": (shape[2] - bottom, shape[3] - right),
        "axes": (2, 3),
    }
    return [add_constant(graph, f"{name}_{key}", np.array(data)) for key, data in numbers.items()]
