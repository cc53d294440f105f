"""1x1 convolutions around linear Resizes are joined, or moved to the smaller map.

The head of a segmentation network (SegFormer) projects maps of several sizes, resizes them to the
largest, and mixes all their channels at that size: Conv(Concat(Resize(Conv(a)), …, Conv(b))). A
Resize weights the pixels of each channel by numbers whose sum is 1, so it commutes with 1x1
convolutions, bias included.

1. A projection is multiplied into the weights of the convolution that mixes, unless it reduces
   channels. Its operand is resized instead of its result.
2. A resized operand of many channels (`_FEW`) is convolved at its own size, and the result of that
   is resized and added: Conv(Concat(…)) + Resize(Conv(a)).

That holds in reals, so only values that are not rounded are rewritten. The rewrite replaces
operators of the user's graph, so only strategies that ask for it run it (`REWRITES`).
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    detach,
    insert_before,
    is_point_convolution,
    is_standard,
    merge_sources,
    operand,
    quant_of,
    rewrite,
    sole_reader,
    standard_nodes,
    static_shape,
    values_of,
)
from opu_fuse.frontend.importing.value_checks import in_range
from opu_fuse.quant import REWRITE_KEY

_WHY = "1x1 convolutions on both sides of Resizes: joined, or computed on the smaller map"
_FEW = 96
"""Products of so many channels at the larger size take about as long as the sum of two maps."""
_POINT = {"kernel_shape": [1, 1], "strides": [1, 1], "dilations": [1, 1], "pads": [0] * 4}
_COORDINATES = frozenset({"half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"})
"""Modes in which every result is a weighted mean."""


class _Layer(Struct, frozen=True):
    """A 1x1 convolution: weights (results, channels) and biases (results) in float64."""

    weight: np.ndarray
    bias: np.ndarray


class _Branch(Struct, frozen=True, kw_only=True):
    """An operand of the convolution that mixes, as sums of channels of `source`.

    moves: Resizes, and Reshapes of pixels, after `source`, the first one first;
    projection: the convolution that `layer` includes, if any.
    """

    source: ir.Value
    moves: tuple[ir.Node, ...]
    projection: ir.Node | None
    layer: _Layer

    @property
    def channels(self) -> int:
        return self.layer.weight.shape[1]

    @property
    def resizes(self) -> bool:
        return any(is_standard(node, "Resize") for node in self.moves)

    @property
    def is_coarse(self) -> bool:
        return self.resizes and self.channels > _FEW


def joins_resized(model: ir.Model) -> bool:
    """Whether a Concat of the model reads the result of a linear Resize."""
    resizes = (n for n in standard_nodes(model.graph, "Resize") if _is_linear(n))
    readers = (use.node for node in resizes for use in node.outputs[0].uses())
    return any(is_standard(node, "Concat") for node in readers)


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = [_mix(model.graph, node) for node in standard_nodes(model.graph, "Conv")]
    return any(changed)


def _mix(graph: ir.Graph, node: ir.Node) -> bool:
    layer, joined = _layer(node), node.inputs[0]
    concat = None if joined is None else _inner(joined, node)
    if layer is None or concat is None or not _joins_channels(concat):
        return False
    branches = _branches(concat, layer.weight)
    fine = sorted((b for b in branches if not b.is_coarse), key=lambda b: -b.channels)
    coarse = [b for b in branches if b.is_coarse]
    if not fine or not any(b.resizes for b in branches):
        return False
    bias = layer.bias + sum(b.layer.bias for b in branches)
    if not all(map(in_range, (bias, *(b.layer.weight for b in branches)))):
        return False
    old = [concat, *(n for b in branches for n in (*reversed(b.moves), b.projection) if n)]
    merge_sources(node, old)
    _write(graph, node, fine, coarse, bias)
    node.metadata_props[REWRITE_KEY] = _WHY
    for replaced in old:
        detach(replaced)
    return True


def _write(
    graph: ir.Graph,
    node: ir.Node,
    fine: Sequence[_Branch],
    coarse: Sequence[_Branch],
    bias: np.ndarray,
) -> None:
    """Let a node compute the branches' sum. Narrow maps come last in the Concat, so that few words
    of its channels are half empty.
    """
    shape = static_shape(node.outputs[0])
    assert shape is not None
    parts = [_moved(node, b.source, b.moves, b.channels) for b in fine]
    joined = parts[0]
    if len(parts) > 1:
        size, name = (1, sum(b.channels for b in fine), *shape[2:]), f"{node.name}/parts"
        joined = insert_before(node, "Concat", parts, {"axis": 1}, name=name, shape=size)
    weight = _filters(graph, node, np.concatenate([b.layer.weight for b in fine], axis=1))
    inputs = [joined, weight, add_constant(graph, f"{node.name}/bias", bias.astype(np.float32))]
    if not coarse:
        rewrite(node, "Conv", inputs, {**_POINT, "group": 1})
        return
    mixed = _conv(node, inputs, f"{node.name}/mixed", shape)
    rewrite(node, "Add", [mixed, _sum(graph, node, coarse, shape)])


def _sum(
    graph: ir.Graph, node: ir.Node, coarse: Sequence[_Branch], shape: Sequence[int]
) -> ir.Value:
    """Insert the coarse branches and their sum, of `shape`. Post adds it while the array mixes."""
    total: ir.Value | None = None
    for number, branch in enumerate(coarse):
        name, size = f"{node.name}/{number}", static_shape(branch.source)
        assert size is not None
        inputs = [branch.source, _filters(graph, node, branch.layer.weight)]
        part = _conv(node, inputs, name, (1, shape[1], *size[2:]))
        part = _moved(node, part, branch.moves, shape[1])
        if total is not None:
            part = insert_before(node, "Add", [total, part], name=f"{name}/sum", shape=shape)
        total = part
    assert total is not None
    return total


def _conv(node: ir.Node, inputs: Sequence[ir.Value], name: str, shape: Sequence[int]) -> ir.Value:
    return insert_before(node, "Conv", inputs, {**_POINT, "group": 1}, name=name, shape=shape)


def _filters(graph: ir.Graph, node: ir.Node, matrix: np.ndarray) -> ir.Value:
    data = matrix.astype(np.float32)[..., np.newaxis, np.newaxis]
    return add_constant(graph, f"{node.name}/weight", data)


def _moved(node: ir.Node, x: ir.Value, moves: Sequence[ir.Node], channels: int) -> ir.Value:
    """Insert moves of a map of so many channels before `node`; return their result."""
    assert node.graph is not None
    for move in moves:
        size, name = static_shape(move.outputs[0]), f"{node.name}/{move.name}"
        assert size is not None
        shape, inputs = (1, channels, *size[2:]), [x, *move.inputs[1:]]
        at = 1 if is_standard(move, "Reshape") else 3  # operand that holds the shape
        if operand(move, at) is not None:
            inputs[at] = add_constant(node.graph, f"{name}/shape", np.array(shape, np.int64))
        x = insert_before(node, move.op_type, inputs, values_of(move), name=name, shape=shape)
    return x


def _branches(concat: ir.Node, weight: np.ndarray) -> list[_Branch]:
    """The operands of a Concat, with their columns of the weights of its reader."""
    values = [x for x in concat.inputs if x is not None]
    ends = np.cumsum([shape[1] for x in values if (shape := static_shape(x))])[:-1]
    columns = np.split(weight, ends, axis=1)
    return [_branch(concat, *each) for each in zip(values, columns, strict=True)]


def _branch(concat: ir.Node, value: ir.Value, weight: np.ndarray) -> _Branch:
    x, node = value, _inner(value, concat)
    moves: list[ir.Node] = []
    while node is not None and node.inputs[0] is not None and _commutes(node):
        moves.insert(0, node)
        x = node.inputs[0]
        node = _inner(x, node)
    layer = _Layer(weight, np.zeros(len(weight)))
    projection = None if node is None else _layer(node)
    if node is not None and projection is not None and _widens(node, projection):
        x = node.inputs[0]
        assert x is not None
        layer = _Layer(weight @ projection.weight, weight @ projection.bias)
        return _Branch(source=x, moves=tuple(moves), projection=node, layer=layer)
    found = _Branch(source=x, moves=tuple(moves), projection=None, layer=layer)
    return found if found.is_coarse else replace(found, source=value, moves=())


def _widens(node: ir.Node, layer: _Layer) -> bool:
    """Whether a projection writes as many channels as it reads or more, of a computed map."""
    x = node.inputs[0]
    return layer.weight.shape[1] <= len(layer.weight) and x is not None and x.producer() is not None


def _inner(value: ir.Value, reader: ir.Node) -> ir.Node | None:
    """What computes a value that is not rounded, if nothing else reads it."""
    if sole_reader(value) is not reader or quant_of(value) is not None:
        return None
    return value.producer()


def _joins_channels(node: ir.Node) -> bool:
    shapes = [static_shape(x) for x in (*node.inputs, *node.outputs)]
    images = all(shape is not None and len(shape) == 4 and shape[0] == 1 for shape in shapes)
    return is_standard(node, "Concat") and images and node.attributes.get_int("axis", 0) in {1, -3}


def _layer(node: ir.Node) -> _Layer | None:
    """A 1x1 convolution in floats; None for other nodes."""
    data = [constant(operand(node, i)) for i in (1, 2)]
    weight, bias = data
    if weight is None or not is_point_convolution(node):
        return None
    if (operand(node, 2) is not None and bias is None) or node.attributes.get_int("group", 1) != 1:
        return None
    if any(array is not None and array.dtype != np.float32 for array in data):
        return None
    matrix = weight[:, :, 0, 0].astype(np.float64)
    return _Layer(matrix, np.zeros(len(matrix)) if bias is None else bias.astype(np.float64))


def _commutes(node: ir.Node) -> bool:
    """Whether a node treats all channels of an image alike, as a weighted mean of pixels."""
    source, target = static_shape(node.inputs[0]), static_shape(node.outputs[0])
    if source is None or target is None or len(source) != 4 or source[:2] != target[:2]:
        return False
    if source[0] != 1 or len(target) != 4:
        return False
    if is_standard(node, "Reshape"):
        return True
    if not is_standard(node, "Resize") or "axes" in node.attributes:
        return False
    scales = constant(operand(node, 2))
    whole = scales is None or not scales.size or bool(np.all(scales[:2] == 1.0))
    coordinates = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    return _is_linear(node) and whole and coordinates in _COORDINATES


def _is_linear(node: ir.Node) -> bool:
    return node.attributes.get_string("mode", "nearest") == "linear"
