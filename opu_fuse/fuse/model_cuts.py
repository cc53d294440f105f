"""Cuts an ONNX model into the groups of a partition, at the values that cross group boundaries.

A group's *body* is every node that its results depend on, back to the values it reads. Nodes in no
body remain in the main graph. A cut moves operators and changes none, so the model computes the
same numbers. Only nodes that compute nothing (`COPIED`) may occur in several bodies.

In a quantised model the cut edges are int8 tensors: QuantizeLinear ends a group and
DequantizeLinear begins the next. Several QuantizeLinear of one value (models of other tools) are
aliases of that value. If the value was quantised before, each scale makes a separate value instead.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
from msgspec import Struct

from opu_fuse.dfg.graph import Dfg, Kind
from opu_fuse.fuse.partition import Group, Partition
from opu_fuse.model.operator_sets import UNMOVED

COPIED = UNMOVED | {"DequantizeLinear"}
"""Operators that are duplicated into every body that needs them."""
_OUTSIDE = -1


class Body(Struct, frozen=True, kw_only=True):
    """The nodes of one group.

    nodes: positions in the model's graph, ascending; results: names of values read outside.
    """

    nodes: tuple[int, ...]
    results: tuple[str, ...]


class Cut(Struct, frozen=True, kw_only=True):
    """A model cut into groups.

    bodies: by group index; outside: positions of the nodes of the main graph, ascending; left: by
    index of a group without body, the reason (its nodes remain in the main graph).
    """

    bodies: Mapping[int, Body]
    outside: tuple[int, ...]
    left: Mapping[int, str]


def cut(dfg: Dfg, partition: Partition, graph: onnx.GraphProto) -> Cut:
    """Find the groups of a legal partition in a model: the one the DFG was built from, or its QDQ
    form. Groups of views only have no body and no reason.
    """
    groups = {g.index: g for g in partition.groups if not only_views(dfg, g)}
    without_body: dict[int, str] = {}
    while True:
        map_ = _Map(dfg, partition, graph, [g for i, g in groups.items() if i not in without_body])
        placed = _place(map_)
        if not map_.refused:
            bodies, outside = placed
            return Cut(bodies=bodies, outside=outside, left=dict(sorted(without_body.items())))
        without_body |= map_.refused


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names of the values that a node and its subgraphs read, in order."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for subgraph in (attribute.g, *attribute.graphs):
            for inner in subgraph.node:
                yield from reads(inner)
            yield from (o.name for o in subgraph.output)


def only_views(dfg: Dfg, group: Group) -> bool:
    """Whether a group holds only views and so computes nothing."""
    return all(dfg[m.node].is_virtual for m in group.matches)


class _Map:
    """Names of one model and their role in the groups.

    ports: DFG value next to a graph port (only the port's nodes separate it from the user's value)
    -> its name in the model.
    entries[g]: names at which the backward traversal of group g ends.
    owner: name -> group whose result it is.
    group_of: operator (no view) -> its group, _OUTSIDE on the host.
    refused: groups that cannot be cut out, with the reason.
    """

    def __init__(
        self, dfg: Dfg, partition: Partition, graph: onnx.GraphProto, groups: Sequence[Group]
    ) -> None:
        self.graph = graph
        self.nodes = graph.node
        self.producer = {name: i for i, n in enumerate(graph.node) for name in n.output if name}
        self.constants = {t.name for t in graph.initializer}
        self.inputs = {v.name for v in graph.input} - self.constants
        self.rounders: dict[str, list[str]] = {}
        for node in graph.node:
            if node.op_type == "QuantizeLinear":
                self.rounders.setdefault(node.input[0], []).append(node.output[0])
        self.tensors = {node.tensor for node in dfg.nodes}
        self.ports = {i: b.name for i, b in zip(dfg.inputs, dfg.entries, strict=True) if b}
        exits = {i: b.name for i, b in zip(dfg.outputs, dfg.exits, strict=True) if b}
        self.ports |= {i: self._rounded(name) for i, name in exits.items()}
        by_node = {h.node: _OUTSIDE for h in partition.host}
        by_node |= {m.node: g.index for g in partition.groups for m in g.matches}
        self.group_of = {dfg[n].name: g for n, g in by_node.items() if not dfg[n].is_virtual}
        self.refused: dict[int, str] = {}
        self.entries: dict[int, frozenset[str]] = {}
        self.owner: dict[str, int] = {}
        for group in groups:
            self._add_group(dfg, group)

    def _add_group(self, dfg: Dfg, group: Group) -> None:
        ends = [self._border(dfg, i) for o in group.outputs for i in _parts(dfg, o)]
        if not all(ends):
            self.refused[group.index] = "the model has no value where the group ends"
            return
        self.entries[group.index] = frozenset(
            name for i in group.inputs for name in self._names(self._border(dfg, i))
        )
        self.owner |= {name: group.index for end in ends for name in self._names(end)}

    def _border(self, dfg: Dfg, index: int) -> str:
        """The name under which a DFG value leaves or enters a group, "" if the model has none.

        Looks through views that only the canonical form has, upwards and downwards, and through
        the nodes of a port.
        """
        above, below = dfg[index], dfg[index]
        while True:
            for name in (above.tensor, above.value, below.tensor, below.value):
                if name in self.producer or name in self.inputs:
                    return name
            readers = dfg.users[below.index]
            if above.is_virtual:
                above = dfg[above.operands[0]]
            elif len(readers) == 1 and dfg[readers[0]].is_virtual:
                below = dfg[readers[0]]
            else:
                return self.ports.get(above.index) or self.ports.get(below.index, "")

    def _rounded(self, name: str) -> str:
        """Name of the quantised tensor if a DequantizeLinear produces `name`, else `name`."""
        node = self._maker(name)
        return node.input[0] if node and node.op_type == "DequantizeLinear" else name

    def _names(self, border: str) -> tuple[str, ...]:
        """Names of a value and of its quantised aliases, without those that are separate values."""
        producer = self._maker(border)
        real = border
        if producer is not None and producer.op_type == "QuantizeLinear":
            real = producer.input[0]
        real_producer = self._maker(real)
        requantised = (
            real_producer is not None
            and real_producer.op_type == "DequantizeLinear"
            and real != border
        )
        forms = [n for n in self.rounders.get(real, ()) if n not in self.tensors]
        return tuple(dict.fromkeys((border, *(() if requantised else (real,)), *forms)))

    def _maker(self, name: str) -> onnx.NodeProto | None:
        return self.nodes[self.producer[name]] if name in self.producer else None


def _parts(dfg: Dfg, index: int) -> tuple[int, ...]:
    """The tuple elements of an operator with several results, else the node itself."""
    parts = [u for u in dfg.users[index] if dfg[u].kind is Kind.TUPLE_GET]
    return tuple(parts) or (index,)


def _place(map_: _Map) -> tuple[dict[int, Body], tuple[int, ...]]:
    """Backward traversal from the model's outputs; a body is traversed as one node."""
    bodies: dict[int, set[int]] = {}
    results: dict[int, list[str]] = {}
    outside: set[int] = set()
    seen: set[str] = set()
    stack = [o.name for o in reversed(map_.graph.output)]
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        group = map_.owner.get(name)
        if group is not None:
            nodes, entered = _backward_traversal(map_, group, name)
            bodies.setdefault(group, set()).update(nodes)
            results.setdefault(group, []).append(name)
            stack.extend(entered)
        elif name in map_.producer:
            state = map_.producer[name]
            outside.add(state)
            stack.extend(reads(map_.nodes[state]))
    _refuse_doubles(map_, bodies, outside)
    body_of = {
        group: Body(nodes=tuple(sorted(nodes)), results=tuple(sorted(results[group])))
        for group, nodes in sorted(bodies.items())
    }
    return body_of, tuple(sorted(outside))


def _backward_traversal(map_: _Map, group: int, result: str) -> tuple[set[int], list[str]]:
    """(nodes that a result of a group depends on, names of the values that enter the group).

    Records in `refused` why the nodes are no valid body.
    """
    nodes: set[int] = set()
    entered: dict[str, None] = {}
    stack = [result]
    while stack:
        name = stack.pop()
        if name in map_.entries[group]:
            entered[name] = None
            continue
        state = map_.producer.get(name)
        if name in map_.constants or state in nodes:
            continue
        if state is None or map_.owner.get(name, group) != group:
            map_.refused[group] = f"the model has no border where it would read {name}"
            continue
        node = map_.nodes[state]
        if map_.group_of.get(node.name, group) != group:
            map_.refused[group] = f"the model computes {node.name} inside it"
        nodes.add(state)
        stack.extend(reads(node))
    return nodes, list(entered)


def _refuse_doubles(map_: _Map, bodies: Mapping[int, set[int]], outside: Iterable[int]) -> None:
    holder = dict.fromkeys(outside, _OUTSIDE)
    for group, nodes in bodies.items():
        for state in sorted(nodes):
            node = map_.nodes[state]
            if holder.setdefault(state, group) != group and node.op_type not in COPIED:
                map_.refused[group] = f"{node.name or node.op_type} is also needed outside of it"
