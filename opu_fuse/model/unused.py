"""Tells whether a model has dead code, so that the slow library pass runs only if needed.

The pass looks up the schema of every node, and most models have nothing to remove.
"""

import onnx_ir as ir

from opu_fuse.model.folding import holds_graphs


def anything_unused(model: ir.Model) -> bool:
    """Whether a node, result, constant, function or absent trailing operand can be removed.

    True for functions and subgraphs, which are not analysed.
    """
    graph = model.graph
    outputs_of_graph = frozenset(graph.outputs)
    if model.functions or any(_unread(v, outputs_of_graph) for v in graph.initializers.values()):
        return True
    for node in graph:
        inputs, outputs = node.inputs, node.outputs
        if not outputs or (inputs and inputs[-1] is None) or holds_graphs(node):
            return True
        for value in outputs:
            if _unread(value, outputs_of_graph):
                return True
    return False


def _unread(value: ir.Value, shown: frozenset[ir.Value]) -> bool:
    return not value.uses() and value not in shown


def is_alive(node: ir.Node) -> bool:
    """Whether a node has a reader; nodes that a rewrite replaced have none."""
    return any(v.uses() or v.is_graph_output() for v in node.outputs)
