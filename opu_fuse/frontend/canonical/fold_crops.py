"""Fold a crop, a Slice of border rows or columns, into the operators that compute the map.

1. Conv, MaxPool, AveragePool: less padding. If the remaining windows do not reach the operand's
   border, the crop continues into the operand's producer.
2. ConvTranspose: its pads crop the result. A Pad pads less.
3. Elementwise operators, normalisations and channel Concats pass the crop on to their operands.
   Operands of one row and one column broadcast and are not cropped.

Only if nobody reads the cropped border. The remaining map is bit-exact.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from msgspec import Struct, field

from opu_fuse.frontend.editing import (
    TENSOR_KEY,
    add_constant,
    bypass,
    constant,
    is_standard,
    operand,
    quant_of,
    sole_reader,
    standard_nodes,
    static_shape,
)
from opu_fuse.model.known_values import slice_ranges
from opu_fuse.model.operator_sets import ELEMENT_WISE, WINDOWS_OF_OPERAND

Cut = tuple[int, int, int, int]
"""Rows and columns to remove: top, left, bottom, right, in the order of `pads`."""

_NOTHING = (0, 0, 0, 0)


class _Plan(Struct):
    """Planned changes, applied only if the whole crop folds.

    cuts: crop of each value that becomes smaller.
    whole: values that must not become smaller.
        pads: new pads by node.
    producers: producers of the values in `cuts`.
    """

    cuts: dict[ir.Value, Cut] = field(default_factory=dict)
    whole: set[ir.Value] = field(default_factory=set)
    pads: dict[ir.Node, Cut] = field(default_factory=dict)
    producers: set[ir.Node] = field(default_factory=set)


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed = False
    for node in standard_nodes(model.graph, "Slice"):
        cut = cut_of(node)
        changed |= cut is not None and _absorb(model.graph, node, cut)
    return changed


def cut_of(node: ir.Node) -> Cut | None:
    """The crop of a Slice of an image; None if it is no crop. It may also requantise."""
    x = node.inputs[0]
    shape, ranges = static_shape(x), slice_ranges(node)
    if x is None or shape is None or len(shape) != 4 or ranges is None:
        return None
    full_ranges = [range(size) for size in shape]
    if (
        ranges[:2] != full_ranges[:2]
        or ranges == full_ranges
        or any(t.step != 1 or not t for t in ranges[2:])
    ):
        return None
    rows, columns = ranges[2:]
    return rows.start, columns.start, shape[2] - rows.stop, shape[3] - columns.stop


def _absorb(graph: ir.Graph, node: ir.Node, cut: Cut) -> bool:
    x, plan = node.inputs[0], _Plan()
    if x is None or not preserves_quantisation(node, x) or not _can_cut(plan, x, cut):
        return False
    readers = {use.node for value in plan.cuts for use in value.uses()}
    if any(_is_alive(reader) for reader in readers - plan.producers - {node}):
        return False
    for producer, pads in plan.pads.items():
        if producer.op_type == "Pad":
            amounts = np.insert(np.array(pads, np.int64), [0, 0, 2, 2], 0)
            producer.replace_input_with(1, add_constant(graph, f"{producer.name}/pads", amounts))
        else:
            producer.attributes["pads"] = ir.AttrInt64s("pads", pads)
    for value, value_cut in plan.cuts.items():
        value.shape = ir.Shape(less(static_shape(value) or (), value_cut))
        value.meta.pop(TENSOR_KEY, None)  # the model's tensor is whole
    bypass(node)
    return True


def preserves_quantisation(node: ir.Node, x: ir.Value) -> bool:
    """Whether removing the Slice preserves quantisation.

    Its result is quantised as its operand, or the operand is float and has no other reader: then
    the operand takes over the result's quantisation.
    """
    source_quant, result_quant = quant_of(x), quant_of(node.outputs[0])
    return result_quant in {None, source_quant} or (source_quant is None and sole_reader(x) is node)


def _is_alive(node: ir.Node) -> bool:
    """Whether a node has a reader; nodes that other steps replaced have none."""
    return any(v.uses() or v.is_graph_output() for v in node.outputs)


def less(shape: tuple[int, ...], cut: Cut) -> tuple[int, ...]:
    """The shape of a map (1, c, h, w) after a crop."""
    return (*shape[:2], shape[2] - cut[0] - cut[2], shape[3] - cut[1] - cut[3])


def _can_cut(plan: _Plan, value: ir.Value, cut: Cut) -> bool:
    """Whether the producer of a value can compute less of it; extends the plan."""
    if cut == _NOTHING:
        plan.whole.add(value)
        return value not in plan.cuts
    if value in plan.cuts or value in plan.whole:
        # All paths to a value must agree on its crop.
        return plan.cuts.get(value) == cut
    node, shape = value.producer(), static_shape(value)
    if node is None or shape is None or len(shape) != 4 or value.is_graph_output():
        return False
    if any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
        return False  # indices of a MaxPool refer to the whole map
    plan.cuts[value] = cut
    plan.producers.add(node)
    if is_standard(node, *WINDOWS_OF_OPERAND):
        return _windows(plan, node, shape, cut)  # Case 1
    if is_standard(node, "ConvTranspose"):  # Case 2
        known = _explicit(node) and "output_shape" not in node.attributes
        plan.pads[node] = _sum(node.attributes.get_ints("pads", _NOTHING), cut)
        return known
    if is_standard(node, "Pad"):
        return _padding(plan, node, cut)
    joins = is_standard(node, "Concat") and node.attributes.get_int("axis", 0) in {1, -3}
    if joins or is_standard(node, *ELEMENT_WISE):  # Case 3
        return all(v is None or _operand(plan, v, shape, cut) for v in node.inputs)
    normalises = is_standard(node, "BatchNormalization") and node.inputs[0] is not None
    return normalises and _can_cut(plan, node.inputs[0], cut)  # type: ignore[arg-type]  # None is ruled out


def _operand(plan: _Plan, value: ir.Value, shape: tuple[int, ...], cut: Cut) -> bool:
    """Whether an operand of an operator with result shape `shape` can be cropped, or broadcasts."""
    own = static_shape(value)
    if own is None or {1} >= {*own[-2:]}:
        return own is not None
    return constant(value) is None and own[2:] == shape[2:] and _can_cut(plan, value, cut)


def _windows(plan: _Plan, node: ir.Node, shape: tuple[int, ...], cut: Cut) -> bool:
    x, ints = node.inputs[0], node.attributes.get_ints
    size, weight = static_shape(x), static_shape(operand(node, 1))
    kernel = ints("kernel_shape", () if weight is None else weight[2:])
    if x is None or size is None or len(size) != 4 or len(kernel) != 2 or not _explicit(node):
        return False
    if node.attributes.get_int("ceil_mode", 0):
        return False
    pads, strides, dilations = (
        ints(name, plain)
        for name, plain in (("pads", _NOTHING), ("strides", (1, 1)), ("dilations", (1, 1)))
    )
    sides = [
        _side(
            size[axis + 2],
            (kernel[axis] - 1) * dilations[axis] + 1,
            strides[axis],
            first=cut[axis] * strides[axis] - pads[axis],
            count=shape[axis + 2] - cut[axis] - cut[axis + 2],
        )
        for axis in range(2)
    ]
    plan.pads[node] = (sides[0][0], sides[1][0], sides[0][1], sides[1][1])
    return _can_cut(plan, x, (sides[0][2], sides[1][2], sides[0][3], sides[1][3]))


def _side(size: int, reach: int, stride: int, *, first: int, count: int) -> Cut:
    """Begin pad, end pad, begin crop and end crop of an operand along one axis.

    size: of the operand. reach: dilated kernel size. first, count: coordinate of the first window,
    and number of windows.
    """
    end = first + (count - 1) * stride + reach
    excess = max(0, size - end) // stride * stride  # a remainder below the stride holds no window
    return max(0, -first), max(0, end - size), max(0, first), excess


def _padding(plan: _Plan, node: ir.Node, cut: Cut) -> bool:
    """Case 2 for a Pad in canonical form; its operand is cropped by what exceeds the padding."""
    x, amounts = node.inputs[0], constant(operand(node, 1))
    if x is None or amounts is None or amounts.size != 8 or operand(node, 3) is not None:
        return False
    if node.attributes.get_string("mode", "constant") != "constant" or amounts.min() < 0:
        return False
    if any(amounts[[0, 1, 4, 5]]):
        return False
    sides = amounts[[2, 3, 6, 7]].tolist()
    remaining = [max(0, side - less) for side, less in zip(sides, cut, strict=True)]
    excess = [max(0, less - side) for side, less in zip(sides, cut, strict=True)]
    plan.pads[node] = (remaining[0], remaining[1], remaining[2], remaining[3])
    return _can_cut(plan, x, (excess[0], excess[1], excess[2], excess[3]))


def _explicit(node: ir.Node) -> bool:
    return node.attributes.get_string("auto_pad", "NOTSET") in {"NOTSET", ""}


def _sum(pads: Sequence[int], cut: Cut) -> Cut:
    return (pads[0] + cut[0], pads[1] + cut[1], pads[2] + cut[2], pads[3] + cut[3])
