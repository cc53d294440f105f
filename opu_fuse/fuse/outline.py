"""Groups as functions of an ONNX model.

Each group becomes one function of the domain `opu_fuse`, and one call of it in the graph. Inputs,
outputs, operators and numbers of the model do not change. ONNX Runtime therefore computes the same
bits, and Netron shows one pass of the machine as one node.

* A function's first parameters are the computed values from outside, each once, in the order in
  which the body reads them. The constants follow. Weights, scales and zero points remain
  initialisers of the main graph: a function holds no data.
* A convolution's bias is an operand of the ONNX node and needs no node of its own. Host operators,
  QuantizeLinear at the model's inputs, DequantizeLinear at its outputs and view-only groups remain
  as they are.
* A group that the model cannot express is not outlined (in a quantised model of another tool, one
  node may compute two of our groups). Its nodes remain in the main graph, and the model's metadata
  holds the reason.
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
"""The first IR version in which functions and nodes have metadata."""

GROUP_KEY, OPERATORS_KEY, SOURCE_KEY, REASONS_KEY = (
    "opu_fuse.group",
    "opu_fuse.operators",
    "opu_fuse.source",
    "opu_fuse.reasons",
)
"""Metadata of a function: number of the group; a line `name: operator on module` for each of its
operators; their names in the user's model; a line with the reason for each value that leaves it.
"""
HOST_KEY = "opu_fuse.host"
"""Metadata of a node in the main graph: why it runs on the host."""
LEFT_KEY = "opu_fuse.not_outlined"
"""Metadata of the model: a line `group: reason` for each group that is not outlined."""


class _Item(Struct, frozen=True, kw_only=True):
    """A node of the new graph.

    state: its position in the old graph; for a call, that of the group's last node.
    """

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

    model: the model of the DFG, as QDQ model (`Prepared.qdq`) or as float canonical model.
    numbers: group index -> number in the program, -1 without one (default: position among the
    groups that are not view-only). tensors: replacements for the model's initialisers in the new
    model (default: the initialisers themselves). Raises PartitionError for an illegal partition.
    """
    require_legal(dfg, partition)
    groups = {g.index: g for g in partition.groups if not only_views(dfg, g)}
    if numbers is None:
        numbers = {index: number for number, index in enumerate(groups)}
    model_cut = cut(dfg, partition, model.graph)
    outlined = {index: groups[index] for index in model_cut.bodies}
    names = _function_names(dfg, outlined.values())
    reasons = _reasons(dfg, partition)
    facts = {i: _facts(dfg, g, numbers.get(i, -1), reasons) for i, g in outlined.items()}
    constants = {t.name for t in model.graph.initializer}
    functions = [
        _function(model, body, names[index], facts[index], constants)
        for index, body in model_cut.bodies.items()
    ]
    calls = [
        _Item(
            state=body.nodes[-1],
            node=helper.make_node(
                f.name, f.input, f.output, name=group_name(dfg, groups[index]), domain=DOMAIN
            ),
        )
        for (index, body), f in zip(model_cut.bodies.items(), functions, strict=True)
    ]
    not_outlined = [
        f"{group_name(dfg, groups[i])}: {reason}" for i, reason in model_cut.left.items()
    ]
    items = [*_outside(dfg, partition, model, model_cut), *calls]
    return _assemble(model, items, functions, not_outlined, tensors or model.graph.initializer)


def group_name(dfg: Dfg, group: Group) -> str:
    """`conv1 + relu1 + pool1`: the operators of a group, without biases and views."""
    nodes = [dfg[m.node] for m in group.matches]
    return " + ".join(n.name for n in nodes if n.owner is None and not n.is_virtual)


def _function_names(dfg: Dfg, groups: Iterable[Group]) -> dict[int, str]:
    """A unique identifier per group: the letters, digits and `_` of the group's name."""
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
    """Node -> a line `to <reader>: <reason>` for every boundary whose source it is."""
    lines_of: dict[int, list[str]] = {}
    for b in partition.boundaries:
        lines_of.setdefault(b.source, []).append(f"to {dfg[b.target].name}: {b.reason}")
    return lines_of


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
    computed = {name for node in nodes for name in node.output}
    read_outside = dict.fromkeys(
        name for node in nodes for name in reads(node) if name not in computed
    )
    return [n for n in read_outside if n not in constants] + [
        n for n in read_outside if n in constants
    ]


def _outside(dfg: Dfg, partition: Partition, model: onnx.ModelProto, cut: Cut) -> Iterator[_Item]:
    """Nodes that remain in the main graph; host operators get their reason as metadata."""
    why = {dfg[h.node].name: h.reason for h in partition.host}
    for state in cut.outside:
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
    computed = {name for node in graph.node for name in node.output}
    used = {name for node in graph.node for name in reads(node)} | {o.name for o in graph.output}
    graph.initializer.extend(t for t in tensors if t.name in used)
    graph.value_info.extend(v for v in old.value_info if v.name in computed)
    return new


def _in_order(items: Sequence[_Item]) -> Iterator[onnx.NodeProto]:
    """Nodes in topological order (Kahn's algorithm); ties keep the order of the old graph."""
    producer = {name: i for i, item in enumerate(items) for name in item.node.output if name}
    readers: list[list[int]] = [[] for _ in items]
    unmet_inputs = [0] * len(items)
    for i, item in enumerate(items):
        sources = {producer[name] for name in reads(item.node) if name in producer}
        unmet_inputs[i] = len(sources)
        for source in sources:
            readers[source].append(i)
    ready = [(item.state, i) for i, item in enumerate(items) if unmet_inputs[i] == 0]
    heapq.heapify(ready)
    emitted = 0
    while ready:
        _, i = heapq.heappop(ready)
        emitted += 1
        yield items[i].node
        for reader in readers[i]:
            unmet_inputs[reader] -= 1
            if unmet_inputs[reader] == 0:
                heapq.heappush(ready, (items[reader].state, reader))
    if emitted < len(items):
        raise InternalError("outlining", "groups of a legal partition wait for each other")
