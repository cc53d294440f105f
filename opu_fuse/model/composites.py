"""Nodes of a model that are one operator together: functions of one value, and channel shuffles.

A *table* is a function of one number, applied to each element of one value: a single node such as
Sigmoid, or all nodes between that value and the result (x * sigmoid(x), a Gelu spelt with Erf, a
Where that chooses by comparing it) when nobody else reads the values between. A *shuffle* takes
whole channels of one map, and zeros: a Reshape, Transpose, Reshape that interleaves groups of
channels, a Gather or Slice of channels, a Pad by channels of zeros where a rewrite made it one. The
quantiser rounds only their results, and in the data-flow graph each is one node.

What other modules do alone is no table: Relu, Clip, LeakyRelu that does not steepen, sums, products
with a single number. They become part of one where they lie between its value and its result; sums
and products with a single number right before or behind it, too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from msgspec import Struct, field

from opu_fuse.model.known_values import const_array
from opu_fuse.model.known_values import known_shape as _dims
from opu_fuse.model.operator_sets import COMMUTATIVE, ELEMENT_WISE, FUNCTIONS, TRUTHS
from opu_fuse.model.opsets import STANDARD
from opu_fuse.model.preprocessing import preprocessing_nodes
from opu_fuse.quant import META_KEY, REWRITE_KEY

TABLE, SHUFFLE = "table", "shuffle"

_CHOICE = "Where"
"""A table by itself, where what it chooses by and between are functions of one number."""
_REALS = ELEMENT_WISE | {_CHOICE}


class Composite(Struct, frozen=True, kw_only=True):
    """op: TABLE or SHUFFLE; source: the value it reads; nodes: in graph order, the last one writes
    the result; attrs: `functions` of a table (operator types in order), `order` of a shuffle (for
    each channel of the result the one of the source, -1 for zeros).
    """

    op: str
    source: ir.Value
    nodes: tuple[ir.Node, ...]
    attrs: Mapping[str, Any]


def composites(graph: ir.Graph) -> dict[ir.Node, Composite]:
    """All composites of a canonical graph, by the node that writes the result. What a port does to
    bytes is none.
    """
    tables, at_ports = _Tables(), preprocessing_nodes(graph)
    found: dict[ir.Node, Composite] = {}
    place: dict[ir.Node, int] = {}
    for node in graph:
        place[node] = len(place)
        if node in at_ports:
            continue
        tables.visit(node)
        if (shuffle := _shuffle(node)) is not None:
            found[node] = shuffle
    for root, part in tables.parts.items():
        nodes = tuple(sorted(part.nodes, key=place.__getitem__))
        functions = {"functions": tuple(n.op_type for n in nodes)}
        found[root] = Composite(op=TABLE, source=part.source, nodes=nodes, attrs=functions)
    return found


def is_slope(alpha: float) -> bool:
    """Whether a comparator's slopes hold that of a LeakyRelu."""
    return 0.0 <= alpha <= 1.0


def slice_ranges(node: ir.Node) -> list[range] | None:
    """Which places along every axis a Slice takes; None where that is not known."""
    numbers = [const_array(v) for v in node.inputs[1:]]
    starts, ends, axes, steps = (*numbers, *[None] * (4 - len(numbers)))
    given = [data is not None or not v for data, v in zip(numbers, node.inputs[1:], strict=True)]
    shape = _dims(node.inputs[0]) if node.inputs[0] is not None else ()
    if starts is None or ends is None or not shape or not all(given):
        return None
    axes = np.arange(starts.size) if axes is None else axes
    steps = np.ones(starts.size, np.int64) if steps is None else steps
    taken = [range(size) for size in shape]
    for axis, *part in np.stack([axes, starts, ends, steps], axis=1).tolist():
        taken[axis] = range(shape[axis])[slice(*part)]
    return taken


def real_array(value: ir.Value | None) -> np.ndarray | None:
    """The real numbers that a constant value stands for, None for computed ones."""
    data = const_array(value)
    if data is None or value is None or (quant := value.meta.get(META_KEY)) is None:
        return data
    return quant.dequantize(data)


class _Part(Struct):
    """A table in the making: the value it reads, its nodes."""

    source: ir.Value
    nodes: set[ir.Node]


class _Tables(Struct):
    """Invariant: `above[v]` is the nearest value of which v, element by element, is a function (of
    nothing else); `depth[v]` counts such steps; `parts` holds disjoint tables by their last node.
    """

    above: dict[ir.Value, ir.Value] = field(default_factory=dict)
    depth: dict[ir.Value, int] = field(default_factory=dict)
    parts: dict[ir.Node, _Part] = field(default_factory=dict)

    def visit(self, node: ir.Node) -> None:
        """One node behind all that it reads."""
        operands = _operands(node)
        base = self._common(operands) if operands else None
        if base is None:
            return
        result = node.outputs[0]
        self.above[result], self.depth[result] = base, self.depth.get(base, 0) + 1
        if not _is_function(node):
            self._join_behind(node, base)
            return
        part = self._back(node, base) if base.dtype == ir.DataType.FLOAT else None
        if part is None:
            return
        for other in part.nodes & self.parts.keys():
            del self.parts[other]
        self._join_before(part)
        self.parts[node] = part

    def _common(self, operands: Sequence[ir.Value]) -> ir.Value | None:
        """The nearest value that all operands are functions of."""
        first, *others = operands
        for value in others:
            other = value
            while first is not other:
                if self.depth.get(first, 0) < self.depth.get(other, 0):
                    first, other = other, first
                if first not in self.above:
                    return None
                first = self.above[first]
        return first

    def _back(self, node: ir.Node, base: ir.Value) -> _Part | None:
        """The nodes from a result back to a value; None when a value between is read elsewhere."""
        nodes = {node}
        stack = [node]
        while stack:
            for value in _operands(stack.pop()):
                producer = value.producer()
                if value is not base and producer is not None and producer not in nodes:
                    nodes.add(producer)
                    stack.append(producer)
        between = (n.outputs[0] for n in nodes if n is not node)
        return _Part(base, nodes) if all(_read_only_by(v, nodes) for v in between) else None

    def _join_behind(self, node: ir.Node, base: ir.Value) -> None:
        producer = base.producer()
        if node.op_type in COMMUTATIVE and producer in self.parts and _read_only_by(base, {node}):
            part = self.parts.pop(producer)
            part.nodes.add(node)
            self.parts[node] = part

    def _join_before(self, part: _Part) -> None:
        while _read_only_by(part.source, part.nodes):
            producer = part.source.producer()
            before = self.parts.pop(producer, None) if producer else None
            if before is not None:
                part.nodes |= before.nodes
                part.source = before.source
            elif producer and producer.op_type in COMMUTATIVE and len(_operands(producer)) == 1:
                part.nodes.add(producer)
                part.source = _operands(producer)[0]
            else:
                return


def _operands(node: ir.Node) -> list[ir.Value]:
    """The computed values an element-wise node reads, each once; none unless every other operand is
    a single number and all shapes are that of the result.
    """
    truth = node.op_type in TRUTHS
    known = node.domain in STANDARD and (truth or node.op_type in _REALS)
    wanted = ir.DataType.BOOL if truth else ir.DataType.FLOAT
    if not known or len(node.outputs) != 1 or node.outputs[0].dtype != wanted:
        return []
    shape = node.outputs[0].shape
    if shape is None or not all(isinstance(d, int) for d in shape):
        return []
    found: dict[ir.Value, None] = {}
    for value in node.inputs:
        if value is None:
            continue
        data = const_array(value)
        if data is None and value.shape == shape:
            found[value] = None
        elif data is None or data.size != 1 or data.ndim > len(shape):
            return []
    return list(found)


def _is_function(node: ir.Node) -> bool:
    """A table by itself, whatever else is in it."""
    match node.op_type:
        case "LeakyRelu":
            return not is_slope(node.attributes.get_float("alpha", 0.01))
        case "Mul":
            return all(const_array(v) is None for v in node.inputs)
        case op:
            return op in FUNCTIONS or op == _CHOICE


def _read_only_by(value: ir.Value, nodes: set[ir.Node]) -> bool:
    return not value.is_graph_output() and all(u.node in nodes for u in value.uses())


def _shuffle(last: ir.Node) -> Composite | None:
    """Case 1: one node. Case 2: three that interleave."""
    if last.domain not in STANDARD:
        return None
    if last.op_type in _CHOOSERS:  # Case 1
        source = last.inputs[0]
        order = None if source is None else _chosen(last, source)
        if source is None or order is None:
            return None
        return Composite(op=SHUFFLE, source=source, nodes=(last,), attrs={"order": order})
    return interleaving(last) if last.op_type == "Reshape" else None


def _chosen(node: ir.Node, source: ir.Value) -> tuple[int, ...] | None:
    """`order` of a Gather, Slice or Pad of an image's channels; None where it does more."""
    shape, result = _dims(source), _dims(node.outputs[0])
    rest = [real_array(v) for v in node.inputs[1:]]
    known = [data is not None or not v for data, v in zip(rest, node.inputs[1:], strict=True)]
    if len(shape) != 4 or not all(known) or (1, *shape[2:]) != (*result[:1], *result[2:]):
        return None
    return _CHOOSERS[node.op_type](node, shape, *rest)


def _gathered(
    node: ir.Node, shape: tuple[int, ...], indices: np.ndarray | None
) -> tuple[int, ...] | None:
    if indices is None or indices.ndim != 1 or node.attributes.get_int("axis", 0) % 4 != 1:
        return None
    return tuple(range(shape[1])[i] for i in indices.tolist())


def _sliced(node: ir.Node, shape: tuple[int, ...], *_: np.ndarray | None) -> tuple[int, ...] | None:
    if (taken := slice_ranges(node)) is None:
        return None
    channels = taken.pop(1)
    return tuple(channels) if taken == [range(size) for size in (1, *shape[2:])] else None


def _padded(
    node: ir.Node,
    shape: tuple[int, ...],
    amounts: np.ndarray | None = None,
    *_: np.ndarray | None,
) -> tuple[int, ...] | None:
    if REWRITE_KEY not in node.metadata_props or amounts is None:
        return None
    first, last = amounts[[1, 5]].tolist()
    return (*(-1,) * first, *range(shape[1]), *(-1,) * last)


_CHOOSERS = {"Gather": _gathered, "Slice": _sliced, "Pad": _padded}
"""What may do no more than take whole channels."""


def interleaving(last: ir.Node) -> Composite | None:
    """[1, g*n, h, w] -> Reshape [(1,) g, n, h, w] -> Transpose [(1,) n, g, h, w] -> Reshape."""
    nodes = [last]
    for _ in range(2):
        value = nodes[-1].inputs[0] if nodes[-1].inputs else None
        before = None if value is None else value.producer()
        if value is None or before is None or not _read_only_by(value, {nodes[-1]}):
            return None
        nodes.append(before)
    kinds = [n.op_type if n.domain in STANDARD else "" for n in nodes]
    source, split = nodes[-1].inputs[0] if nodes[-1].inputs else None, _dims(nodes[-1].outputs[0])
    if kinds != ["Reshape", "Transpose", "Reshape"] or source is None:
        return None
    if any(const_array(n.inputs[1]) is None for n in nodes[::2]):
        return None
    lead = len(split) - 4
    order = tuple(nodes[1].attributes.get_ints("perm", ()))
    swap = (*range(lead), lead + 1, lead, lead + 2, lead + 3)
    shape = _dims(source)
    whole = lead in {0, 1} and split[:lead] == (1,) * lead and order == swap
    if not whole or len(shape) != 4 or shape[2:] != split[-2:] or shape != _dims(last.outputs[0]):
        return None
    numbers = np.arange(shape[1]).reshape(split[lead], -1)
    order = {"order": tuple(numbers.T.reshape(-1).tolist())}
    return Composite(op=SHUFFLE, source=source, nodes=tuple(reversed(nodes)), attrs=order)
