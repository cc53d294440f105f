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
    for node in graph:
        inputs, outputs = node.inputs, node.outputs
        if not outputs or (inputs and inputs[-1] is None) or holds_graphs(node):
            return True
        for value in outputs:
            if _unread(value, shown):
                return True
    return False


def _unread(value: ir.Value, shown: frozenset[ir.Value]) -> bool:
    return not value.uses() and value not in shown
