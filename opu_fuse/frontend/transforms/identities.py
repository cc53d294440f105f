"""Remove what changes nothing: Identity, inference-time Dropout, one-operand Sum and Concat, Cast
to the same type, Pad by nothing."""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import bypass, constant, is_standard, operand, standard_nodes

_WRAPPERS = ("Sum", "Concat", "Max", "Min", "Mean")


def run(model: ir.Model) -> bool:
    """Returns whether a node was removed."""
    suspects = standard_nodes(model.graph, "Identity", "Dropout", "Cast", "Pad", *_WRAPPERS)
    changed = [bypass(node) for node in suspects if _changes_nothing(node)]
    return any(changed)


def _changes_nothing(node: ir.Node) -> bool:
    if is_standard(node, "Identity"):
        return True
    if is_standard(node, "Dropout"):
        training = operand(node, 2)
        off = training is None or ((c := constant(training)) is not None and not np.any(c))
        return off and not any(out.uses() or out.is_graph_output() for out in node.outputs[1:])
    if is_standard(node, *_WRAPPERS):
        return len(node.inputs) == 1
    if is_standard(node, "Cast"):
        x = node.inputs[0]
        return x is not None and x.dtype is not None and x.dtype == node.outputs[0].dtype
    if is_standard(node, "Pad"):
        pads = constant(operand(node, 1))
        return pads is not None and not np.any(pads)
    return False
