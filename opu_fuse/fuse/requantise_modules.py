"""How a machine rounds anew what is rounded already, to another scale.

In the data-flow graph that is a clip without bounds. Which module does it best depends on the
machine and on what stands before it, so this is decided ahead of the strategies:

1. A machine with tables looks it up: these are ONNX Runtime's bits whatever the scales are. A
   function of one number before it that nothing else reads (an activation, another table) goes
   into the same table, so both take one module.
2. A Relu that nothing else reads, of one scale, rounds to the second scale by itself: a comparator
   multiplies and clamps, and the order of the two changes no bit.
3. Else the comparator multiplies, or, where one has run before it in the same pass or may not run
   clips, the pool averages over one element.
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
"""Among the functions of a table."""
_COMPARED = frozenset({"relu", "clip", "leaky_relu"})
_POOLED = frozenset({"max_pool", "avg_pool"})
_FUNCTIONS = {"relu": "Relu", "clip": "Clip", "leaky_relu": "LeakyRelu"}
"""What a table does as well, by its ONNX operator."""


def with_requantisers(dfg: Dfg, hw: HwSpec) -> Dfg:
    """The graph with every requantisation as the operator that a machine does it by; the same
    object where there is none.
    """
    nodes = list(dfg.nodes)
    wanted = [node.index for node in dfg.calls if _rounds_anew(dfg, node)]
    for index in wanted:
        nodes[index] = _chosen(dfg, nodes, index, hw)
    return renumbered(dfg, nodes)[0] if wanted else dfg


def _rounds_anew(dfg: Dfg, node: Node) -> bool:
    if not node.is_requantisation or float_reason(dfg, node.index) is not None:
        return False
    return not is_tied(dfg[node.operands[0]].quant, node.quant)


def _chosen(dfg: Dfg, nodes: list[Node], index: int, hw: HwSpec) -> Node:
    """nodes: as they are by now, requantisations before this one included."""
    node, runs = nodes[index], hw.dataflow.operators
    if "table" in runs:  # Case 1
        return _looked_up(dfg, nodes, node)
    before = nodes[node.operands[0]]
    if "relu" in runs and _only_clamps(nodes, before) and _is_inner(dfg, before, node):  # Case 2
        return replace(_joined(node, before), op="relu", attrs=before.attrs)
    used = {n.op for n in _same_pass(dfg, nodes, node)}
    compares = "clip" in runs and not (used & _COMPARED and not used & _POOLED)
    if not compares and "avg_pool" in runs and len(node.shape) == 4:  # Case 3
        return replace(node, op="avg_pool", attrs=ONE_ELEMENT)
    return node


def _only_clamps(nodes: list[Node], node: Node) -> bool:
    """Whether a node is a Relu that rounds nothing."""
    return node.op == "relu" and is_tied(nodes[node.operands[0]].quant, node.quant)


def _looked_up(dfg: Dfg, nodes: list[Node], node: Node) -> Node:
    found = replace(node, op="table", attrs={"functions": (REQUANTISE,)}, body=(_ir(node),))
    while True:
        before = nodes[found.operands[0]]
        known = before.op in _FUNCTIONS or before.op == "table"
        if not known or not _is_inner(dfg, before, dfg[node.index]):
            return found
        node = before
        functions = before.attrs.get("functions") or (_FUNCTIONS[before.op],)
        attrs = {"functions": (*functions, *found.attrs["functions"])}
        found = replace(_joined(found, before), attrs=attrs)


def _joined(node: Node, before: Node) -> Node:
    """Both as one operator: it reads what the first reads, its result is that of the second."""
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
    """Whether an operator's int8 result is read by the next one alone."""
    alone = dfg.users[before.index] == (reader.index,) and before.index not in dfg.outputs
    return alone and before.quant is not None and float_reason(dfg, before.index) is None


def _same_pass(dfg: Dfg, nodes: list[Node], node: Node) -> Iterator[Node]:
    """What may run before a node in its pass, from behind: each read by the next one alone."""
    while True:
        inner = [i for i in node.operands if dfg.users[i] == (node.index,)]
        calls = [nodes[i] for i in inner if nodes[i].kind is Kind.CALL and i not in dfg.outputs]
        if not calls:
            return
        node = calls[0]
        yield node
