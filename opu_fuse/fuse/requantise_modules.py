"""Chooses the operator by which a machine requantises a value to another scale.

In the data-flow graph a requantisation is a clip without bounds. The best module depends on the
machine and on the preceding operators, so the choice precedes the strategies:

1. A machine with tables looks it up. The result equals ONNX Runtime's bits for any scales. A
   preceding function of one number (an activation, another table) whose only reader is the
   requantisation joins the same table, so both use one module.
2. A preceding Relu that does not change the scale and has no other reader requantises by itself: a
   comparator multiplies and clamps, and the order of the two changes no bit.
3. Otherwise the comparator multiplies. If a comparator already ran in the pass, or the machine maps
   no clip to it, the pool averages over one element.
"""

from collections.abc import Iterator

import onnx_ir as ir
from msgspec.structs import replace

from opu_fuse.dfg.concat_copies import ONE_ELEMENT
from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.integer import is_tied
from opu_fuse.dfg.islands import float_reason
from opu_fuse.dfg.renumber import renumbered
from opu_fuse.hw.spec.hw_spec import HwSpec

REQUANTISE = "Requantise"
"""Name of the requantisation in the list of functions of a table."""
_COMPARED = frozenset({"relu", "clip", "leaky_relu"})
_POOLED = frozenset({"max_pool", "avg_pool"})
_FUNCTIONS = {"relu": "Relu", "clip": "Clip", "leaky_relu": "LeakyRelu"}
"""Operators that a table can absorb -> their ONNX operator."""


def with_requantisers(dfg: Dfg, hw: HwSpec) -> Dfg:
    """The graph with every requantisation replaced by the operator that the machine runs for it.

    Returns `dfg` itself if it has no requantisation.
    """
    nodes = list(dfg.nodes)
    wanted = [node.index for node in dfg.calls if _requantises(dfg, node)]
    for index in wanted:
        nodes[index] = _chosen(dfg, nodes, index, hw)
    return renumbered(dfg, nodes)[0] if wanted else dfg


def _requantises(dfg: Dfg, node: Node) -> bool:
    if not node.is_requantisation or float_reason(dfg, node.index) is not None:
        return False
    return not is_tied(dfg[node.operands[0]].quant, node.quant)


def _chosen(dfg: Dfg, nodes: list[Node], index: int, hw: HwSpec) -> Node:
    """The operator that replaces a requantisation.

    nodes: the current nodes, with the replacements of preceding requantisations.
    """
    node, runs = nodes[index], hw.dataflow.operators
    if "table" in runs:  # Case 1
        return _as_table(dfg, nodes, node)
    before = nodes[node.operands[0]]
    if "relu" in runs and _only_clamps(nodes, before) and _is_inner(dfg, before, node):  # Case 2
        return replace(_joined(node, before), op="relu", attrs=before.attrs)
    used = {n.op for n in _same_pass(dfg, nodes, node)}
    compares = "clip" in runs and not (used & _COMPARED and not used & _POOLED)
    if not compares and "avg_pool" in runs and len(node.shape) == 4:  # Case 3
        return replace(node, op="avg_pool", attrs=ONE_ELEMENT)
    return node


def _only_clamps(nodes: list[Node], node: Node) -> bool:
    """Whether a node is a Relu that does not requantise."""
    return node.op == "relu" and is_tied(nodes[node.operands[0]].quant, node.quant)


def _as_table(dfg: Dfg, nodes: list[Node], node: Node) -> Node:
    table = replace(node, op="table", attrs={"functions": (REQUANTISE,)}, body=(_ir(node),))
    while True:
        before = nodes[table.operands[0]]
        known = before.op in _FUNCTIONS or before.op == "table"
        if not known or not _is_inner(dfg, before, dfg[node.index]):
            return table
        node = before
        functions = before.attrs.get("functions") or (_FUNCTIONS[before.op],)
        attrs = {"functions": (*functions, *table.attrs["functions"])}
        table = replace(_joined(table, before), attrs=attrs)


def _joined(node: Node, before: Node) -> Node:
    """One operator for two, with the operands of the first and the result of the second."""
    return replace(
        node,
        operands=before.operands,
        access=before.access,
        body=(*(before.body or (_ir(before),)), *(node.body or (_ir(node),))),
        source=tuple(dict.fromkeys((*before.source, *node.source))),
    )


def _ir(node: Node) -> ir.Node:
    assert node.ir_node is not None, f"call {node.name} has no canonical node"
    return node.ir_node


def _is_inner(dfg: Dfg, before: Node, reader: Node) -> bool:
    """Whether `reader` is the only reader of an operator's int8 result."""
    alone = dfg.users[before.index] == (reader.index,) and before.index not in dfg.outputs
    return alone and before.quant is not None and float_reason(dfg, before.index) is None


def _same_pass(dfg: Dfg, nodes: list[Node], node: Node) -> Iterator[Node]:
    """Predecessors that may run in the same pass, nearest first; each has a single reader."""
    while True:
        single_reader = [i for i in node.operands if dfg.users[i] == (node.index,)]
        calls = [
            nodes[i] for i in single_reader if nodes[i].kind is Kind.CALL and i not in dfg.outputs
        ]
        if not calls:
            return
        node = calls[0]
        yield node
