"""Groups as functions of an ONNX model.

Each group becomes one function of the domain `opu_fuse`, and one call of it in the graph. The model
stays the model: same inputs, outputs, operators and numbers, so ONNX Runtime computes the same bits
and Netron shows what the machine does in one pass as one node.

* Computed values from outside are the first parameters, each once, in the order in which the body
  reads them; then constants. Weights, scales and zero points stay initialisers of the main graph: a
  function holds no data.
* A convolution's bias is its operand here and goes with it. Host operators, QuantizeLinear at the
  model's inputs, DequantizeLinear at its outputs and groups of views only stay as they are.
* A group that the model does not show (a foreign quantised model may compute two of our groups by
  one of its nodes) is left: its nodes stay in the graph, and the model's metadata says why.
"""

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
from msgspec import Struct
from onnx import helper

from opu_fuse.dfg.graph import Dfg
from opu_fuse.errors import InternalError
from opu_fuse.fuse.model_cuts import Body, Cut, cut, only_views, reads
from opu_fuse.fuse.partition import Group, Partition
from opu_fuse.fuse.strategies.registry import require_legal
from opu_fuse.model.opsets import STANDARD

DOMAIN = "opu_fuse"
DOMAIN_VERSION = 1
IR_VERSION = 10
"""The first one in which functions and nodes carry metadata."""

GROUP_KEY, OPERATORS_KEY, SOURCE_KEY, REASONS_KEY = (
    "opu_fuse.group",
    "opu_fuse.operators",
    "opu_fuse.source",
    "opu_fuse.reasons",
)
"""Metadata of a function: number of the group; a line `name: operator on module` for each of its
operators; their names in the user's model; a line for each value that leaves it, and why there.
"""
HOST_KEY = "opu_fuse.host"
"""Metadata of a node in the graph: why it stays on the host."""
LEFT_KEY = "opu_fuse.not_outlined"
"""Metadata of the model: a line `group: reason` for each group that became no function."""


class _Item(Struct, frozen=True, kw_only=True):
    """A node of the new graph, and where it stood (its group's last node) in the old one."""

    state: int
    node: onnx.NodeProto


def outline(
    dfg: Dfg,
    partition: Partition,
    model: onnx.ModelProto,
    numbers: Mapping[int, int] | None = None,
    tensors: Sequence[onnx.TensorProto] | None = None,
) -> onnx.ModelProto:
    """A new model with the groups of a partition as functions; the argument is not changed.

    model: what the DFG stands for, as QDQ model (`Prepared.qdq`) or as float canonical model.
    numbers: group index -> number in the program, -1 without one (default: place among the groups
    that are not just views). tensors: what stands for the model's initialisers in the new one
    (default: they themselves). Raises PartitionError for an illegal partition.
    """
    require_legal(dfg, partition)
    groups = {g.index: g for g in partition.groups if not only_views(dfg, g)}
    if numbers is None:
        numbers = {index: place for place, index in enumerate(groups)}
    found = cut(dfg, partition, model.graph)
    outlined = {index: groups[index] for index in found.bodies}
    names = _function_names(dfg, outlined.values())
    reasons = _reasons(dfg, partition)
    facts = {i: _facts(dfg, g, numbers.get(i, -1), reasons) for i, g in outlined.items()}
    constants = {t.name for t in model.graph.initializer}
    functions = [
        _function(model, body, names[index], facts[index], constants)
        for index, body in found.bodies.items()
    ]
    calls = [
        _Item(
            state=body.nodes[-1],
            node=helper.make_node(
                f.name, f.input, f.output, name=group_name(dfg, groups[index]), domain=DOMAIN
            ),
        )
        for (index, body), f in zip(found.bodies.items(), functions, strict=True)
    ]
    left = [f"{group_name(dfg, groups[i])}: {reason}" for i, reason in found.left.items()]
    items = [*_outside(dfg, partition, model, found), *calls]
    return _assemble(model, items, functions, left, tensors or model.graph.initializer)


def group_name(dfg: Dfg, group: Group) -> str:
    """`conv1 + relu1 + pool1`: the operators of a group, without biases and views."""
    nodes = [dfg[m.node] for m in group.matches]
    return " + ".join(n.name for n in nodes if n.owner is None and not n.is_virtual)


def _function_names(dfg: Dfg, groups: Iterable[Group]) -> dict[int, str]:
    """Identifiers, each once: the letters, digits and `_` of the group's name."""
    names: dict[int, str] = {}
    taken: set[str] = set()
    for group in groups:
        name = re.sub(r"\W+", "_", group_name(dfg, group).replace(" + ", "__"), flags=re.ASCII)
        name = f"_{name}" if name[:1].isdigit() else name
        unique, count = name, 1
        while unique in taken:
            unique, count = f"{name}_{count}", count + 1
        taken.add(unique)
        names[group.index] = unique
    return names


def _facts(dfg: Dfg, group: Group, number: int, reasons: Mapping[int, list[str]]) -> dict[str, str]:
    nodes = [(dfg[m.node], m.module) for m in group.matches]
    sources = dict.fromkeys(s for node, _ in nodes for s in node.source)
    return {
        GROUP_KEY: str(number),
        OPERATORS_KEY: "\n".join(
            f"{node.name}: {node.op}{f' on {module}' if module else ''}" for node, module in nodes
        ),
        SOURCE_KEY: ",".join(sources),
        REASONS_KEY: "\n".join(line for node, _ in nodes for line in reasons.get(node.index, ())),
    }


def _reasons(dfg: Dfg, partition: Partition) -> dict[int, list[str]]:
    """Node -> `to <reader>: <reason>` of every boundary it is the source of."""
    found: dict[int, list[str]] = {}
    for b in partition.boundaries:
        found.setdefault(b.source, []).append(f"to {dfg[b.target].name}: {b.reason}")
    return found


def _function(
    model: onnx.ModelProto, body: Body, name: str, facts: Mapping[str, str], constants: set[str]
) -> onnx.FunctionProto:
    nodes = [model.graph.node[i] for i in body.nodes]
    versions = {o.domain: o.version for o in model.opset_import}
    domains = dict.fromkeys("" if n.domain in STANDARD else n.domain for n in nodes)
    function = helper.make_function(
        DOMAIN,
        name,
        _parameters(nodes, constants),
        body.results,
        nodes,
        [helper.make_opsetid(d, versions[d]) for d in domains],
        doc_string=f"group {facts[GROUP_KEY]}",
    )
    helper.set_metadata_props(function, dict(facts))
    return function


def _parameters(nodes: Sequence[onnx.NodeProto], constants: set[str]) -> list[str]:
    made = {name for node in nodes for name in node.output}
    outer = dict.fromkeys(name for node in nodes for name in reads(node) if name not in made)
    return [n for n in outer if n not in constants] + [n for n in outer if n in constants]


def _outside(dfg: Dfg, partition: Partition, model: onnx.ModelProto, found: Cut) -> Iterator[_Item]:
    """The nodes that stay, host operators with the reason."""
    why = {dfg[h.node].name: h.reason for h in partition.host}
    for state in found.outside:
        node = onnx.NodeProto()
        node.CopyFrom(model.graph.node[state])
        if node.name in why:
            node.metadata_props.add(key=HOST_KEY, value=why[node.name])
        yield _Item(state=state, node=node)


def _assemble(
    model: onnx.ModelProto,
    items: Sequence[_Item],
    functions: Sequence[onnx.FunctionProto],
    left: Sequence[str],
    tensors: Iterable[onnx.TensorProto],
) -> onnx.ModelProto:
    new = onnx.ModelProto()
    new.ir_version = max(model.ir_version, IR_VERSION)
    new.producer_name = DOMAIN
    new.opset_import.extend(model.opset_import)
    new.opset_import.add(domain=DOMAIN, version=DOMAIN_VERSION)
    new.functions.extend(functions)
    if left:
        new.metadata_props.add(key=LEFT_KEY, value="\n".join(left))
    graph, old = new.graph, model.graph
    graph.name, graph.doc_string = old.name, old.doc_string
    graph.input.extend(old.input)
    graph.output.extend(old.output)
    graph.node.extend(_in_order(items))
    made = {name for node in graph.node for name in node.output}
    used = {name for node in graph.node for name in reads(node)} | {o.name for o in graph.output}
    graph.initializer.extend(t for t in tensors if t.name in used)
    graph.value_info.extend(v for v in old.value_info if v.name in made)
    return new


def _in_order(items: Sequence[_Item]) -> Iterator[onnx.NodeProto]:
    """Producers first, else as they stood."""
    producer = {name: i for i, item in enumerate(items) for name in item.node.output if name}
    readers: list[list[int]] = [[] for _ in items]
    waits = [0] * len(items)
    for i, item in enumerate(items):
        sources = {producer[name] for name in reads(item.node) if name in producer}
        waits[i] = len(sources)
        for source in sources:
            readers[source].append(i)
    ready = [(item.state, i) for i, item in enumerate(items) if waits[i] == 0]
    heapq.heapify(ready)
    count = 0
    while ready:
        _, i = heapq.heappop(ready)
        count += 1
        yield items[i].node
        for reader in readers[i]:
            waits[reader] -= 1
            if waits[reader] == 0:
                heapq.heappush(ready, (items[reader].state, reader))
    if count < len(items):
        raise InternalError("outlining", "groups of a legal partition wait for each other")
