"""Operators at inputs and outputs that the port folds into packing the user's arrays.

Channels-last frameworks write a Transpose after an input and before an output. Fully quantised
models write a DequantizeLinear and a QuantizeLinear, half-precision models a Cast. Packing an
image for the machine touches every value anyway. Such operators are therefore properties of the
port and not nodes of the data-flow graph.

1. After an input of bytes: its preprocessing into a map (`model/preprocessing.py`), with one
   Transpose, DepthToSpace or SpaceToDepth and channels in any order.
2. After an input with one reader, up to a map: a DequantizeLinear or Cast, changes of view, one
   Transpose, DepthToSpace or SpaceToDepth.
3. Before an output that nobody reads, from a map on: the operators of case 2, with a QuantizeLinear
   that has the quantisation of the map instead of the DequantizeLinear.
4. An input that the compiler has split in two, one rounded and one not; an output that is another
   value under a name of its own (Identity).

Changes of view that leave the bytes in the machine's memory unchanged remain nodes of the graph.
"""

from collections.abc import Collection, Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.dfg.graph import Border, is_map
from opu_fuse.dfg.port_tables import lookup_of
from opu_fuse.dfg.value_types import type_of
from opu_fuse.dfg.views import feature_shape
from opu_fuse.io_layout import AxisPermutation
from opu_fuse.model.composites import const_array
from opu_fuse.model.operator_sets import PERMUTES
from opu_fuse.model.opsets import STANDARD
from opu_fuse.model.qdq_pairs import type_of_zero
from opu_fuse.quant import FLOAT_KEY, META_KEY, UINT8_SHIFT, UNROUNDED_KEY, QuantParams

_WIDER = frozenset({ir.DataType.FLOAT16, ir.DataType.DOUBLE})
_TYPES = frozenset({ir.DataType.FLOAT, ir.DataType.INT8, ir.DataType.UINT8}) | _WIDER


def input_border(
    outer: ir.Value,
    taken: Collection[ir.Node],
    computed: Sequence[ir.Node] = (),
    *,
    floating: bool,
) -> Border | None:
    """What the port of an input does in addition to rounding (Cases 1 and 2); None for nothing.

    outer: the input
    taken: nodes that are part of other operators; computed: those of its preprocessing
    floating: it is the float form of a model, which has the borders of the quantised one.
    """
    if UNROUNDED_KEY in outer.meta:  # Case 4
        return _alias(outer.meta[UNROUNDED_KEY], outer, outer)
    border = _table_border(outer, computed, floating=floating) if computed else None
    if border is not None:
        return border
    nodes: list[ir.Node] = []
    value = outer
    while (node := _reader(value)) is not None and node not in taken:
        if not (_moves(node) or _converts(node, "DequantizeLinear", outer, nodes)):
            break
        value = node.outputs[0]
        nodes.append(node)
    while nodes:  # as many as can be
        value = nodes[-1].outputs[0]
        result = None if value.is_graph_output() else _border(outer, value, nodes, floating)
        if result is not None:
            return result
        nodes.pop()
    return None


def output_border(outer: ir.Value, taken: Collection[ir.Node], *, floating: bool) -> Border | None:
    """What the port of an output does in addition to dequantising (Case 3); None for nothing.

    The parameters are those of `input_border`.
    """
    if UNROUNDED_KEY in outer.meta:  # Case 4
        return _alias(outer.meta[UNROUNDED_KEY], outer, outer)
    if (copy := outer.producer()) is not None and _copies(copy):
        source = copy.inputs[0]
        assert source is not None
        return _alias(outer.name or "", outer, source, copy)
    nodes: list[ir.Node] = []
    value = outer
    while (node := value.producer()) is not None and node not in taken:
        if len(value.uses()) != len(nodes[:1]) or value.is_graph_output() == bool(nodes):
            break
        if not (_moves(node) or _converts(node, "QuantizeLinear", outer, nodes)):
            break
        nodes.insert(0, node)
        value = node.inputs[0]
        assert value is not None
    while nodes:
        value = nodes[0].inputs[0]
        result = None
        if value is not None and value.producer() is not None:
            result = _border(outer, value, nodes, floating)
        if result is not None:
            return result
        nodes.pop(0)
    return None


def _table_border(outer: ir.Value, nodes: Sequence[ir.Node], *, floating: bool) -> Border | None:
    """Case 1."""
    kind, value = type_of(outer), nodes[-1].outputs[0]
    quant = value.meta.get(META_KEY)
    permutes = [n for n in nodes if n.op_type in PERMUTES]
    if kind is None or len(permutes) > 1 or (quant is None and not floating):
        return None
    moved = bool(permutes) or kind.shape != _sizes(value)
    turn = _permutation(value, permutes, inside=True) if moved else None
    lookup = lookup_of(outer, nodes, turn)
    if lookup is None:
        return None
    return Border(
        name=outer.name or "",
        type=kind,
        written=None,
        value=value,
        quant=quant,
        turn=turn,
        nodes=tuple(nodes),
        lookup=lookup,
    )


def _alias(name: str, outer: ir.Value, value: ir.Value, *nodes: ir.Node) -> Border | None:
    """The port of this name that has a value as it is."""
    kind = type_of(outer) or type_of(value)
    if kind is None:
        return None
    return Border(
        name=name,
        type=kind,
        written=None,
        value=value,
        quant=value.meta.get(META_KEY),
        turn=None,
        nodes=nodes,
    )


def _copies(node: ir.Node) -> bool:
    """An Identity of what is computed or an input, rounded to nothing else."""
    if node.domain not in STANDARD or node.op_type != "Identity" or node.outputs[0].uses():
        return False
    source, result = node.inputs[0], node.outputs[0]
    if source is None or const_array(source) is not None:
        return False
    return result.meta.get(META_KEY) in {None, source.meta.get(META_KEY)}


def _reader(value: ir.Value) -> ir.Node | None:
    """The only reader of a value, None where it has none or several."""
    uses = list(value.uses())
    if len(uses) != 1 or value.is_graph_output() or uses[0].node.graph is not value.graph:
        return None
    return uses[0].node


def _moves(node: ir.Node) -> bool:
    """True for a change of view or permutation of axes with static sizes."""
    if node.domain not in STANDARD or node.op_type not in PERMUTES | {"Reshape"}:
        return False
    known = all(_sizes(v) for v in (node.inputs[0], node.outputs[0]))
    return known and all(const_array(v) is not None for v in node.inputs[1:])


def _converts(node: ir.Node, op_type: str, outer: ir.Value, others: Sequence[ir.Node]) -> bool:
    """Whether a port of this type does this conversion anyway: once, with one scale."""
    if node.domain not in STANDARD or not all(_moves(n) for n in others):
        return False
    if node.op_type == "Cast":
        ends = {node.inputs[0] and node.inputs[0].dtype, node.outputs[0].dtype}
        return outer.dtype in _WIDER and ends == {outer.dtype, ir.DataType.FLOAT}
    return node.op_type == op_type and _written(node) is not None


def _written(node: ir.Node) -> QuantParams | None:
    """How a DequantizeLinear or QuantizeLinear of 8 bits rounds, as int8."""
    scale, zero = (const_array(v) for v in (*node.inputs[1:3], None)[:2])
    if scale is None or scale.size != 1 or not 0.0 < float(scale.reshape(())) < np.inf:
        return None
    if zero is None:
        kind = type_of_zero(node)
        if kind is None or (len(node.inputs) > 2 and node.inputs[2]):  # or computed
            return None
        zero = np.zeros((), kind.numpy())
    if zero.size != 1 or zero.dtype not in (np.int8, np.uint8):
        return None
    shift = UINT8_SHIFT if zero.dtype == np.uint8 else 0
    return QuantParams(scale=(float(scale.reshape(())),), zero_point=int(zero.reshape(())) - shift)


def _border(
    outer: ir.Value, value: ir.Value, nodes: Sequence[ir.Node], floating: bool
) -> Border | None:
    """The border of these nodes between an input or output and a value inside; None for none.

    Changes of view and one permutation between the two must move the same numbers.
    """
    kind, shape = type_of(outer), _sizes(value)
    if kind is None or kind.dtype not in _TYPES or not is_map(shape):
        return None
    inside = value.producer() in nodes
    if const_array(value) is not None or _is_free(nodes, kind.shape or (), shape, inside):
        return None
    between = {outer, value, *(v for n in nodes for v in n.outputs)}
    rounded = {v.meta[META_KEY] for v in between if META_KEY in v.meta}
    written = {q for n in nodes if n.op_type.endswith("Linear") and (q := _written(n))}
    quant = value.meta.get(META_KEY) or (next(iter(rounded), None) if inside else None)
    if len(rounded | written) > 1 or (quant is None and rounded):
        return None
    if quant is None and kind.dtype != ir.DataType.FLOAT and not (floating and _is_open(value)):
        return None
    permutes = [n for n in nodes if n.op_type in PERMUTES]
    if len(permutes) > 1:
        return None
    return Border(
        name=outer.name or "",
        type=kind,
        written=next(iter(written), None),
        value=value,
        quant=quant,
        turn=_permutation(value, permutes, inside=inside) if any(map(_moves, nodes)) else None,
        nodes=tuple(nodes),
    )


def _is_open(value: ir.Value) -> bool:
    """Whether a value of a float model is rounded where that is quantised, as most are."""
    producer = value.producer()
    return producer is None or FLOAT_KEY not in producer.metadata_props


def _is_free(
    nodes: Sequence[ir.Node], outside: Sequence[int], value: Sequence[int], inside: bool
) -> bool:
    """Whether they are changes of view of the same bytes, as `lower` takes them."""
    same = feature_shape(outside) == feature_shape(value)
    target = value if inside else outside
    views = all(n.op_type == "Reshape" for n in nodes)
    return views and is_map(outside) and (same or len(target) != 4)


def _permutation(value: ir.Value, permutes: Sequence[ir.Node], *, inside: bool) -> AxisPermutation:
    """Axis permutation of a port. inside: the nodes compute the value, not the user's array."""
    shape = _sizes(value)
    if not permutes:
        return AxisPermutation(value=shape, axes=shape, order=tuple(range(len(shape))))
    before, order = _axes_and_order(permutes[0])
    if not inside:
        return AxisPermutation(value=shape, axes=before, order=order)
    after = tuple(before[axis] for axis in order)
    return AxisPermutation(value=shape, axes=after, order=tuple(int(i) for i in np.argsort(order)))


def _axes_and_order(node: ir.Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Axes of what a node reads, and their order in what it writes."""
    shape = _sizes(node.inputs[0])
    if node.op_type == "Transpose":
        return shape, tuple(node.attributes.get_ints("perm", range(len(shape))[::-1]))
    (n, c, h, w), b = shape, node.attributes.get_int("blocksize", 1)
    if node.op_type == "SpaceToDepth":
        return (n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4)
    if node.attributes.get_string("mode", "DCR") == "DCR":
        return (n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2)
    return (n, c // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3)


def _sizes(value: ir.Value | None) -> tuple[int, ...]:
    """The static shape, () where it is unknown or has dynamic sizes."""
    dims = () if value is None or value.shape is None else tuple(value.shape)
    known = tuple(d for d in dims if isinstance(d, int) and d > 0)
    return known if len(known) == len(dims) else ()
