"""Where groups lie in an ONNX model: it is cut at the values that groups hand to each other.

A group's *body* is everything its results need, back to the values it reads; what no body holds
stays outside. Cutting moves operators, it never changes one, so whatever the cut, the model
computes what it did. Only nodes without work of their own (`COPIED`) may stand in several places.

In a quantised model the cut runs through int8 tensors: QuantizeLinear ends a group and
DequantizeLinear begins the next. Several QuantizeLinear of one value (foreign models) are that
value under several names, unless it was rounded before: then each scale is a value of its own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
from msgspec import Struct

from opu_fuse.dfg.graph import Dfg, Kind
from opu_fuse.fuse.partition import Group, Partition
from opu_fuse.model.operator_sets import UNMOVED

COPIED = UNMOVED | {"DequantizeLinear"}
"""Operators that stand in every body that needs them."""
_OUTSIDE = -1


class Body(Struct, frozen=True, kw_only=True):
    """nodes: positions in the model's graph, ascending; results: names of values read outside."""

    nodes: tuple[int, ...]
    results: tuple[str, ...]


class Cut(Struct, frozen=True, kw_only=True):
    """bodies: by group index; outside: positions of the nodes that stay, ascending; left: why a
    group (by index) has no body, its nodes stay outside.
    """

    bodies: Mapping[int, Body]
    outside: tuple[int, ...]
    left: Mapping[int, str]


def cut(dfg: Dfg, partition: Partition, graph: onnx.GraphProto) -> Cut:
    """Find the groups of a legal partition in a model: the one the DFG was built from, or its QDQ
    form. Groups of views only have no body and no reason.
    """
    groups = {g.index: g for g in partition.groups if not only_views(dfg, g)}
    left: dict[int, str] = {}
    while True:
        map_ = _Map(dfg, partition, graph, [g for i, g in groups.items() if i not in left])
        found = _place(map_)
        if not map_.refused:
            bodies, outside = found
            return Cut(bodies=bodies, outside=outside, left=dict(sorted(left.items())))
        left |= map_.refused


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names of the values a node reads, in order; of its subgraphs all that they read."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for subgraph in (attribute.g, *attribute.graphs):
            for inner in subgraph.node:
                yield from reads(inner)
            yield from (o.name for o in subgraph.output)


def only_views(dfg: Dfg, group: Group) -> bool:
    """True for groups without work."""
    return all(dfg[m.node].is_virtual for m in group.matches)


class _Map:
    """Names of one model and what they mean for the groups.

    ports: DFG value that only a port's nodes part from the user's -> what the model calls it;
    entries[g]: names that end the way back from the results of group g; owner: name -> group whose
    result it is; home: operator (no view) -> its group, _OUTSIDE on the host; refused: groups that
    cannot be placed, with the reason.
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
        homes = {h.node: _OUTSIDE for h in partition.host}
        homes |= {m.node: g.index for g in partition.groups for m in g.matches}
        self.home = {dfg[n].name: home for n, home in homes.items() if not dfg[n].is_virtual}
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

        Views that only the canonical form has are looked through, upwards and downwards, and what a
        port stands for.
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
        """What a DequantizeLinear reads in place of what it makes."""
        node = self._maker(name)
        return node.input[0] if node and node.op_type == "DequantizeLinear" else name

    def _names(self, border: str) -> tuple[str, ...]:
        """A value and its rounded forms, but those that are values of their own."""
        made_by = self._maker(border)
        real = border
        if made_by is not None and made_by.op_type == "QuantizeLinear":
            real = made_by.input[0]
        before = self._maker(real)
        known = before is not None and before.op_type == "DequantizeLinear" and real != border
        forms = [n for n in self.rounders.get(real, ()) if n not in self.tensors]
        return tuple(dict.fromkeys((border, *(() if known else (real,)), *forms)))

    def _maker(self, name: str) -> onnx.NodeProto | None:
        return self.nodes[self.producer[name]] if name in self.producer else None


def _parts(dfg: Dfg, index: int) -> tuple[int, ...]:
    """The results of an operator with several, else the node itself."""
    parts = [u for u in dfg.users[index] if dfg[u].kind is Kind.TUPLE_GET]
    return tuple(parts) or (index,)


def _place(map_: _Map) -> tuple[dict[int, Body], tuple[int, ...]]:
    """Walk back from the model's outputs, through bodies as wholes."""
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
            nodes, entered = _way_back(map_, group, name)
            bodies.setdefault(group, set()).update(nodes)
            results.setdefault(group, []).append(name)
            stack.extend(entered)
        elif name in map_.producer:
            state = map_.producer[name]
            outside.add(state)
            stack.extend(reads(map_.nodes[state]))
    _refuse_doubles(map_, bodies, outside)
    found = {
        group: Body(nodes=tuple(sorted(nodes)), results=tuple(sorted(results[group])))
        for group, nodes in sorted(bodies.items())
    }
    return found, tuple(sorted(outside))


def _way_back(map_: _Map, group: int, result: str) -> tuple[set[int], list[str]]:
    """(nodes that a result of a group needs, names it enters with); notes why a body is none."""
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
        if map_.home.get(node.name, group) != group:
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
