"""A Pad by channels of zeros becomes a selection of channels, which the array computes.

Published machines support it as a pad. So only strategies that ask for it mark the operator
(`REWRITES`).
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import constant, operand, real_constant, standard_nodes, static_shape
from opu_fuse.quant import REWRITE_KEY

_WHY = "a choice of channels and zeros: the array makes it as it shuffles channels"


def run(model: ir.Model) -> bool:
    """Mark such Pads for `model/composites.py`. Returns whether a node was marked."""
    pads = [n for n in standard_nodes(model.graph, "Pad") if _widens(n)]
    for node in pads:
        node.metadata_props[REWRITE_KEY] = _WHY
    return bool(pads)


def _widens(node: ir.Node) -> bool:
    """Whether an unmarked Pad adds only channels of zeros. Expects the form of `fold_pads.py`."""
    shape, amounts = static_shape(node.inputs[0]), constant(operand(node, 1))
    if REWRITE_KEY in node.metadata_props or shape is None or shape[0] != 1:
        return False
    if amounts is None or amounts.size != 8 or operand(node, 3) is not None:
        return False
    fill = real_constant(operand(node, 2))
    zeros = operand(node, 2) is None or (fill is not None and not np.any(fill))
    is_constant_mode = node.attributes.get_string("mode", "constant") == "constant"
    return (
        zeros and is_constant_mode and amounts.min() >= 0 and not np.any(np.delete(amounts, (1, 5)))
    )
