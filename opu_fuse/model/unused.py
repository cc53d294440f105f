"""Whether a model holds anything that nobody needs: the library that removes it looks at every node
and its schema, and most of the time there is nothing.
"""

import onnx_ir as ir

from opu_fuse.model.folding import holds_graphs


def anything_unused(model: ir.Model) -> bool:
    """Whether any node, result, constant, function or operand left out at the end can go; True when
    in doubt (functions and subgraphs).
    """
    graph = model.graph
    shown = frozenset(graph.outputs)
    if model.functions or any(_unread(v, shown) for v in graph.initializers.values()):
        return True
    return any(_in_doubt(node, shown) for node in graph)


def _in_doubt(node: ir.Node, shown: frozenset[ir.Value]) -> bool:
    if not node.outputs or (node.inputs and node.inputs[-1] is None):
        return True
    return holds_graphs(node) or any(_unread(value, shown) for value in node.outputs)


def _unread(value: ir.Value, shown: frozenset[ir.Value]) -> bool:
    return not value.uses() and value not in shown
