"""Composites: subgraphs that form one operator: a table, a shuffle, a permutation or a norm.

A *table* is a scalar function applied element-wise to one value. It is a single node such as
Sigmoid, or a subgraph between that value and the result: x * sigmoid(x), a Gelu written with Erf, a
Where on a comparison. No node outside the subgraph may read its inner values. A *shuffle* selects
whole channels of one map, or inserts channels of zeros: a Reshape, Transpose, Reshape that
interleaves groups of channels, a Gather or Slice of channels, a Pad by channels that a rewrite has
inserted. A *permutation* exchanges pixels of a map: a Reshape that views them in further axes, a
Transpose of these, a Reshape to the rows and columns of the result; rolls before and after it
belong to it where the machine runs them (`rolls.py`). A *norm* is a normalisation of
the last axis between two Transposes, so that its operand and result have channels first, or of the
last two, so that they have rows first, a division by the first channel (`divisions.py`), or a
Softmax over groups of channels (`grouped_softmax.py`); the host runs it. The quantiser rounds only
the results of tables, shuffles and permutations. Each composite is one node of the data-flow graph.

Operators that other modules compute are no table by themselves: Relu, Clip, LeakyRelu with a slope
in 0..1, sums and products with a scalar. Inside the subgraph of a table they belong to it. So do
sums and products with a scalar immediately before or after it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from msgspec import Struct, field

from opu_fuse.model.divisions import division
from opu_fuse.model.grouped_softmax import grouped_softmax
from opu_fuse.model.known_values import const_array, slice_ranges
from opu_fuse.model.known_values import known_shape as _dims
from opu_fuse.model.operator_sets import COMMUTATIVE, ELEMENT_WISE, FUNCTIONS, NORMS, TRUTHS
from opu_fuse.model.opsets import STANDARD
from opu_fuse.model.preprocessing import preprocessing_nodes
from opu_fuse.model.rolls import nodes_of, read_only_by, rolls, rolls_before, sum_of
from opu_fuse.quant import META_KEY, REWRITE_KEY

TABLE, SHUFFLE, PERMUTE = "table", "shuffle", "permute"
ROWS_FIRST = (0, 2, 1, 3)
"""Permutation before and after a norm of the channels and pixels of each row."""

_CHOICE = "Where"
"""A table by itself, if its condition and both branches are functions of one value."""
_REALS = ELEMENT_WISE | {_CHOICE}


class Composite(Struct, frozen=True, kw_only=True):
    """A subgraph that forms one operator.

    op: TABLE, SHUFFLE, PERMUTE, `pad` (`shifts.py`), or `host:` and the operator type of a norm.
    source: the value it reads.
    nodes: its nodes in graph order. The last one writes the result.
    attrs: `functions` of a table (operator types in order); `order` of a shuffle (for each channel
    of the result the index of the source channel, -1 for zeros); `extents` of a permutation (axes
    in which it views the pixels) and `order` of these in the result, and `before` and `after`, the
    rows and columns by which map and result are rolled back, if any; those of a pad; none of a
    norm.
    """

    op: str
    source: ir.Value
    nodes: tuple[ir.Node, ...]
    attrs: Mapping[str, Any]

    @property
    def is_norm(self) -> bool:
        """Whether it is a norm, which the host runs in floating point."""
        return self.op not in {TABLE, SHUFFLE, PERMUTE}


def composites(graph: ir.Graph) -> dict[ir.Node, Composite]:
    """All composites of a canonical graph, by the node that writes the result.

    Preprocessing nodes, which an input port computes, belong to none.
    """
    at_ports = preprocessing_nodes(graph)
    tables = _Tables(at_ports=at_ports)
    by_result: dict[ir.Node, Composite] = {}
    positions: dict[ir.Node, int] = {}
    for node in graph:
        positions[node] = len(positions)
        if node in at_ports:
            continue
        tables.visit(node)
        if (whole := _shuffle(node) or rolled_permutation(node) or norm_between(node)) is not None:
            for inner in whole.nodes:
                by_result.pop(inner, None)  # what its rolls are next to
            by_result[node] = whole
        if (divided := division(node)) is not None:
            nodes = divided.nodes
            by_result.pop(nodes[0], None)  # the Slice is no shuffle
            by_result[node] = Composite(op="host:Div", source=divided.source, nodes=nodes, attrs={})
        if (parts := grouped_softmax(node)) is not None and (x := parts[0].inputs[0]) is not None:
            by_result[node] = Composite(op="host:Softmax", source=x, nodes=parts, attrs={})
    for root, part in tables.parts.items():
        nodes = tuple(sorted(part.nodes, key=positions.__getitem__))
        functions = {"functions": tuple(n.op_type for n in nodes)}
        by_result[root] = Composite(op=TABLE, source=part.source, nodes=nodes, attrs=functions)
    return by_result


def is_slope(alpha: float) -> bool:
    """Whether a comparator of the machine can compute a LeakyRelu of slope `alpha`."""
    return 0.0 <= alpha <= 1.0


def real_array(value: ir.Value | None) -> np.ndarray | None:
    """Real (dequantised) data of a constant; None for computed values."""
    data = const_array(value)
    if data is None or value is None or (quant := value.meta.get(META_KEY)) is None:
        return data
    return quant.dequantize(data)


class _Part(Struct):
    """A candidate table: the value it reads and its nodes."""

    source: ir.Value
    nodes: set[ir.Node]


class _Tables(Struct):
    """Search for tables in a traversal of the graph in topological order.

    above: for a value the nearest value of which it is an element-wise function. These links form a
    forest; the nearest common ancestor of the operands is the source of a table.
    depth: depth of a value in that forest.
    parts: the tables so far by their last node. They are disjoint.
    at_ports: nodes that belong to no table.
    """

    at_ports: Collection[ir.Node] = ()
    above: dict[ir.Value, ir.Value] = field(default_factory=dict)
    depth: dict[ir.Value, int] = field(default_factory=dict)
    parts: dict[ir.Node, _Part] = field(default_factory=dict)

    def visit(self, node: ir.Node) -> None:
        """Add a node. All nodes that it reads have been added before."""
        operands = _operands(node)
        base = self._common(operands) if operands else None
        if base is None:
            return
        result = node.outputs[0]
        self.above[result], self.depth[result] = base, self.depth.get(base, 0) + 1
        if not _is_function(node):
            self._join_after(node, base)
            return
        part = self._back(node, base) if base.dtype == ir.DataType.FLOAT else None
        if part is None:
            return
        for other in part.nodes & self.parts.keys():
            del self.parts[other]
        self._join_before(part)
        self.parts[node] = part

    def _common(self, operands: Sequence[ir.Value]) -> ir.Value | None:
        """Nearest common ancestor of all operands in the forest `above`; None if there is none."""
        first, *others = operands
        for value in others:  # the deeper of the two moves up until both meet
            other = value
            while first is not other:
                if self.depth.get(first, 0) < self.depth.get(other, 0):
                    first, other = other, first
                if first not in self.above:
                    return None
                first = self.above[first]
        return first

    def _back(self, node: ir.Node, base: ir.Value) -> _Part | None:
        """Table of all nodes between `base` and the result of `node`.

        None if a node outside reads an inner value.
        """
        nodes = {node}
        stack = [node]
        while stack:
            for value in _operands(stack.pop()):
                producer = value.producer()
                if value is not base and producer is not None and producer not in nodes:
                    nodes.add(producer)
                    stack.append(producer)
        between = (n.outputs[0] for n in nodes if n is not node)
        return _Part(base, nodes) if all(read_only_by(v, nodes) for v in between) else None

    def _join_after(self, node: ir.Node, base: ir.Value) -> None:
        """Append a sum or product with a scalar to the table that computes its only operand."""
        producer = base.producer()
        if node.op_type in COMMUTATIVE and producer in self.parts and read_only_by(base, {node}):
            part = self.parts.pop(producer)
            part.nodes.add(node)
            self.parts[node] = part

    def _join_before(self, part: _Part) -> None:
        """Prepend sums and products with a scalar that only this table reads."""
        while read_only_by(part.source, part.nodes):
            producer = part.source.producer()
            before = self.parts.pop(producer, None) if producer else None
            if before is not None:
                part.nodes |= before.nodes
                part.source = before.source
            elif (
                producer
                and producer not in self.at_ports
                and producer.op_type in COMMUTATIVE
                and len(_operands(producer)) == 1
            ):
                part.nodes.add(producer)
                part.source = _operands(producer)[0]
            else:
                return


def _operands(node: ir.Node) -> list[ir.Value]:
    """Distinct computed operands of an element-wise node.

    Empty unless they have the shape of the result, and all other operands are scalar constants.
    """
    truth = node.op_type in TRUTHS
    known = node.domain in STANDARD and (truth or node.op_type in _REALS)
    wanted = ir.DataType.BOOL if truth else ir.DataType.FLOAT
    if not known or len(node.outputs) != 1 or node.outputs[0].dtype != wanted:
        return []
    shape = node.outputs[0].shape
    if shape is None or not all(isinstance(d, int) for d in shape):
        return []
    computed: dict[ir.Value, None] = {}
    for value in node.inputs:
        if value is None:
            continue
        data = const_array(value)
        if data is None and value.shape == shape:
            computed[value] = None
        elif data is None or data.size != 1 or data.ndim > len(shape):
            return []
    return list(computed)


def _is_function(node: ir.Node) -> bool:
    """Whether a node makes its subgraph a table."""
    match node.op_type:
        case "LeakyRelu":
            return not is_slope(node.attributes.get_float("alpha", 0.01))
        case "Mul":
            return all(const_array(v) is None for v in node.inputs)
        case op:
            return op in FUNCTIONS or op == _CHOICE


def _chain_of_three(last: ir.Node) -> list[ir.Node] | None:
    """A node and two predecessors, last node first, each read by its successor alone."""
    nodes = [last]
    for _ in range(2):
        value = nodes[-1].inputs[0] if nodes[-1].inputs else None
        before = None if value is None else value.producer()
        if value is None or before is None or not read_only_by(value, {nodes[-1]}):
            return None
        nodes.append(before)
    return nodes


def norm_between(last: ir.Node) -> Composite | None:
    """Norm whose last node is `last`, else None."""
    nodes = _chain_of_three(last)
    if nodes is None:
        return None
    _, norm, first = nodes
    orders = [tuple(n.attributes.get_ints("perm", ())) for n in (first, last)]
    kinds = [n.op_type for n in (first, last)]
    if norm.op_type not in NORMS or kinds != ["Transpose"] * 2 or len({*map(_domain, nodes)}) > 1:
        return None
    by_rows = orders == [ROWS_FIRST] * 2 and norm.attributes.get_int("axis", -1) == 2
    if not (by_rows or orders == [(0, 2, 3, 1), (0, 3, 1, 2)]) or first.inputs[0] is None:
        return None
    if any(v is not None and const_array(v) is None for v in norm.inputs[1:]):
        return None
    whole = (first, norm, last)
    return Composite(op=f"host:{norm.op_type}", source=first.inputs[0], nodes=whole, attrs={})


def _domain(node: ir.Node) -> str:
    return "" if node.domain in STANDARD else node.domain


def _shuffle(last: ir.Node) -> Composite | None:
    """Shuffle whose last node is `last`, else None.

    Case 1: one node that selects channels. Case 2: three nodes that interleave channels.
    """
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
    """`order` of a Gather, Slice or Pad along the channels; None if it changes anything else."""
    shape, result = _dims(source), _dims(node.outputs[0])
    rest = [real_array(v) for v in node.inputs[1:]]
    known = [data is not None or not v for data, v in zip(rest, node.inputs[1:], strict=True)]
    if len(shape) != 4 or not all(known) or (1, *shape[2:]) != (*result[:1], *result[2:]):
        return None
    return _CHOOSERS[node.op_type](node, shape, *rest)


def _gathered(
    node: ir.Node, shape: tuple[int, ...], indices: np.ndarray | None
) -> tuple[int, ...] | None:
    """`order` of a Gather along the channels, else None."""
    if indices is None or indices.ndim != 1 or node.attributes.get_int("axis", 0) % 4 != 1:
        return None
    return tuple(range(shape[1])[i] for i in indices.tolist())


def _sliced(node: ir.Node, shape: tuple[int, ...], *_: np.ndarray | None) -> tuple[int, ...] | None:
    """`order` of a Slice along the channels, else None."""
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
    """`order` of a Pad by channels of zeros that a rewrite has inserted, else None."""
    if REWRITE_KEY not in node.metadata_props or amounts is None:
        return None
    first, last = amounts[[1, 5]].tolist()
    return (*(-1,) * first, *range(shape[1]), *(-1,) * last)


_CHOOSERS = {"Gather": _gathered, "Slice": _sliced, "Pad": _padded}
"""Operators that may be a channel selection, and the functions that return its `order`."""


def interleaving(last: ir.Node) -> Composite | None:
    """Shuffle of three nodes that interleaves g groups of n channels, else None.

    [1, g*n, h, w] -> Reshape [(1,) g, n, h, w] -> Transpose [(1,) n, g, h, w] -> Reshape
    """
    nodes = _chain_of_three(last)
    if nodes is None:
        return None
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


def rolled_permutation(last: ir.Node) -> Composite | None:
    """Permutation with the rolls before and after it, or rolls alone, else None."""
    if not rolls(last.graph):
        return permutation(last)
    after = [*rolls_before(last.outputs[0], None)]
    value = after[-1].source if after else last.outputs[0]
    producer = value.producer()
    alone = not after or read_only_by(value, {*after[-1].nodes})
    inner = permutation(producer) if producer is not None and alone else None
    before = [*rolls_before(inner.source, {inner.nodes[0]})] if inner is not None else []
    source = (before or ([] if inner is None else [inner]) or after or [None])[-1]
    if source is None or not (before or after):
        return inner
    if source.source.is_graph_input() or last.outputs[0].is_graph_output():
        return permutation(last)  # the port does it
    if inner is None:
        shape, attrs = _dims(source.source), {"order": (0, 1)}
        attrs |= {"extents": shape[2:], "before": sum_of(after), "after": (0, 0)}
        after, before = [], after
    else:
        attrs = {**inner.attrs, "before": sum_of(before), "after": sum_of(after)}
    between = () if inner is None else inner.nodes
    nodes = (*nodes_of(before), *between, *nodes_of(after))
    return Composite(op=PERMUTE, source=source.source, nodes=nodes, attrs=attrs)


def permutation(last: ir.Node) -> Composite | None:
    """Permutation of pixels whose last node is `last`, else None.

    Case 1: a Transpose exchanges rows and columns of a map (1, c, h, w). Case 2: further axes.
    [1, c, h, w] -> Reshape [1, c, ...] -> Transpose of the axes after c -> Reshape [1, c, i, j]
    """
    nodes = [last] if last.op_type == "Transpose" else _chain_of_three(last)
    if nodes is None or any(n.domain not in STANDARD for n in nodes):
        return None
    if [n.op_type for n in nodes] not in (["Transpose"], ["Reshape", "Transpose", "Reshape"]):
        return None
    turn, source = nodes[len(nodes) // 2], nodes[-1].inputs[0]
    if source is None or source.is_graph_input() or last.outputs[0].is_graph_output():
        return None  # the port does it
    shape, axes, made = _dims(source), _dims(turn.inputs[0]), _dims(last.outputs[0])  # type: ignore[arg-type]  # a Transpose has one
    order = tuple(turn.attributes.get_ints("perm", ()))
    if len(shape) != 4 or len(made) != 4 or min(shape) < 1 or order[:2] != (0, 1):
        return None
    if not (shape[0] == 1 and shape[:2] == axes[:2] == made[:2]) or order[2:] == (2, 3):
        return None
    if any(const_array(n.inputs[1]) is None for n in nodes[:1] + nodes[2:] if len(nodes) > 1):
        return None
    attrs = {"extents": axes[2:], "order": tuple(axis - 2 for axis in order[2:])}
    return Composite(op=PERMUTE, source=source, nodes=tuple(reversed(nodes)), attrs=attrs)
